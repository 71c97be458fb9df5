package submission

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

func TestFit(t *testing.T) {
	var in Input
	if _, err := in.Fit([]toolyard.Call{{}}); err != nil || in.calls != 0 {
		t.Fatal(err)
	}
	in.Add([]toolyard.Call{{ID: "a", Tool: "t", Input: json.RawMessage(`{}`)}})
	calls := []toolyard.Call{{Tool: "t"}, {ID: "c", Tool: "t"}}
	fit, err := in.Fit(calls)
	if err != nil || fit[0].ID != "call_2" || string(fit[1].Input) != "{}" {
		t.Fatalf("%+v, %v", fit, err)
	}
	if calls[0].ID != "" {
		t.Error("the caller's calls are changed")
	}
	in.Add(fit)
	if in.calls != 3 {
		t.Errorf("%d calls, want 3", in.calls)
	}
	half := json.RawMessage(`"` + strings.Repeat("x", toolyard.MaxBatchBytes/2) + `"`)
	big, err := in.Fit([]toolyard.Call{{Tool: "t", Input: half}})
	if err != nil {
		t.Fatal(err)
	}
	in.Add(big)
	for name, c := range map[string]struct {
		calls    []toolyard.Call
		says     string
		tooLarge bool
	}{
		"an id of the submission": {[]toolyard.Call{{ID: "b"}, {ID: "a"}}, `calls[1].id: "a" is also the id of call 0`,
			false},
		"an id that was appended": {[]toolyard.Call{{ID: "c"}}, `calls[0].id: "c" is also the id of call 2`, false},
		"an id twice": {[]toolyard.Call{{ID: "d"}, {ID: "d"}},
			`calls[1].id: "d" is also the id of calls[0]`, false},
		"no JSON": {[]toolyard.Call{{Input: json.RawMessage(`{`)}}, "calls[0].input: is not JSON",
			false},
		"too many":               {make([]toolyard.Call, toolyard.MaxCallsPerBatch), "at most", true},
		"too long with the rest": {[]toolyard.Call{{Input: half}}, "bytes of input; at most", true},
	} {
		_, err := in.Fit(c.calls)
		wrong, ok := errors.AsType[*toolyard.InputError](err)
		if !ok || !strings.Contains(err.Error(), c.says) || wrong.TooLarge != c.tooLarge {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
}

// TestFitGivesNoIDTwice: a call without an id gets one that no call has, of those before it and those beside it.
func TestFitGivesNoIDTwice(t *testing.T) {
	var in Input
	in.Add([]toolyard.Call{{ID: "call_2"}, {ID: "call_3_2"}})
	fit, err := in.Fit([]toolyard.Call{{Tool: "a"}, {ID: "call_3"}, {Tool: "b"}, {ID: "call_3_3"}})
	if err != nil || fit[0].ID != "call_3_4" || fit[2].ID != "call_5" {
		t.Fatalf("%+v, %v", fit, err)
	}
	in.Add(fit)
	in.Add([]toolyard.Call{{ID: "call_8"}})
	if fit, err = in.Fit([]toolyard.Call{{Tool: "a"}}); err != nil || fit[0].ID != "call_8_2" {
		t.Fatalf("%+v, %v", fit, err)
	}
}

func TestSame(t *testing.T) {
	batch := func(input string) *toolyard.Batch {
		return &toolyard.Batch{ID: "b", Calls: []toolyard.Call{{ID: "a", Input: json.RawMessage(input)}}}
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[2,3]}`, "{ \"b\" : [2,3],\n\"a\":1}", true},
		{`{"a":"\u0061"}`, `{"a":"a"}`, true},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567891}`, false},
		{`{"n":1}`, `{"n":1.0}`, false},
		{`[1,2]`, `[2,1]`, false},
	} {
		if same, err := Same(batch(c.a), batch(c.b)); err != nil || same != c.same {
			t.Errorf("%s and %s: %t, %v", c.a, c.b, same, err)
		}
		if got := SameInput(json.RawMessage(c.a), json.RawMessage(c.b)); got != c.same {
			t.Errorf("the inputs %s and %s: %t", c.a, c.b, got)
		}
	}
	if !SameInput(nil, json.RawMessage(`{}`)) || !SameInput(json.RawMessage(`null`), nil) ||
		SameInput(json.RawMessage(`{`), json.RawMessage(`{`)) {
		t.Error("an input that is left out, or none")
	}
}

// TestNamesThatNoToolHas: whatever a model wrote for a name is no fault of the batch, and is shown short and printable.
func TestNamesThatNoToolHas(t *testing.T) {
	for name, shown := range map[string]string{
		"": `""`, "read_file": "read_file", "a\x00b": `"a\x00b"`, "\x1b[2J": `"\x1b[2J"`, "a\ufffdb": `"a?b"`,
		"ä\n": `"ä\n"`,
		strings.Repeat("x", 200): `"` + strings.Repeat("x", 123) +
			`"...`, strings.Repeat("x", 128): strings.Repeat("x", 128), "a\xff": `"a"`,
	} {
		b := toolyard.Batch{Calls: []toolyard.Call{{Tool: name}}}
		b.Normalize("b")
		if err := b.Validate(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if got := ShownName(name); got != shown || toolyard.CheckName("", got) != nil {
			t.Errorf("%q is shown as %q, want %q", name, got, shown)
		}
	}
	if shown := ShownName(strings.Repeat("\x00ä", 1<<20)); toolyard.CheckName("", shown) != nil {
		t.Errorf("%q", shown)
	}
}
