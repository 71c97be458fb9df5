package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// piped is a server over a pipe, and the client's ends of that.
type piped struct {
	*testing.T
	to     *io.PipeWriter
	from   *bufio.Scanner
	done   chan error
	began  chan struct{} // the tool "slow" runs
	finish chan struct{} // lets it end
}

// overPipe serves the tool "slow" of a test, in a session of a revision.
func overPipe(t *testing.T, revision string) *piped {
	t.Helper()
	p := &piped{T: t, done: make(chan error, 1), began: make(chan struct{}), finish: make(chan struct{})}
	c, err := client.ConnectHTTP(t.Context(), "http://pool.example",
		client.HTTPOptions{Client: &http.Client{Transport: nothing{}}})
	must.OK(t, err)
	slow := func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p.began <- struct{}{}
		select {
		case <-p.finish:
			return &mcp.CallToolResult{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s, err := New(Config{Client: c, Log: slog.New(slog.DiscardHandler), Extend: func(m *mcp.Server) {
		m.AddTool(&mcp.Tool{Name: "slow", InputSchema: json.RawMessage(`{"type":"object"}`)}, slow)
	}})
	must.OK(t, err)
	t.Cleanup(s.Stop)
	in, to := io.Pipe()
	from, out := io.Pipe()
	p.to, p.from = to, bufio.NewScanner(from)
	p.from.Buffer(nil, 1<<20)
	go func() {
		p.done <- s.Run(t.Context(), in, out)
		_ = out.Close() // it never fails
	}()
	p.send(`{"jsonrpc":"2.0","id":"first","method":"initialize","params":{"protocolVersion":"` + revision +
		`","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	p.want(`"id":"first"`, revision)
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *piped) send(line string) {
	p.Helper()
	if _, err := io.WriteString(p.to, line+"\n"); err != nil {
		p.Fatal(err)
	}
}

// want reads one line, which has some texts.
func (p *piped) want(texts ...string) {
	p.Helper()
	if !p.from.Scan() {
		p.Fatalf("there is no answer (%v), want one with %q", p.from.Err(), texts)
	}
	for _, text := range texts {
		if !strings.Contains(p.from.Text(), text) {
			p.Errorf("the answer is %s, want one with %q", p.from.Text(), texts)
		}
	}
}

// end closes the client's end, and wants no more answers.
func (p *piped) end() {
	p.Helper()
	must.OK(p, p.to.Close())
	p.wantEnd()
}

func (p *piped) wantEnd() {
	p.Helper()
	if p.from.Scan() {
		p.Errorf("an answer too many: %s", p.from.Text())
	}
	if err := <-p.done; err != nil {
		p.Errorf("the server ended with %v", err)
	}
}

const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{}}}`

// TestAPipeOutlivesWhatCannotBeRead: each such line has an answer, and so have the requests around it.
func TestAPipeOutlivesWhatCannotBeRead(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	long := `{"id":"}\"","method":[{"id":1}],"x":"` + strings.Repeat("x", MaxRequestBytes) + `"}`
	for _, tt := range []struct {
		name, line string
		want       []string
	}{
		{"no JSON", "hello", []string{`"id":null`, "-32700"}},
		{"half of a message", `{"jsonrpc":"2.0","id":6,`, []string{`"id":null`, "-32700"}},
		{"two messages", ping + ping, []string{`"id":null`, "-32700"}},
		{"a number", "1", []string{`"id":null`, "-32600"}},
		{"null", "null", []string{`"id":null`, "-32600"}},
		{"neither request nor answer", `{"jsonrpc":"2.0","id":6}`, []string{`"id":6`, "-32600"}},
		{"the same without an id", `{"jsonrpc":"2.0"}`, []string{`"id":null`, "-32600"}},
		{"no version", `{"id":"a","method":"ping"}`, []string{`"id":"a"`, "-32600"}},
		{"an id that is none", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, []string{`"id":null`, "-32600"}},
		{"an unknown method", `{"jsonrpc":"2.0","id":6,"method":"foo/bar"}`, []string{`"id":6`, "-32601"}},
		{"an empty batch", "[]", []string{`"id":null`, "-32600"}},
		{"a batch", "[" + ping + "]", []string{`"id":null`, "-32600", "no batches"}},
		{"a long line", `{"x":"` + strings.Repeat("x", MaxRequestBytes) + `"}`, []string{`"id":null`, "-32600", "longer"}},
		{"a long call", `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":` + long + `}`,
			[]string{`"id":6`, "-32600", "longer"}},
		{"a long call, whose id is behind it", `{"method":"tools/call","params":` + long + `,"jsonrpc":"2.0","id":"six"}`,
			[]string{`"id":"six"`, "-32600", "longer"}},
		{"a long answer", `{"jsonrpc":"2.0","id":7,"result":` + long + `}`, []string{`"id":null`, "-32600", "longer"}},
		{"a long line that is no JSON", `{"id":6,"method":"x"},` + long, []string{`"id":null`, "-32600", "longer"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := overPipe(t, "2025-11-25")
			p.send(call)
			<-p.began
			p.send(tt.line)
			p.want(tt.want...)
			p.send(ping)
			p.want(`"id":1`, "result")
			p.finish <- struct{}{}
			p.want(`"id":7`, "result")
			p.end()
		})
	}
}

// TestABatchOverAPipe: the one revision that has batches has them.
func TestABatchOverAPipe(t *testing.T) {
	p := overPipe(t, "2025-03-26")
	p.send(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
	p.want(`[{`, `"id":1`, `"id":2`)
	for _, bad := range []string{
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},1]`, "[]",
	} {
		p.send(bad)
		p.want(`"id":null`, "-32600")
	}
	p.end()
}

// TestWhatWasAskedBeforeTheEndIsAnswered, also when the last line has no end.
func TestWhatWasAskedBeforeTheEndIsAnswered(t *testing.T) {
	p := overPipe(t, "2025-11-25")
	if _, err := io.WriteString(p.to, call); err != nil {
		t.Fatal(err)
	}
	must.OK(t, p.to.Close())
	<-p.began
	p.finish <- struct{}{}
	p.want(`"id":7`, "result")
	p.wantEnd()
}

// TestTheEndOfAPipeWaitsOnlySoLong for answers, and then is an end like any other.
func TestTheEndOfAPipeWaitsOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := overPipe(t, "2025-11-25")
		p.send(call)
		<-p.began
		begun := time.Now()
		p.end()
		if took := time.Since(begun); took != pipeGrace {
			t.Errorf("the server ended after %v, want %v", took, pipeGrace)
		}
	})
}

// TestACanceledRequestHasNoAnswer: its client has said that it wants none, and the end does not wait for one.
func TestACanceledRequestHasNoAnswer(t *testing.T) {
	p := overPipe(t, "2025-11-25")
	p.send(call)
	<-p.began
	p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}`)
	p.send(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
	p.want(`"id":8`, "result")
	p.end()
}
