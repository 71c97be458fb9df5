package http

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// picture is too large to travel in a result, and is no text.
var picture = append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{0xff, 0, 7}, 50_000)...)

// shot is a tool that gives a picture and data.
func shot() tool.Tool {
	return tool.Tool{
		Declaration: tool.Declaration{
			Name: "shot", Description: "A tool of a test.", InputSchema: json.RawMessage(`{"type":"object"}`),
			Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
		},
		Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
			return tool.Output{Structured: json.RawMessage(`{"n":1}`), Content: []toolyard.Content{
				{Type: toolyard.ContentText, Text: "see"},
				{Type: toolyard.ContentImage, MIMEType: "image/png", Data: picture},
			}}, nil
		},
	}
}

// TestPicturesReachTheModel: what is rendered for a provider has the picture itself, wherever it is kept; the native
// form has its reference, by which it can be read.
func TestPicturesReachTheModel(t *testing.T) {
	p := start(t, nil)
	body := `{"anthropic":{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"shot","input":{},"toolset_name":"computer"}]}}`
	r := p.do(http.MethodPost, batches+"?wait=60&format=anthropic", body)
	if text := string(r.body); r.status != http.StatusOK ||
		!strings.Contains(text, base64.StdEncoding.EncodeToString(picture)) ||
		!strings.Contains(text, `"toolset_name":"computer"`) {
		t.Fatalf("%d: %.300s", r.status, text)
	}
	c, err := client.ConnectHTTP(t.Context(), p.url, client.HTTPOptions{})
	must.OK(t, err)
	for name, c := range map[string]*client.Client{"over HTTP": c, "over NATS": p.client} {
		sub, err := c.Submit(t.Context(), toolyard.Batch{Calls: []toolyard.Call{{ID: "1", Tool: "shot",
			Echo: toolyard.Echo(`{"a":1}`)}}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var results []toolyard.Result
		for r, err := range sub.Results(t.Context()) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			results = append(results, r)
		}
		got := results[0]
		if len(got.Content) != 2 || got.Content[1].Data != nil || got.Content[1].Blob == "" ||
			string(got.Structured) != `{"n":1}` || string(got.Echo) != `{"a":1}` {
			t.Fatalf("%s: %+v", name, got)
		}
		if err := sub.Fill(t.Context(), results); err != nil ||
			!reflect.DeepEqual(results[0].Content[1].Data, picture) {
			t.Errorf("%s: the picture is not there: %v", name, err)
		}
	}
}

// TestFillChangesItsOwnResults: several follow a batch in one process. One that fetches a picture puts it into its own
// results, and the others have the reference.
func TestFillChangesItsOwnResults(t *testing.T) {
	p := start(t, nil)
	sub, err := p.client.Submit(t.Context(), toolyard.Batch{Calls: []toolyard.Call{{Tool: "shot"}, {Tool: "wait"}}})
	must.OK(t, err)
	var results [2][]toolyard.Result
	for i := range results {
		next, stop := iter.Pull2(sub.Results(t.Context()))
		defer stop()
		r, err, ok := next()
		if err != nil || !ok {
			t.Fatal(err)
		}
		results[i] = []toolyard.Result{r}
	}
	must.OK(t, sub.Fill(t.Context(), results[0]))
	if got := results[0][0].Content[1]; !bytes.Equal(got.Data, picture) {
		t.Errorf("who has asked for it got %d bytes", len(got.Data))
	}
	if got := results[1][0].Content[1]; got.Data != nil || got.Blob == "" {
		t.Errorf("another one has %d bytes of it, and the reference %q", len(got.Data), got.Blob)
	}
	p.gate <- struct{}{}
}
