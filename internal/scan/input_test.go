package scan

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/redact"
)

const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"

// TestInputs: a refusal names call and field, and not the secret.
func TestInputs(t *testing.T) {
	secrets := redact.New([]redact.Secret{{Name: "PIN", Value: "1234567890"}}).Redact
	for _, tt := range []struct{ name, input, want string }{
		{"none", `{"a":["b",{"c":"d"}],"e":1,"f":null}`, ""},
		{"a field", `{"a":{"b":["x","t ` + token + `"]}}`, "calls[7].input.a.b[1]"},
		{"the first of two", `{"b":"` + token + `","a":"` + token + `"}`, "calls[7].input.a"},
		{"a name", `{"a":{"` + token + `":1}}`, "calls[7].input.a"},
		{"a number", `{"pin":1234567890}`, "calls[7].input.pin"},
		{"no object", `"` + token + `"`, "calls[7].input"},
		{"broken arguments", `"{\"a\": \"` + token + `"`, "calls[7].input"},
		{"a long path", `{"` + strings.Repeat("x", 300) + `":"` + token + `"}`, "calls[7].input"},
		{"twice the same field", `{"a":"` + token + `","a":1}`, "calls[7].input"},
	} {
		err := Inputs(6, []toolyard.Call{{ID: "fine", Input: json.RawMessage(`{}`)}, {ID: "c8",
			Input: json.RawMessage(tt.input)}}, secrets)
		in, ok := errors.AsType[*toolyard.InputError](err)
		if ok != (tt.want != "") {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if ok && (in.Field != tt.want || !strings.HasPrefix(in.Problem, `call "c8" has a secret`) ||
			strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "1234567890")) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	err := Inputs(0, []toolyard.Call{{ID: token, Input: json.RawMessage(`"` + token + `"`)}}, secrets)
	if err == nil || strings.Contains(err.Error(), token) {
		t.Errorf("an id that is a secret: %v", err)
	}
}

// FuzzInputs: whatever an input is, a secret in it is found, and no refusal has it.
func FuzzInputs(f *testing.F) {
	f.Add(`{"a":"b"}`, "a")
	f.Add(`{"a":[1,{"b":null}]}`, "x y")
	f.Add(`"broken {`, "")
	secrets := redact.New(nil).Redact
	f.Fuzz(func(t *testing.T, raw, around string) {
		calls := []toolyard.Call{{ID: "c", Input: json.RawMessage(raw)}}
		if err := Inputs(0, calls, secrets); err != nil && secrets(err.Error()) != err.Error() {
			t.Fatalf("%q: the refusal has a secret: %v", raw, err)
		}
		inside, err := json.Marshal(map[string]any{"k": []string{around + " " + token + " "}})
		if err != nil {
			t.Fatal(err)
		}
		calls[0].Input = inside
		if err := Inputs(0, calls, secrets); err == nil || strings.Contains(err.Error(), token) {
			t.Fatalf("%s: %v", inside, err)
		}
	})
}
