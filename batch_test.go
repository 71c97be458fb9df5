package toolyard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

func good() toolyard.Batch {
	b := toolyard.Batch{Calls: []toolyard.Call{{Tool: "read_file", Input: json.RawMessage(`{"file_path":"a"}`)},
		{Tool: "glob"}}}
	b.Normalize("b-1")
	return b
}

func TestNormalizeFillsInWhatIsLeftOut(t *testing.T) {
	b := good()
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	if b.ID != "b-1" || b.Agent != "default" || b.Session != "default" || b.Workspace != "default" ||
		b.Options.Partition != toolyard.Consecutive ||
		b.Options.OnError != toolyard.CancelGroup || b.Calls[0].ID != "call_1" || b.Calls[1].ID != "call_2" ||
		string(b.Calls[1].Input) != "{}" {
		t.Errorf("normalized to %+v", b)
	}
	before := fmt.Sprint(b)
	b.Normalize("other")
	if fmt.Sprint(b) != before {
		t.Errorf("normalizing again changed it to %v", b)
	}
}

func TestWhatIsWrongWithABatch(t *testing.T) {
	long := strings.Repeat("x", toolyard.MaxNameBytes+1)
	for want, spoil := range map[string]func(*toolyard.Batch){
		"calls: has no calls":                    func(b *toolyard.Batch) { b.Calls = nil },
		"calls: has 10001 calls":                 func(b *toolyard.Batch) { b.Calls = make([]toolyard.Call, 10_001) },
		"calls[1].id: \"call_1\" is also the id": func(b *toolyard.Batch) { b.Calls[1].ID = "call_1" },
		"calls[0].input: is not JSON":            func(b *toolyard.Batch) { b.Calls[0].Input = json.RawMessage("{") },
		"calls[0].echo: is no JSON object":       func(b *toolyard.Batch) { b.Calls[0].Echo = toolyard.Echo(`["x"]`) },
		"calls[1].echo: has 16385 bytes": func(b *toolyard.Batch) {
			b.Calls[1].Echo = make(toolyard.Echo, toolyard.MaxEchoBytes+1)
		},
		"agent: has the control character":     func(b *toolyard.Batch) { b.Agent = "a\nb" },
		"session: is not valid UTF-8":          func(b *toolyard.Batch) { b.Session = "\xff" },
		"workspace: is 129 bytes long":         func(b *toolyard.Batch) { b.Workspace = toolyard.Workspace(long) },
		"id: has the control character U+0000": func(b *toolyard.Batch) { b.ID = "a\x00" },
		"options.partition: \"all\"":           func(b *toolyard.Batch) { b.Options.Partition = "all" },
		"options.on_error: \"stop\"":           func(b *toolyard.Batch) { b.Options.OnError = "stop" },
		"options.max_concurrency: is 1001":     func(b *toolyard.Batch) { b.Options.MaxConcurrency = 1001 },
		"options.timeout_ms: is -1":            func(b *toolyard.Batch) { b.Options.TimeoutMS = -1 },
		"options.call_timeout_ms: is -1":       func(b *toolyard.Batch) { b.Options.CallTimeoutMS = -1 },
		"options.priority: \"high\" is not":    func(b *toolyard.Batch) { b.Options.Priority = "high" },
		"options.background_after_ms: has commands leave the batch": func(b *toolyard.Batch) {
			b.Options.Snapshot, b.Options.BackgroundAfterMS = true, 1
		},
		"options.tags: has 17 tags":             func(b *toolyard.Batch) { b.Options.Tags = make([]toolyard.Tag, 17) },
		"options.tags[0]: \"\" is no tag":       func(b *toolyard.Batch) { b.Options.Tags = []toolyard.Tag{""} },
		"options.tags[1]: \"a\" is there":       func(b *toolyard.Batch) { b.Options.Tags = []toolyard.Tag{"a", "a"} },
		"options.deny: and ask have 1001 rules": func(b *toolyard.Batch) { b.Options.Deny = make([]string, 1001) },
	} {
		b := good()
		spoil(&b)
		err := b.Validate()
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want an InputError that begins with %q, got %v", want, err)
		}
	}
}

// TestTheClosedSets holds what is written on the wire to what the contract lists.
func TestTheClosedSets(t *testing.T) {
	if len(toolyard.Phases) != 12 {
		t.Errorf("there are %d phases", len(toolyard.Phases))
	}
	if len(toolyard.Codes) != 30 {
		t.Errorf("there are %d codes", len(toolyard.Codes))
	}
	seen := map[toolyard.Code]bool{}
	for _, c := range toolyard.Codes {
		if seen[c] {
			t.Errorf("%q is listed twice", c)
		}
		seen[c] = true
		if c.IsError() == (c == toolyard.ResultRedacted) {
			t.Errorf("IsError of %q is %v", c, c.IsError())
		}
	}
	for i, c := range toolyard.Classes {
		if c.Strictness() != i || !c.Known() || c.Safe() != (i == 0) {
			t.Errorf("class %q: strictness %d, known %v, safe %v", c, c.Strictness(), c.Known(), c.Safe())
		}
	}
	if unknown := toolyard.Class("SAFE"); unknown.Safe() || unknown.Known() ||
		unknown.Strictness() != toolyard.Unsafe.Strictness() {
		t.Error("an unknown class is not the strictest")
	}
}

// TestNormalizeLeavesCopiesAlone: a batch that is handed in by several at a time is each one's own.
// TestNormalizeGivesNoIDTwice: an id that is filled in is not one that another call has, wherever that stands.
func TestNormalizeGivesNoIDTwice(t *testing.T) {
	b := toolyard.Batch{Calls: []toolyard.Call{{Tool: "a"}, {ID: "call_1"}, {ID: "call_1_2"}, {Tool: "b"},
		{ID: "call_4"}}}
	b.Normalize("b")
	var ids []string
	for _, c := range b.Calls {
		ids = append(ids, c.ID)
	}
	if got := strings.Join(ids, " "); got != "call_1_3 call_1 call_1_2 call_4_2 call_4" || b.Validate() != nil {
		t.Errorf("%s, %v", got, b.Validate())
	}
}

func TestNormalizeLeavesCopiesAlone(t *testing.T) {
	b := toolyard.Batch{Calls: []toolyard.Call{{Tool: "read"}}}
	handedIn := b
	handedIn.Normalize("b")
	if b.Calls[0].ID != "" || len(b.Calls[0].Input) > 0 {
		t.Errorf("the caller's call has changed: %+v", b.Calls[0])
	}
}
