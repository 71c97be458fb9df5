package natsbroker

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/provider/native"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// TestOwnSubmissionsAreStrict: what is known to be in our own layout, and not read strictly for that, the strict reader
// takes as well, also when bytes of it are changed.
func TestOwnSubmissionsAreStrict(t *testing.T) {
	sub := toolyard.Batch{Agent: "a", Interactive: true, Calls: []toolyard.Call{
		{ID: "c1", Tool: "read_file", Input: json.RawMessage(`{"path":"a \"b\"","deep":[{"x":[]},-1.5e3,null]}`)},
		{ID: "c2", Tool: "bash", Input: json.RawMessage(`"{cut"`), Incomplete: true},
	}, Options: toolyard.Options{MaxConcurrency: 3, TimeoutMS: 7, DryRun: true, Priority: toolyard.Bulk}}
	sub.Normalize("b")
	plain, err := json.Marshal(sub)
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 3))
		data := slices.Clone(plain)
		for range r.IntN(3) {
			at := r.IntN(len(data))
			part := data[at:min(at+1+r.IntN(20), len(data))]
			switch r.IntN(3) {
			case 0:
				const bytes = "\"\\{}[],:0123456789.-+eEtfn \x00\xff"
				data[at] = bytes[r.IntN(len(bytes))]
			case 1:
				data = slices.Delete(data, at, at+len(part))
			case 2:
				data = slices.Insert(data, at, slices.Clone(part)...)
			}
			if len(data) == 0 {
				break
			}
		}
		data, err := strictjson.MendText(data)
		if err != nil || !events.OwnSubmission(data) {
			continue
		}
		own++
		b, err := native.Decode(data)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, data, err)
		}
		if slices.Equal(plain, data) && len(b.Calls) != len(sub.Calls) {
			t.Fatalf("it has %d calls", len(b.Calls))
		}
	}
	if own < 2_000 {
		t.Errorf("only %d were in our own layout", own)
	}
	for _, data := range []string{
		`{"calls":[],"calls":[]}`, `{"calls":[],"new":1}`, `{"Calls":[]}`,
		`{"calls":[{"id":"a","tool":"t","input":{},"x":1}]}`,
		`{"calls":[],"options":{"deny":["x"]}}`, `{"calls":[{"id":"a","tool":"t","input":{},"echo":{}}]}`,
		`{"calls":[],"options":{"timeout_ms":"1"}}`,
	} {
		if events.OwnSubmission([]byte(data)) {
			t.Errorf("%s is not left to the strict reader", data)
		}
	}
}
