//go:build docker

package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// batch is what agents hand in over HTTP and NATS: groups of each class, and one call that fails.
func batch(id string) toolyard.Batch {
	input := func(v map[string]string) json.RawMessage {
		out, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return out
	}
	file := "notes-" + id
	return toolyard.Batch{ID: toolyard.BatchID(id), Calls: []toolyard.Call{
		{ID: "write", Tool: "write_file", Input: input(map[string]string{"file_path": file, "content": id})},
		{ID: "read", Tool: "read_file", Input: input(map[string]string{"file_path": file})},
		{ID: "list", Tool: "bash", Input: input(map[string]string{"command": "ls"})},
		{ID: "none", Tool: "no_such_tool", Input: input(nil)},
		{ID: "append", Tool: "bash", Input: input(map[string]string{"command": sign(id)})},
		{ID: "again", Tool: "read_file", Input: input(map[string]string{"file_path": file})},
	}}
}

// sign is the command that leaves a line in the ledger.
func sign(id string) string { return "echo " + id + " >> " + ledger }

// http hands a batch in through the proxy.
func (f *fleet) http(c *client.Client) func(context.Context, string) error {
	return func(ctx context.Context, id string) error {
		b, err := c.Submit(ctx, batch(id))
		if err != nil {
			return err
		}
		for _, err := range b.Results(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// nats hands a batch in from inside the network, with an agent's credentials.
func (f *fleet) nats(_ context.Context, id string) error {
	document, err := json.Marshal(batch(id))
	if err != nil {
		return err
	}
	if out, err := f.try(document, "run", "--rm", "--no-deps", "-T", "cli", "submit", "-"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// mcp makes a client that keeps its session for as long as it works, and calls a tool in it.
func (f *fleet) mcp() func(context.Context, string) error {
	var session *mcp.ClientSession
	return func(ctx context.Context, id string) (err error) {
		if session == nil {
			transport := &mcp.StreamableClientTransport{Endpoint: "http://" + f.address + "/mcp",
				HTTPClient: &http.Client{Transport: bearer(f.token)}, DisableStandaloneSSE: true}
			session, err = mcp.NewClient(&mcp.Implementation{Name: "fleet"}, nil).Connect(ctx, transport, nil)
			if err != nil {
				return err
			}
		}
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Meta: mcp.Meta{"dev.toolyard/batch": id},
			Name: "bash", Arguments: map[string]string{"command": sign(id)}})
		if err == nil && result.Meta["dev.toolyard/batch"] != id {
			err = fmt.Errorf("the answer is of the batch %v", result.Meta["dev.toolyard/batch"])
		}
		if err != nil {
			session = nil // what the server of the session has is gone with it
		}
		return err
	}
}

// bearer adds a token to each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// The events of a model's response: one call, and the end.
const (
	oneCall = `data: {"type":"content_block_start","index":0,` +
		`"content_block":{"type":"tool_use","id":"toolu_01","name":"glob","input":{}}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"pattern\": \"*\"}"}}

data: {"type":"content_block_stop","index":0}

`
	theEnd = `data: {"type":"message_stop"}

`
)

// stream: the proxy hands on the result of a call while the model's response is still written.
func (f *fleet) stream(t *testing.T) {
	body, model := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+f.address+"/v1/stream/anthropic?id=stream", body)
	must.OK(t, err)
	request.Header.Set("Content-Type", "text/event-stream")
	said := make(chan error, 1)
	result := make(chan struct{})
	go func() {
		_, err := io.WriteString(model, oneCall)
		<-result
		_, last := io.WriteString(model, theEnd)
		said <- errors.Join(err, last, model.Close())
	}()
	answer, err := bearer(f.token).RoundTrip(request)
	must.OK(t, err)
	var events []string
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		event, ok := strings.CutPrefix(lines.Text(), "event: ")
		if !ok {
			continue
		}
		if events = append(events, event); event == "result" {
			close(result)
		}
	}
	if err := errors.Join(<-said, answer.Body.Close()); err != nil {
		t.Error(err)
	}
	if want := []string{"batch", "result", "reply", "completed"}; !slices.Equal(events, want) {
		t.Errorf("%s, with the events %q; want %q", answer.Status, events, want)
	}
}

// verify: each batch is as [judge] says, and its log is consistent.
func (f *fleet) verify(t *testing.T, keys []toolyard.BatchKey, cut map[string]bool) {
	c := f.agent(t)
	lines := map[string]int{}
	for _, line := range strings.Fields(f.compose("exec", "-T", "worker", "cat", "/workspace/"+ledger)) {
		lines[line]++
	}
	var events bytes.Buffer
	codes := map[toolyard.Code]int{}
	for _, k := range keys {
		view, err := c.Batch(k).View(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", k.ID, err)
		}
		calls, alone := batch(string(k.ID)).Calls, strings.HasPrefix(string(k.ID), "mcp")
		if alone {
			calls = calls[4:5]
			for _, r := range view.Results { // what called it has no name in MCP
				calls[0].ID = r.CallID
			}
		}
		for _, r := range view.Results {
			codes[r.Code]++
		}
		for _, problem := range judge(view, calls, lines[string(k.ID)], alone && cut[string(k.ID)]) {
			t.Errorf("%s: %s", k.ID, problem)
		}
		for event, err := range c.Batch(k).Events(t.Context()) {
			if err != nil {
				t.Fatalf("the events of %s: %v", k.ID, err)
			}
			events.Write(event)
			events.WriteByte('\n')
		}
	}
	t.Logf("%d batches, %d results: %v", len(keys), sum(codes), codes)
	replay := exec.Command(filepath.Join(f.top, "bin/image/dispatcher"), "replay", "--json", "-")
	replay.Stdin, replay.Stderr = &events, os.Stderr
	if _, err := replay.Output(); err != nil {
		t.Errorf("the logs are not consistent: %v", err)
	}
}

func sum(codes map[toolyard.Code]int) (n int) {
	for _, count := range codes {
		n += count
	}
	return n
}
