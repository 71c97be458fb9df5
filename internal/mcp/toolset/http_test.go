package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
)

// webServer is a server over HTTP of the revision 2025-11-25. get answers a GET, call a call.
func webServer(t *testing.T, session func(w http.ResponseWriter, r *http.Request, method string) bool,
	get func(w http.ResponseWriter, r *http.Request), call func(w http.ResponseWriter, id json.RawMessage)) *Toolset {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m message
		if r.Method == http.MethodGet && get != nil {
			get(w, r)
			return
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		reply := func(result string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`))
		}
		if m.Method == "server/discover" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		if session != nil && !session(w, r, m.Method) {
			return
		}
		switch m.Method {
		case "initialize":
			reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
		case "tools/list":
			reply(`{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			call(w, m.ID)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(web.Close)
	return start(t, manifest.Server{Name: "s", URL: web.URL, MaxTools: 10, MaxInFlight: 4, StartTimeoutMS: 10_000})
}

// saysOK answers a call.
func saysOK(w http.ResponseWriter, id json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}`, id)
}

// TestACallThatMeetsTheEndOfItsSession: a server that was started anew does not know the session any more, and says so
// as the protocol wants, with 404. It did not run the call, so the call says that it was not made.
func TestACallThatMeetsTheEndOfItsSession(t *testing.T) {
	t.Parallel()
	var generation, ran atomic.Int32
	set := webServer(t, func(w http.ResponseWriter, r *http.Request, method string) bool {
		id := fmt.Sprint("session-", generation.Load())
		if method == "initialize" {
			w.Header().Set("Mcp-Session-Id", id)
			return true
		}
		if r.Header.Get("Mcp-Session-Id") != id {
			http.Error(w, "no such session", http.StatusNotFound)
			return false
		}
		return true
	}, nil, func(w http.ResponseWriter, id json.RawMessage) {
		ran.Add(1)
		saysOK(w, id)
	})
	if _, err := run(t, set, "x", patience); err != nil {
		t.Fatal(err)
	}
	generation.Add(1) // the server is started anew
	_, err := run(t, set, "x", patience)
	if ran.Load() != 1 {
		t.Fatalf("%d calls ran", ran.Load())
	}
	if err == nil || err.Code != toolyard.DependencyUnavailable {
		t.Errorf("a call that the server did not take: got %v (%s), want %s", err, err.Code,
			toolyard.DependencyUnavailable)
	}
}

// TestAServerThatHasItsClientComeAgainLater: a server ends the response of a call, says that it is to be asked again
// after four seconds, and has the answer then.
func TestAServerThatHasItsClientComeAgainLater(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked json.RawMessage
	set := webServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") != "1" {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "id: 2\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\","+
			"\"text\":\"ok\"}]}}\n\n", asked)
	}, func(w http.ResponseWriter, id json.RawMessage) {
		mu.Lock()
		defer mu.Unlock()
		asked = id
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "id: 1\nretry: 4000\ndata: \n\n")
	})
	out, err := run(t, set, "x", patience)
	if err != nil {
		t.Fatalf("got %v (%s)", err, err.Code)
	}
	if toolyard.TextOf(out.Content) != "ok" {
		t.Errorf("got %+v", out)
	}
}

// TestAServerThatLosesACall: a server takes a call, closes the response, and says that it has too much to do when it is
// asked for the rest. It may have run the call, which therefore does not say that it was not made.
func TestAServerThatLosesACall(t *testing.T) {
	t.Parallel()
	set := webServer(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusServiceUnavailable)
	}, func(w http.ResponseWriter, _ json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "id: 1\nretry: 1\ndata: \n\n")
	})
	if _, err := run(t, set, "x", patience); err == nil || err.Code != toolyard.OutcomeUnknown {
		t.Errorf("got %v, want %s", err, toolyard.OutcomeUnknown)
	}
}

// TestAnEndOfTheSessionThatIsAnErrorOfJSONRPC: servers made with the SDK for Python say in an error of JSON-RPC, with
// an id of their own, that they do not know a session any more. The status says it all the same: the call was not made,
// and the next session begins.
func TestAnEndOfTheSessionThatIsAnErrorOfJSONRPC(t *testing.T) {
	t.Parallel()
	var generation atomic.Int32
	set := webServer(t, func(w http.ResponseWriter, r *http.Request, method string) bool {
		id := fmt.Sprint("session-", generation.Load())
		if method == "initialize" {
			w.Header().Set("Mcp-Session-Id", id)
			return true
		}
		if r.Header.Get("Mcp-Session-Id") != id {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,` +
				`"message":"Session not found"}}`))
			return false
		}
		return true
	}, nil, saysOK)
	generation.Add(1) // the server is started anew
	if _, err := run(t, set, "x", patience); err == nil || err.Code != toolyard.DependencyUnavailable {
		t.Errorf("a call that the server did not take: got %v, want %s", err, toolyard.DependencyUnavailable)
	}
	until(t, set, "the server answers again", func() bool {
		_, err := run(t, set, "x", patience)
		return err == nil
	})
}

// TestAServerThatRefusesCredentialsInJSONRPC: who has to mend that is the operator, and no other input helps.
func TestAServerThatRefusesCredentialsInJSONRPC(t *testing.T) {
	t.Parallel()
	set := webServer(t, nil, nil, func(w http.ResponseWriter, id json.RawMessage) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"the token is too old"}}`, id)
	})
	if _, err := run(t, set, "x", patience); err == nil || err.Code != toolyard.SetupRequired {
		t.Errorf("got %v, want %s", err, toolyard.SetupRequired)
	}
}

// TestAStreamThatIsClosedWhenItIsSilent: proxies close the stream for what a server says of itself when it is silent,
// again and again. That says nothing of the calls that run.
func TestAStreamThatIsClosedWhenItIsSilent(t *testing.T) {
	t.Parallel()
	const often = 7 // the SDK gives up after the sixth
	var began, closed atomic.Int32
	enough, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	set := webServer(t, func(_ http.ResponseWriter, _ *http.Request, method string) bool {
		if method == "initialize" {
			began.Add(1)
		}
		return true
	}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if closed.Add(1) == often {
			close(enough)
		}
	}, func(w http.ResponseWriter, id json.RawMessage) {
		select {
		case <-enough:
		case <-over:
		}
		saysOK(w, id)
	})
	if out, err := run(t, set, "x", patience); err != nil || toolyard.TextOf(out.Content) != "ok" {
		t.Errorf("got %+v, %v", out, err)
	}
	if n := began.Load(); n != 1 {
		t.Errorf("%d sessions began", n)
	}
}

// TestAPageInPlaceOfAnAnswer: where something in between answers a call with a page of its own, such as a sign-in, what
// became of that call is not known. Other calls go on, and the next ones are sent.
func TestAPageInPlaceOfAnAnswer(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	waits, goOn := make(chan struct{}), make(chan struct{})
	set := webServer(t, nil, nil, func(w http.ResponseWriter, id json.RawMessage) {
		switch calls.Add(1) {
		case 1: // while this one runs, its session cannot be replaced
			close(waits)
			<-goOn
		case 2:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte("<html>Sign in</html>"))
			return
		}
		saysOK(w, id)
	})
	first := make(chan error, 1)
	go func() {
		_, err := run(t, set, "x", patience)
		if err != nil {
			first <- err
		}
		close(first)
	}()
	<-waits
	if _, err := run(t, set, "x", patience); err == nil || err.Code != toolyard.OutcomeUnknown {
		t.Errorf("a call that a page answers: got %v, want %s", err, toolyard.OutcomeUnknown)
	}
	if _, err := run(t, set, "x", patience); err != nil {
		t.Errorf("the call behind it: %v", err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Errorf("the call before it: %v", err)
	}
}

// TestAChangeBetweenTwoStreams: what a server says while no stream is there for it is lost, so the list is read again
// behind the next one.
func TestAChangeBetweenTwoStreams(t *testing.T) {
	t.Parallel()
	var lists, streams atomic.Int32
	over := make(chan struct{})
	defer close(over)
	set := webServer(t, func(w http.ResponseWriter, _ *http.Request, method string) bool {
		if method == "tools/list" {
			lists.Add(1)
		}
		return true
	}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if streams.Add(1) == 1 {
			return // the tools change now
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}, nil)
	until(t, set, "the list is read again", func() bool { return lists.Load() > 1 })
}

// TestAnErrorWithoutAnIDAnswersItsRequest: over HTTP it is known which one that is. Other calls of the session go on.
func TestAnErrorWithoutAnIDAnswersItsRequest(t *testing.T) {
	t.Parallel()
	for _, id := range []string{`"id":null,`, ``} {
		refused := `{"jsonrpc":"2.0",` + id + `"error":{"code":-32602,"message":"not so"}}`
		for kind, body := range map[string]string{"application/json": refused,
			"text/event-stream": "data: " + refused + "\n\n"} {
			set := webServer(t, nil, nil, func(w http.ResponseWriter, _ json.RawMessage) {
				w.Header().Set("Content-Type", kind)
				_, _ = w.Write([]byte(body))
			})
			first := life(set)
			if _, err := run(t, set, "x", patience); err == nil || err.Code != toolyard.InvalidArguments {
				t.Errorf("%s: got %v, want %s", body, err, toolyard.InvalidArguments)
			}
			if first.Err() != nil {
				t.Errorf("%s: the session has ended: %v", body, context.Cause(first))
			}
		}
	}
}

// TestAnErrorWithoutAnIDOfNoRequest comes in the server's own stream, and ends no session.
func TestAnErrorWithoutAnIDOfNoRequest(t *testing.T) {
	t.Parallel()
	var sessions atomic.Int32
	listens, once := make(chan struct{}), sync.Once{}
	set := webServer(t, func(_ http.ResponseWriter, _ *http.Request, method string) bool {
		if method == "initialize" {
			sessions.Add(1)
		}
		if method == "tools/call" {
			<-listens
		}
		return true
	}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: " + `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no"}}` + "\n\n"))
		_ = http.NewResponseController(w).Flush()
		once.Do(func() { close(listens) })
		<-r.Context().Done()
	}, saysOK)
	until(t, set, "calls are answered", func() bool {
		_, err := run(t, set, "x", patience)
		return err == nil
	})
	if _, err := run(t, set, "x", patience); err != nil || sessions.Load() != 1 {
		t.Errorf("there were %d sessions, want one; got %v", sessions.Load(), err)
	}
}

// TestAChangeBehindALostRequestForAStream: while a server is replaced, requests for the next stream get no response,
// and the tools are others when there is one.
func TestAChangeBehindALostRequestForAStream(t *testing.T) {
	t.Parallel()
	var lists, streams atomic.Int32
	over := make(chan struct{})
	defer close(over)
	set := webServer(t, func(_ http.ResponseWriter, _ *http.Request, method string) bool {
		if method == "tools/list" {
			lists.Add(1)
		}
		return true
	}, func(w http.ResponseWriter, r *http.Request) {
		n := streams.Add(1)
		if n == 2 {
			cutOff(t, w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if n == 1 {
			return // the tools change now
		}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}, nil)
	until(t, set, "the list is read again", func() bool { return lists.Load() > 1 })
}

// cutOff ends a connection within the first line of a response: net/http repeats a request for which nothing came.
func cutOff(t *testing.T, w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, err = conn.Write([]byte("HTTP/1.1"))
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Error(err)
	}
}
