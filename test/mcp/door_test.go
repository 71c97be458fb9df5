package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// post sends a message and returns the status and the beginning of the answer.
func (p *pool) post(body string, headers ...string) (int, string) {
	p.Helper()
	r, err := http.NewRequestWithContext(waiting(p.T), http.MethodPost, p.url, strings.NewReader(body))
	must.OK(p, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	must.OK(p, err)
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	must.OK(p, err)
	return res.StatusCode, string(data)
}

const handshake = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

func TestTheDoor(t *testing.T) {
	p := start(t, nil)
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
	}{
		{"no token", handshake, nil, 401},
		{"a token of nobody", handshake, []string{"Authorization", "Bearer nobody"}, 401},
		{"a token", handshake, []string{"Authorization", "Bearer token-of-a"}, 200},
		{"no JSON", handshake, []string{"Authorization", "Bearer token-of-a", "Content-Type", "text/plain"}, 415},
		{"too long", `{"x":"` + strings.Repeat("x", server.MaxRequestBytes) +
			`"}`, []string{"Authorization", "Bearer token-of-a"}, 413},
		{"a session of nobody", handshake, []string{"Authorization", "Bearer token-of-a", "Mcp-Session-Id", "made-up"},
			404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if status, says := p.post(tt.body, tt.headers...); status != tt.status {
				t.Errorf("got %d %s, want %d", status, says, tt.status)
			}
		})
	}
}

// TestErrorsAtTheDoor: what is no answer of the protocol is a problem document, as in the rest of the API.
func TestErrorsAtTheDoor(t *testing.T) {
	p := start(t, nil)
	for _, c := range []struct {
		method, body string
		headers      []string
		status       int
		says         string
	}{
		{http.MethodPut, "", nil, 405, "Method Not Allowed"}, {http.MethodDelete, "", nil, 400, "Mcp-Session-Id"},
		{http.MethodGet, "", []string{"Accept", "text/event-stream"}, 400, "Mcp-Session-Id"},
		{http.MethodPost, handshake, []string{"Mcp-Session-Id", "made-up"}, 404, "session not found"},
		{http.MethodPost, handshake, []string{"Accept", "text/plain"}, 400, "Accept"},
	} {
		r, err := http.NewRequestWithContext(waiting(t), c.method, p.url, strings.NewReader(c.body))
		must.OK(t, err)
		headers := append([]string{"Authorization", "Bearer token-of-a", "Content-Type", "application/json", "Accept",
			"application/json, text/event-stream"}, c.headers...)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		var problem api.Problem
		err = json.NewDecoder(res.Body).Decode(&problem)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != c.status ||
			problem.Status != c.status || !strings.Contains(problem.Detail, c.says) ||
			res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, %v, %+v", c.method, res.StatusCode, res.Header.Get("Content-Type"), err, problem)
		}
		if c.status == 405 && res.Header.Get("Allow") == "" {
			t.Error("it does not say what is allowed")
		}
	}
}

// TestASessionIsItsAgents: nobody else speaks in it.
func TestASessionIsItsAgents(t *testing.T) {
	p := start(t, nil)
	c := p.connect(session, "token-of-a", nil)
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for token, status := range map[string]int{"token-of-a": 200, "token-of-b": 403} {
		if got, says := p.post(list, "Authorization", "Bearer "+
			token, "Mcp-Session-Id", c.ID(), "Mcp-Protocol-Version", session); got != status {
			t.Errorf("with %s: %d %s, want %d", token, got, says, status)
		}
	}
}

// TestAnOperatorSaysWhoseCallsTheyAre: an agent cannot.
func TestAnOperatorSaysWhoseCallsTheyAre(t *testing.T) {
	p := start(t, nil)
	own := p.url
	p.url = own + "?agent=agent-b&session=evening"
	r := called(t, p.connect(alone, "token-of-all", nil), "echo", nil)
	id, _ := r.Meta["dev.toolyard/batch"].(string)
	view, err := p.client.Batch(toolyard.BatchKey{Agent: "agent-b", ID: toolyard.BatchID(id)}).View(waiting(t))
	if err != nil || view.Session != "evening" {
		t.Errorf("the batch is %+v (%v)", view, err)
	}
	if status, says := p.post(handshake, "Authorization", "Bearer token-of-a"); status != 404 {
		t.Errorf("an agent that names another: %d %s", status, says)
	}
	p.url = own + "?session=" + strings.Repeat("x", toolyard.MaxNameBytes+1)
	if status, says := p.post(handshake, "Authorization", "Bearer token-of-a"); status != 400 {
		t.Errorf("a session that is no name: %d %s", status, says)
	}
}

// TestAnAgentHasOnlySoManySessions: one that ends makes room for another.
func TestAnAgentHasOnlySoManySessions(t *testing.T) {
	p := start(t, nil)
	var open []*sdk.ClientSession
	for range server.MaxAgentSessions {
		open = append(open, p.connect(session, "token-of-a", nil))
	}
	transport := &sdk.StreamableClientTransport{Endpoint: p.url,
		HTTPClient: &http.Client{Transport: bearer{"token-of-a"}}}
	_, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(waiting(t), transport,
		&sdk.ClientSessionOptions{ProtocolVersion: session})
	wantCode(t, err, -32000, "sessions")
	p.connect(session, "token-of-b", nil)
	must.OK(t, open[0].Close())
	p.connect(session, "token-of-a", nil)
}

// TestOverAPipe: the same server, for one client.
func TestOverAPipe(t *testing.T) {
	p := start(t, func(c *server.Config) {
		c.Pipe = server.Caller{Agent: "piped", Session: "s"}
		c.Approvals = true
	})
	inBoth(t, func(t *testing.T, way string) {
		toServer, fromClient := io.Pipe()
		toClient, fromServer := io.Pipe()
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.mcp.Run(ctx, toServer, fromServer) }()
		asked := make(chan *sdk.ElicitParams, 10)
		c := connect(t, way, person(asked, accepts("allow", ""), nil),
			&sdk.IOTransport{Reader: toClient, Writer: fromClient})
		r := called(t, c, "write", map[string]any{"text": "over a pipe"})
		wantText(t, r, false, "wrote over a pipe")
		id, _ := r.Meta["dev.toolyard/batch"].(string)
		if view, err := p.client.Batch(toolyard.BatchKey{Agent: "piped",
			ID: toolyard.BatchID(id)}).View(waiting(t)); err != nil || view.Session != "s" {
			t.Errorf("the batch is %+v (%v)", view, err)
		}
		cctx, cancel := context.WithCancel(waiting(t))
		ended := make(chan error, 1)
		go func() {
			_, err := c.CallTool(cctx, &sdk.CallToolParams{Name: "wait"})
			ended <- err
		}()
		<-p.began
		cancel()
		<-ended
		<-p.ended
		stop()
		<-done
	})
}

// TestMalformedMessages never end the server.
func TestMalformedMessages(t *testing.T) {
	p := start(t, nil)
	for _, body := range []string{
		"", "null", "[]", "{}", "{", `"x"`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"toolyard://blobs/%zz"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` +
			strings.Repeat(`{"text":`, 2000) + "1" + strings.Repeat("}", 2000) + "}}",
		string(bytes.Repeat([]byte{0xff}, 100)),
	} {
		for _, version := range []string{"", alone, session, "1999-01-01"} {
			status, says := p.post(body, "Authorization", "Bearer token-of-a", "Mcp-Protocol-Version", version)
			if status >= 500 || status == 200 && !strings.Contains(says, "error") &&
				!strings.Contains(says, "isError") {
				t.Errorf("%.80q in %q: %d %s", body, version, status, says)
			}
		}
	}
	wantText(t, called(t, p.connect(alone, "token-of-a", nil), "echo", map[string]any{"text": "still here"}), false,
		"still here")
	_, err := p.connect(alone, "token-of-a", nil).ReadResource(waiting(t),
		&sdk.ReadResourceParams{URI: "toolyard://blobs/a/b"})
	if err == nil {
		t.Error("an address that is none was read")
	}
	wantCode(t, err, jsonrpc.CodeInvalidParams, "")
}

// TestRefusalsAreErrorsOfJSONRPC, as over a pipe; what is about the transport stays a text.
func TestRefusalsAreErrorsOfJSONRPC(t *testing.T) {
	p := start(t, nil)
	const unknown = `{"jsonrpc":"2.0","id":6,"method":"foo/bar"}`
	for _, tt := range []struct {
		name, body, version string
		status              int
		want                string
	}{
		{"no JSON", "{", "", 400, `"code":-32700`},
		{"no JSON", "hello", "2025-11-25", 400, `"code":-32700`},
		{"no JSON", "hello", alone, 400, `"code":-32700`},
		{"an unknown method", unknown, "", 200, `"code":-32601`},
		{"an unknown method", unknown, "2025-11-25", 200, `"code":-32601`},
		{"an unknown method", unknown, alone, 404, `"code":-32601`},
		{"an unknown notification", `{"jsonrpc":"2.0","method":"foo/bar"}`, "2025-11-25", 400, "JSON RPC not handled"},
		{"a batch", "[" + unknown + "]", "2025-11-25", 400, "batching is not supported"},
		{"an unknown revision", unknown, "1999-01-01", 400, "Unsupported protocol version"},
	} {
		headers := []string{"Authorization", "Bearer token-of-a"}
		if tt.version != "" {
			headers = append(headers, "Mcp-Protocol-Version", tt.version)
		}
		if tt.version == alone {
			headers = append(headers, "Mcp-Method", "foo/bar")
		}
		status, says := p.post(tt.body, headers...)
		if status != tt.status || !strings.Contains(says, tt.want) {
			t.Errorf("%s in %q: %d %s, want %d and %q", tt.name, tt.version, status, says, tt.status, tt.want)
		}
		if strings.Contains(tt.want, "code") && !strings.Contains(says, `"id":`) {
			t.Errorf("%s in %q: %s has no id", tt.name, tt.version, says)
		}
	}
}

// beside connects to another server of the same system, with the same key.
func (p *pool) beside(key []byte) *sdk.ClientSession {
	p.Helper()
	m, err := server.New(server.Config{
		Client: p.client, Log: testenv.Log(p.T), Key: key, Approvals: true,
		Pipe: server.Caller{Agent: "agent-a"},
	})
	must.OK(p, err)
	p.Cleanup(m.Stop)
	must.OK(p, m.SetSurface(p.surface()))
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, toServer, fromServer) }()
	p.Cleanup(func() {
		stop()
		<-done
	})
	return connect(p.T, alone, nil, &sdk.IOTransport{Reader: toClient, Writer: fromClient})
}

// surface is what the first worker offers, and more.
func (p *pool) surface(more ...registry.Entry) registry.Surface {
	p.Helper()
	stored, err := p.broker.Workers(waiting(p.T))
	if err != nil || len(stored) == 0 {
		p.Fatalf("there are no workers (%v)", err)
	}
	raw, err := p.broker.Surface(waiting(p.T), stored[0].Toolset)
	must.OK(p, err)
	surface, err := registry.Decode(raw)
	must.OK(p, err)
	surface.Tools = append(surface.Tools, more...)
	return *surface
}

// second is a server beside the pool's, over HTTP, that lists more than the workers offer.
func (p *pool) second(cfg server.Config, more ...registry.Entry) *pool {
	p.Helper()
	if cfg.Log = testenv.Log(p.T); cfg.Client == nil {
		cfg.Client = p.client
	}
	m, err := server.New(cfg)
	must.OK(p, err)
	p.Cleanup(m.Stop)
	must.OK(p, m.SetSurface(p.surface(more...)))
	return &pool{T: p.T, broker: p.broker, client: p.client, mcp: m, url: p.door(m), gate: p.gate, began: p.began,
		ended: p.ended}
}
