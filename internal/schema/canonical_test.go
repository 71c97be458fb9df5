package schema

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzCanonical: canonical bytes are those that encoding/json writes.
func FuzzCanonical(f *testing.F) {
	for _, text := range []string{
		`{"b":1,"a":[true,null,"x",{"é":"\u2028<&>\u007f\u0000\"\\/"}],"A":1.50e3}`, `"\ud800"`, `[]`, `{}`, `null`,
		`{"":{"":[[],{}]}}`, ` 1 `, `-0`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text)
		if err != nil {
			return
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v.Doc()); err != nil {
			t.Fatal(err)
		}
		if got := string(v.Canonical()) + "\n"; got != want.String() {
			t.Errorf("%q was written as %q, by encoding/json as %q", text, got, want.String())
		}
	})
}
