package strictjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestMend: what is wrong with one input stays in it, and everything else is refused as it was.
func TestMend(t *testing.T) {
	deep := strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)
	deepest := strings.Repeat("[", MaxInputDepth) + strings.Repeat("]", MaxInputDepth)
	for name, c := range map[string]struct{ text, want, err string }{
		"nothing to mend": {` {"calls":[{"input":{"a":1}}]} `, ` {"calls":[{"input":{"a":1}}]} `, ""},
		"a key twice":     {`{"input":{"a":1,"a":[{}]},"b":2}`, `{"input":"{\"a\":1,\"a\":[{}]}","b":2}`, ""},
		"a key twice, deep": {`{"parts":[{"functionCall":{"args":{"x":{"a":1,"a":2}}}},1]}`,
			`{"parts":[{"functionCall":{"args":"{\"x\":{\"a\":1,\"a\":2}}"}},1]}`, ""},
		"the deepest": {`{"a":{"b":[{"input":` + deepest + `}]}}`, `{"a":{"b":[{"input":` + deepest +
			`}]}}`, ""},
		"deeper":           {`{"input":[` + deepest + `]}`, `{"input":"[` + deepest + `]"}`, ""},
		"a million levels": {`{"arguments": ` + deep + ` }`, `{"arguments": "` + deep + `" }`, ""},
		"two inputs": {`[{"input":{"a":1,"a":2}},{"input":{"b":1,"b":2}}]`,
			`[{"input":"{\"a\":1,\"a\":2}"},{"input":"{\"b\":1,\"b\":2}"}]`, ""},
		"an input in an input":  {`{"input":{"input":{"a":1,"a":2}}}`, `{"input":"{\"input\":{\"a\":1,\"a\":2}}"}`, ""},
		"a string":              {`{"input":"{\"a\":1,\"a\":2}"}`, `{"input":"{\"a\":1,\"a\":2}"}`, ""},
		"two inputs in a call":  {`{"input":{},"input":{}}`, "", "input: appears twice"},
		"a key twice elsewhere": {`{"options":{"a":1,"a":2}}`, "", "options.a: appears twice"},
		"an item":               {`["input",{"a":1,"a":2}]`, "", "[1].a: appears twice"},
		"behind an input": {`{"input":{"a":1,"a":2},"b":1,"b":2}`, "",
			"b: appears twice in its object, the second time at line 1, column 30"},
		"the root":              {`{"a":1,"a":2}`, "", "a: appears twice"},
		"too deep elsewhere":    {`{"x":` + deep + `}`, "", "nests deeper than 512 levels"},
		"no JSON in an input":   {`{"input":{"a":1,}}`, "", "want a key in double quotes, got '}'"},
		"an input never ends":   {`{"input":[[{"a":`, "", "it ends too early"},
		"an input ends wrongly": {`{"input":[1}}`, "", "want ',' or ']', got '}'"},
		"no colon":              {`{"input":{"a"}}`, "", "want ':', got '}'"},
		"no input":              {`{"input":}`, "", "want a value, got '}'"},
		"two documents":         {`{"input":{"a":1,"a":2}}{}`, "", "goes on after its JSON value"},
	} {
		got, err := Mend([]byte(c.text))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %.300s, %v", name, got, err)
		}
	}
	if _, err := Mend(make([]byte, toolyard.MaxBatchBytes+1)); err == nil {
		t.Error("a text that is too long is taken")
	}
	if got := MendInput(json.RawMessage(` {"a":1,"a":2}`)); string(got) != `"{\"a\":1,\"a\":2}"` {
		t.Errorf("one input: %s", got)
	}
}

// FuzzMend: what is mended passes the check, what passes the check is not changed, and what is no JSON is refused by
// both.
func FuzzMend(f *testing.F) {
	for _, text := range []string{`{"input":{"a":1,"a":2}}`, `{"args":[[1]],"b":{}}`, `[{"arguments":"x"}]`,
		`{"input":[}`, `{"input":{"a" 1}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		mended, err := Mend(data)
		if was := Check(data); was == nil && (err != nil || string(mended) != string(data)) {
			t.Fatalf("%q is good, and becomes %q, %v", data, mended, err)
		}
		if err != nil {
			return
		}
		if !json.Valid(data) && len(data) < 10_000 {
			t.Fatalf("%q is no JSON", data)
		}
		if again, err := Mend(mended); err != nil || string(again) != string(mended) {
			t.Fatalf("%q becomes %q, and that %q, %v", data, mended, again, err)
		}
	})
}

func BenchmarkMend(b *testing.B) {
	data := []byte("[" +
		strings.Repeat(`{"id":"toolu_01","tool":"read_file","input":{"file_path":"README.md","limit":10}},`, 10_000) +
		"0]")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Mend(data); err != nil {
			b.Fatal(err)
		}
	}
}
