package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

const patience = 20 * time.Second

// declared is the tool of a manifest whose endpoint is at a server.
func declared(t *testing.T, more, endpoint string) tool.Tool {
	t.Helper()
	f, err := manifest.Decode([]byte(`{"tools":[{"name":"x","description":"d",` + more + `"input_schema":{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}},
		"http":` + endpoint + `}]}`))
	must.OK(t, err)
	made, err := New(f.Tools[0])
	must.OK(t, err)
	return made
}

func env() tool.Env {
	return tool.Env{IdempotencyKey: "ty-1", TraceParent: "00-a-b-01", TraceState: "v=1", Baggage: "user=ann",
		Granted: func(name string) (string, bool) { return "secret", name == "KEY" }}
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// TestARequest is what the manifest says, with the input in its places.
func TestARequest(t *testing.T) {
	var got *http.Request
	var body string
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, body = r, string(raw)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, `{"n":1}`)
	})
	out, err := declared(t, "", `{"url":"`+at+
		`/v1/{a}/x?q={b}","headers":{"Authorization":"Bearer ${KEY}","X-Fixed":"y"}}`).Run(t.Context(), env(),
		json.RawMessage(`{"a":"b c?d","b":"d&e"}`))
	if err != nil || string(out.Structured) != `{"n":1}` {
		t.Fatalf("%+v, %v", out, err)
	}
	if got.Method != "POST" || got.RequestURI != "/v1/b%20c%3Fd/x?q=d%26e" || body != `{"a":"b c?d","b":"d&e"}` ||
		got.Header.Get("Authorization") != "Bearer secret" ||
		got.Header.Get("Idempotency-Key") != "ty-1" || got.Header.Get("Tracestate") != "v=1" ||
		got.Header.Get("Baggage") != "user=ann" || got.Header.Get("Traceparent") != "00-a-b-01" ||
		got.Header.Get("X-Fixed") != "y" ||
		got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the request is %s %s %v with %q", got.Method, got.RequestURI, got.Header, body)
	}
	if _, err := declared(t, "", `{"method":"GET","url":"`+at+
		`/{a}"}`).Run(t.Context(), env(), json.RawMessage(`{"a":"b"}`)); err != nil || body != "" ||
		got.Method != "GET" {
		t.Errorf("a GET is %s with %q, %v", got.Method, body, err)
	}
	x := declared(t, "", `{"url":"`+at+`","headers":{"A":"${OTHER}"}}`)
	if err := x.Check(t.Context(), env(),
		json.RawMessage(`{"a":"b"}`)); tool.AsError(err).Code != toolyard.SetupRequired {
		t.Errorf("a credential that is not granted: %v", err)
	}
}

// TestStatusesAreCodes: whose fault it is can be told from the code.
func TestStatusesAreCodes(t *testing.T) {
	for _, c := range []struct {
		status     int
		header     string
		idempotent bool
		want       toolyard.Code
		retryable  bool
		afterMS    int64
	}{
		{400, "", false, toolyard.InvalidArguments, false, 0}, {401, "", false, toolyard.SetupRequired, false, 0},
		{403, "", false, toolyard.SetupRequired, false, 0},
		{404, "", false, toolyard.InvalidArguments, false, 0}, {409, "", false, toolyard.ExecutionFailed, false, 0},
		{422, "", false, toolyard.InvalidArguments, false, 0},
		{429, "7", false, toolyard.DependencyUnavailable, true, 7000},
		{503, "", false, toolyard.DependencyUnavailable, true, 0},
		{503, "99999999", false, toolyard.DependencyUnavailable, true, pause.MaxAsked.Milliseconds()},
		{503, "9999999999", false, toolyard.DependencyUnavailable, true, pause.MaxAsked.Milliseconds()},
		{500, "", true, toolyard.DependencyUnavailable, false, 0},
		{502, "", false, toolyard.DependencyUnavailable, false, 0},
		{501, "", false, toolyard.ExecutionFailed, false, 0}, {304, "", false, toolyard.ExecutionFailed, false, 0},
	} {
		at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if c.header != "" {
				w.Header().Set("Retry-After", c.header)
			}
			w.WriteHeader(c.status)
			if c.status >= 400 {
				_, _ = io.WriteString(w, "the reason")
			}
		})
		more := ""
		if c.idempotent {
			more = `"idempotent":true,`
		}
		_, err := declared(t, more, `{"url":"`+at+`"}`).Run(t.Context(), env(), json.RawMessage(`{"a":"b"}`))
		e := tool.AsError(errors.Join(err))
		if err == nil || e.Code != c.want || e.Retryable != c.retryable || e.RetryAfterMS != c.afterMS ||
			c.status >= 400 && !strings.Contains(e.Message, "the reason") {
			t.Errorf("%d: %+v", c.status, err)
		}
	}
}

// TestACredentialThatIsNoHeader is the operator's to mend, and nothing is sent.
func TestACredentialThatIsNoHeader(t *testing.T) {
	at := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the service was asked") })
	x := declared(t, "", `{"url":"`+at+`","headers":{"Authorization":"Bearer ${KEY}"}}`)
	e := env()
	e.Granted = func(string) (string, bool) { return "hunter2-hunter2\n", true }
	_, err := x.Run(t.Context(), e, json.RawMessage(`{"a":"b"}`))
	for name, err := range map[string]error{"check": x.Check(t.Context(), e, json.RawMessage(`{"a":"b"}`)), "run": err} {
		if err == nil || tool.AsError(err).Code != toolyard.SetupRequired || !strings.Contains(err.Error(), `"KEY"`) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestServicesThatMisbehave harm only their own calls.
func TestServicesThatMisbehave(t *testing.T) {
	elsewhere := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("somebody else was asked, with %v",
			r.Header)
	})
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		more    string
		want    toolyard.Code
	}{
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}, "", toolyard.ExecutionFailed},
		"redirects in a circle": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
		}, "", toolyard.OutcomeUnknown},
		"never ends": {func(w http.ResponseWriter, _ *http.Request) {
			for piece := make([]byte, 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}, "", toolyard.ResultMappingFailed},
		"breaks off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "",
			toolyard.OutcomeUnknown},
		"breaks off in a read": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			`"idempotent":true,`, toolyard.DependencyUnavailable},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{]")
		}, "", toolyard.ResultMappingFailed},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := declared(t, c.more, `{"url":"`+serve(t, c.handler)+`"}`).Run(ctx, env(), json.RawMessage(`{"a":"b"}`))
		cancel()
		if err == nil || tool.AsError(err).Code != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	at := gone.URL
	gone.Close()
	if _, err := declared(t, "", `{"url":"`+at+`"}`).Run(t.Context(), env(),
		json.RawMessage(`{"a":"b"}`)); tool.AsError(err).Code != toolyard.DependencyUnavailable ||
		!tool.AsError(err).Retryable {
		t.Errorf("nobody is there: %v", err)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler()) // with a certificate that nobody trusts
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(secure.Close)
	if _, err := declared(t, "", `{"url":"`+secure.URL+`"}`).Run(t.Context(), env(),
		json.RawMessage(`{"a":"b"}`)); tool.AsError(err).Code != toolyard.DependencyUnavailable ||
		!strings.Contains(err.Error(), "was not sent") {
		t.Errorf("a certificate that nobody trusts: %v", err)
	}
	asked, hold := make(chan struct{}), make(chan struct{})
	slow := serve(t, func(http.ResponseWriter, *http.Request) { close(asked); <-hold })
	t.Cleanup(func() { close(hold) })
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	go func() { <-asked; cancel(stop) }()
	if _, err := declared(t, "", `{"url":"`+slow+`"}`).Run(ctx, env(), json.RawMessage(`{"a":"b"}`)); !errors.Is(err,
		stop) {
		t.Errorf("a call that was stopped: %v", err)
	}
}

func TestWhatAResponseIs(t *testing.T) {
	for kind, want := range map[string]tool.Output{
		"text/plain": {Text: "x\n"},
		"":           {Text: "x\n"},
		"image/png": {Content: []toolyard.Content{{Type: toolyard.ContentImage, MIMEType: "image/png",
			Data: []byte("x\n")}}},
		"application/octet-stream": {Text: "x\n"},
	} {
		at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			_, _ = io.WriteString(w, "x\n")
		})
		out, err := declared(t, "", `{"url":"`+at+`"}`).Run(t.Context(), env(), json.RawMessage(`{"a":"b"}`))
		if err != nil || out.Text != want.Text || len(out.Content) != len(want.Content) || len(out.Content) > 0 &&
			out.Content[0].Type != want.Content[0].Type {
			t.Errorf("%q: %+v, %v", kind, out, err)
		}
	}
	at := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff, 0, 1}) })
	if out, err := declared(t, "", `{"url":"`+at+`/f"}`).Run(t.Context(), env(),
		json.RawMessage(`{"a":"b"}`)); err != nil || len(out.Content) != 1 ||
		out.Content[0].Type != toolyard.ContentResource || !strings.HasSuffix(out.Content[0].URI, "/f") {
		t.Errorf("bytes: %+v, %v", out, err)
	}
}

// TestAByteOrderMarkIsNoPartOfJSON: a parser may ignore it (RFC 8259), and the request has taken effect.
func TestAByteOrderMarkIsNoPartOfJSON(t *testing.T) {
	for sent, want := range map[string]string{"\ufeff{\"n\":1}": `{"n":1}`, "\ufeff": ""} {
		at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, sent)
		})
		out, err := declared(t, "", `{"url":"`+at+`"}`).Run(t.Context(), env(), json.RawMessage(`{"a":"b"}`))
		if err != nil || string(out.Structured) != want {
			t.Errorf("%q: %q, %v", sent, out.Structured, err)
		}
	}
}

// TestNoHalfASecretOfAService: the error of a service that is cut shows no part of a secret.
func TestNoHalfASecretOfAService(t *testing.T) {
	const secret = "hunter2-hunter2-hunter2"
	at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", MaxErrorChars-10)+secret)
	})
	e := env()
	e.Redact = func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }
	_, err := declared(t, "", `{"url":"`+at+`"}`).Run(t.Context(), e, json.RawMessage(`{"a":"b"}`))
	if m := tool.AsError(errors.Join(err)).Message; err == nil || strings.Contains(m, "hunter2") ||
		!strings.Contains(m, "[redacted") {
		t.Errorf("…%s", m[max(0, len(m)-100):])
	}
}

// TestNoHalfAmongManySecretsOfAService: also where so many are taken out that far more of the answer is shown.
func TestNoHalfAmongManySecretsOfAService(t *testing.T) {
	secret := "<" + strings.Repeat("z", 301) + ">" // no digits: the message has the port
	at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat(secret+",", 1_000))
	})
	e := env()
	e.Redact = func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }
	_, err := declared(t, "", `{"url":"`+at+`"}`).Run(t.Context(), e, json.RawMessage(`{"a":"b"}`))
	if m := tool.AsError(errors.Join(err)).Message; err == nil || strings.Contains(m, "z") ||
		!strings.Contains(m, "[redacted") {
		t.Errorf("…%s", m[max(0, len(m)-100):])
	}
}
