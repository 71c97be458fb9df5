package repair

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/quick"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

func quoted(t testing.TB, text string) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestInput mends what has one reading, and leaves alone what has several or none.
func TestInput(t *testing.T) {
	for _, c := range []struct{ text, want, what string }{
		{`{"a": 1}`, `{"a":1}`, "as a string"},
		{"```json\n{\"a\": 1}\n```", `{"a":1}`, "code fence"},
		{"```\n{\"a\": 1}\n```\n", `{"a":1}`, "code fence"},
		{`{"a": [1, 2,], "b": {},}`, `{"a":[1,2],"b":{}}`, "a comma"},
		{`{'a': 'x "y" \'z\'', "b": ['c']}`, `{"a":"x \"y\" 'z'","b":["c"]}`, "single quotes"},
		{`{a: 1, $b_2: 'c'}`, `{"a":1,"$b_2":"c"}`, "no quotes"},
		{`{"a": True, "b": [False, None]}`, `{"a":true,"b":[false,null]}`, "Python"},
		{"{\"a\": \"x\ny\tz\"}", `{"a":"x\ny\tz"}`, "line breaks"},
		{`{"a": {"b": ["c"`, `{"a":{"b":["c"]}}`, "missing at the end"},
		{`{"a": true`, `{"a":true}`, "missing at the end"},
		{`{"a": []`, `{"a":[]}`, "missing at the end"},
		{`{"a": "\ud83d\ude00\u00e9"}`, `{"a":"😀é"}`, "as a string"},
		{`{"a": -1.5e3}`, `{"a":-1.5e3}`, "as a string"},
		{`{"path": "<a&b>"}`, `{"path":"<a&b>"}`, "as a string"},

		{`{"command": "rm -rf /tmp/x`, "", ""}, // who knows how it goes on
		{`{"a": 12`, "", ""},
		{`{"a": tru`, "", ""},
		{`{"a": "x",`, "", ""},
		{`{"a":`, "", ""},
		{`{"a"`, "", ""},
		{`{`, "", ""},
		{`{"a": ["b",`, "", ""},
		{`{'a': 'it's'}`, "", ""},
		{`{"a": "b" "c"}`, "", ""},
		{`{"a": b}`, "", ""},
		{`{"a": 1 "b": 2}`, "", ""},
		{`{"a": 1, "a": 2}`, "", ""},
		{`{"a": 1,, "b": 2}`, "", ""},
		{`{,}`, "", ""},
		{`{"a": 01}`, "", ""},
		{`{"a": NaN}`, "", ""},
		{`{"a": 1}}`, "", ""},
		{`{"a": 1} and {"b": 2}`, "", ""},
		{`Here it is: {"a": 1}`, "", ""},
		{`{"a": "\x41"}`, "", ""},
		{`{"a": "\ud800"}`, "", ""},
		{`{'a': 'x\udc00'}`, "", ""},
		{`[1]`, "", ""},
		{`true`, "", ""},
		{``, "", ""},
		{"```json\n{\"a\": 1}", "", ""},
		{"``` {\"a\": 1}\n```", "", ""},
		{`{"a": ` + strings.Repeat("[", 2000), "", ""},
		{`{"a": "` + strings.Repeat("x", MaxBytes) + `"}`, "", ""},
	} {
		mended, what, ok := Input(quoted(t, c.text))
		if string(mended) != c.want || ok != (c.want != "") || !strings.Contains(what, c.what) {
			t.Errorf("%.60q: %q (%s), %t; want %q (%s)", c.text, mended, what, ok, c.want, c.what)
		}
	}
	if mended, _, ok := Input(json.RawMessage(`"{\"a\": \"x\ud800\"}"`)); ok {
		t.Errorf("half a character became %q", mended)
	}
	for _, input := range []string{`{"a": 1}`, `1`, `null`, `[]`, `{`, ``} {
		if _, _, ok := Input(json.RawMessage(input)); ok {
			t.Errorf("%q, which is no string, is mended", input)
		}
	}
}

// TestWhatIsValidStays: the text of a valid object becomes that object, whatever is in it.
func TestWhatIsValidStays(t *testing.T) {
	same := func(m map[string][]string) bool {
		text, err := json.Marshal(m)
		if err != nil || len(text) > MaxBytes/2 {
			return true
		}
		mended, _, ok := Input(quoted(t, string(text)))
		var back map[string][]string
		if !ok || json.Unmarshal(mended, &back) != nil {
			return false
		}
		again, err := json.Marshal(back)
		return err == nil && string(again) == string(text)
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
}

// FuzzInput: what comes out is a valid object, and mending its text changes nothing more.
func FuzzInput(f *testing.F) {
	for _, text := range []string{`{'a': [1, None,], b: "c`, "```\n{\"a\": {\"b\": \"\\u0041\"\n```", `{"a": '\'"'}`, `{a: -0.0e1}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		mended, what, ok := Input(quoted(t, text))
		if !ok {
			return
		}
		if what == "" || mended[0] != '{' || !strictjson.Valid(mended, strictjson.MaxInputDepth) {
			t.Fatalf("%q became %q (%s)", text, mended, what)
		}
		again, _, ok := Input(quoted(t, string(mended)))
		if len(mended) < MaxBytes/8 && (!ok || string(again) != string(mended)) {
			t.Fatalf("%q became %q, and that %q", text, mended, again)
		}
	})
}
