package strictjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestArguments(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, tt := range []struct {
		name, text, want string
		cut              bool
	}{
		{name: "object", text: `{"a": 1}`, want: `{"a": 1}`},
		{name: "white space around", text: " {}\n", want: `{}`},
		{name: "empty", text: ``, want: `{}`},
		{name: "empty and cut", text: ``, cut: true, want: `""`},
		{name: "whole although the response was cut", text: `{"a":1}`, cut: true, want: `{"a":1}`},
		{name: "no object", text: `[1]`, want: `[1]`},
		{name: "encoded twice", text: `"{\"a\": 1}"`, want: `{"a": 1}`},
		{name: "a string", text: `"x"`, want: `"x"`},
		{name: "large number", text: `{"n":12345678901234567890.10}`, want: `{"n":12345678901234567890.10}`},
		{name: "broken", text: `{"a":`, want: `"{\"a\":"`},
		{name: "prose", text: `<b> & "x"`, want: `"\u003cb\u003e \u0026 \"x\""`},
		{name: "white space alone", text: ` `, want: `" "`},
		{name: "key twice", text: `{"a":1,"a":2}`, want: `"{\"a\":1,\"a\":2}"`},
		{name: "two values", text: `{}{}`, want: `"{}{}"`},
		{name: "deepest", text: deep(MaxInputDepth), want: deep(MaxInputDepth)},
		{name: "too deep", text: deep(MaxInputDepth + 1), want: `"` + deep(MaxInputDepth+1) + `"`},
		{name: "a million levels", text: strings.Repeat("[", 1_000_000), want: `"` + strings.Repeat("[", 1_000_000) +
			`"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			document := must.JSON(t, map[string]string{"arguments": tt.text})
			o, err := ReadObject("", document)
			must.OK(t, err)
			got, err := o.Arguments("arguments", !tt.cut)
			must.OK(t, err)
			if string(got) != tt.want {
				t.Errorf("got %.200s, want %.200s", got, tt.want)
			}
			if strings.HasPrefix(tt.want, `"`) && tt.text != "" && tt.name != "a string" {
				var text string
				if err := json.Unmarshal(got, &text); err != nil || text != tt.text {
					t.Errorf("the text did not survive: %.200q, %v", text, err)
				}
			}
		})
	}
}

// A lone surrogate has no Go string; the token itself is kept, so that not even that is lost.
func TestArgumentsKeepTheToken(t *testing.T) {
	o, err := ReadObject("", []byte(`{"arguments":"{\ud800"}`))
	must.OK(t, err)
	if got, err := o.Arguments("arguments", true); err != nil || string(got) != `"{\ud800"` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCut(t *testing.T) {
	for value, want := range map[string]string{`{"a":"<b>"}`: `{"a":"<b>",`, `{"a":{} }`: `{"a":{} ,`, `{}`: `{`,
		`"{\"a\":\"b\""`: `{"a":"b",`, `"{\"a\": "`: `{"a": `, `""`: ``, `null`: `nul,`} {
		var text string
		cut := Cut(json.RawMessage(value))
		if err := json.Unmarshal(cut, &text); err != nil || text != want {
			t.Errorf("%s: got %q, %v; want %q", value, text, err, want)
		}
		if got := unwrap(cut); string(got) != string(cut) {
			t.Errorf("%s: a later reading makes %s of it", value, got)
		}
	}
}
