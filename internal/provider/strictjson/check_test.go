package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
)

func TestCheckAccepts(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `null`, `true`, `false`, `0`, `-0`, `-1.5e+10`, `1E5`, `"a"`, " \t\r\n{} \n",
		`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, // the same key in other objects
		`{"a":1,"A":2}`,                       // other letter case is another key
		`"\u0000\"\\\/\b\f\n\r\t\ud83d\ude00"`,
		`"` + "\u007f\u2028\U0001f600" + `"`,
		strings.Repeat("[", toolyard.MaxJSONDepth) + strings.Repeat("]", toolyard.MaxJSONDepth),
	} {
		if err := Check([]byte(text)); err != nil {
			t.Errorf("Check(%.80s): %v", text, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	manyKeys := func(last string) string {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, `"k%d":0,`, i)
		}
		return "{" + b.String() + `"` + last + `":0}`
	}
	long := strings.Repeat("long", 100)
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", `the input is empty; hand in one JSON document`},
		{"white space only", " \n\t\r\n", `the input is empty; hand in one JSON document`},
		{"byte order mark", "\ufeff{}", `the input begins with a byte order mark; save it as UTF-8 without one`},
		{"not UTF-8", `{"a":"` + "\xff" + `"}`, `the input is not valid UTF-8 at byte 6 (0xff); JSON is UTF-8`},
		{"UTF-16", "\xff\xfe{\x00}\x00", `the input is not valid UTF-8 at byte 0 (0xff); JSON is UTF-8`},
		{"cut UTF-8 at the end", `"` + "\xe2\x82", `the input is not valid UTF-8 at byte 1 (0xe2); JSON is UTF-8`},
		{"UTF-8 surrogate", `"` + "\xed\xa0\x80" + `"`, `the input is not valid UTF-8 at byte 1 (0xed); JSON is UTF-8`},

		{"prose", "hello", `the input is not JSON at line 1, column 1: want a value, got 'h', near "hello"`},
		{"event stream", "event: message_start\ndata: {}",
			`the input is not JSON at line 1, column 1: want a value, got 'e', near "event: message_start\ndat"...`},
		{"terminal escape", "\x1b[31m{}",
			`the input is not JSON at line 1, column 1: want a value, got '\x1b', near "\x1b[31m{}"`},
		{"comment", "{\n  // no\n}",
			`the input is not JSON at line 2, column 3: want a key in double quotes or '}', got '/', near "{\n  // no\n}"`},
		{"trailing comma in object", `{"a":1,}`,
			`the input is not JSON at line 1, column 8: want a key in double quotes, got '}', near "{\"a\":1,}"`},
		{"trailing comma in array", `[1,]`,
			`the input is not JSON at line 1, column 4: want a value, got ']', near "[1,]"`},
		{"single quotes", `{'a':1}`,
			`the input is not JSON at line 1, column 2: want a key in double quotes or '}', got '\'', near "{'a':1}"`},
		{"no colon", `{"a" 1}`, `the input is not JSON at line 1, column 6: want ':', got '1', near "{\"a\" 1}"`},
		{"no comma in object", `{"a":1 "b":2}`,
			`the input is not JSON at line 1, column 8: want ',' or '}', got '"', near "{\"a\":1 \"b\":2}"`},
		{"wrong bracket", `[1}`, `the input is not JSON at line 1, column 3: want ',' or ']', got '}', near "[1}"`},
		{"open array", `[`,
			`the input is not JSON at line 1, column 2: it ends too early, want a value or ']', near "["`},
		{"column in characters", "[\n\"äöü\",\n \"ß\" x]",
			`the input is not JSON at line 3, column 6: want ',' or ']', got 'x', near "[\n\"äöü\",\n \"ß\" x]"`},
		{"far in", `{"` + long + `": [1, 2, oops, 3, 4, 5, 6, 7, 8, 9, 10]}`,
			`the input is not JSON at line 1, column 413: want a value, got 'o', near ..."nglonglonglong\": [1, 2, oops, 3, 4, 5, 6, 7, 8, "...`},

		{"cut object", `{"a":`,
			`the input is not JSON at line 1, column 6: it ends too early, want a value, near "{\"a\":"`},
		{"cut key", `{`,
			`the input is not JSON at line 1, column 2: it ends too early, want a key in double quotes or '}', near "{"`},
		{"cut after key", `{"a"`,
			`the input is not JSON at line 1, column 5: it ends too early, want ':', near "{\"a\""`},
		{"cut after value", `{"a":1`,
			`the input is not JSON at line 1, column 7: it ends too early, want ',' or '}', near "{\"a\":1"`},
		{"cut string", `"abc`,
			`the input is not JSON at line 1, column 5: it ends too early, want the end of a string, near "\"abc"`},
		{"cut escape", `"abc\`,
			`the input is not JSON at line 1, column 6: it ends too early, want the end of a string, near "\"abc\\"`},
		{"cut unicode escape", `"\u12`,
			`the input is not JSON at line 1, column 6: it ends too early, want the end of a string, near "\"\\u12"`},
		{"cut word", `tru`, `the input is not JSON at line 1, column 4: it ends too early, want true, near "tru"`},
		{"cut number", `-`, `the input is not JSON at line 1, column 2: it ends too early, want a digit, near "-"`},

		{"NaN", `NaN`, `the input is not JSON at line 1, column 1: want a value, got 'N', near "NaN"`},
		{"nil", `nil`,
			`the input is not JSON at line 1, column 1: want a value; only true, false and null are words in JSON, near "nil"`},
		{"leading zero", `01`, `the input is not JSON at line 1, column 2: a number has a leading zero, near "01"`},
		{"no digit after point", `1.x`, `the input is not JSON at line 1, column 3: want a digit, got 'x', near "1.x"`},
		{"plus", `+1`, `the input is not JSON at line 1, column 1: want a value, got '+', near "+1"`},
		{"bare newline in a string", "\"a\nb\"",
			`the input is not JSON at line 1, column 3: the control character U+000A stands bare in a string; write it escaped, near "\"a\nb\""`},
		{"NUL in a string", "\"a\x00b\"",
			`the input is not JSON at line 1, column 3: the control character U+0000 stands bare in a string; write it escaped, near "\"a\x00b\""`},
		{"unknown escape", `"C:\dir"`,
			`the input is not JSON at line 1, column 4: a string has an escape that JSON does not know; a backslash itself is written \\, near "\"C:\\dir\""`},
		{"bad unicode escape", `"\u12g4"`,
			`the input is not JSON at line 1, column 2: \u needs four hexadecimal digits, near "\"\\u12g4\""`},

		{"two values", "{}\n{}\n",
			`the input goes on after its JSON value at line 2, column 1, near "{}\n{}\n"; hand in one JSON document`},
		{"rubbish after", "{}]",
			`the input goes on after its JSON value at line 1, column 3, near "{}]"; hand in one JSON document`},

		{"too deep", strings.Repeat("[", 513),
			`the input nests deeper than 512 levels of objects and arrays at line 1, column 513`},
		{"too deep in objects", strings.Repeat(`{"a":`, 600),
			`the input nests deeper than 512 levels of objects and arrays at line 1, column 2561`},

		{"duplicate key", `{"id":1,"id":2}`,
			`id: appears twice in its object, the second time at line 1, column 9; keep one`},
		{"duplicate key inside", "{\"calls\":[{},{},{\"input\":{\"a b\":[0,{\"p\":1,\n\"p\":1}]}}]}",
			`calls[2].input["a b"][1].p: appears twice in its object, the second time at line 2, column 1; keep one`},
		{"duplicate key, escaped", `{"tool":1,"\u0074ool":2}`,
			`tool: appears twice in its object, the second time at line 1, column 11; keep one`},
		{"duplicate empty key", `{"":1,"":2}`,
			`[""]: appears twice in its object, the second time at line 1, column 7; keep one`},
		{"duplicate lone surrogates, one to Go", `{"\ud800":1,"\udfff":2}`,
			"[\"\ufffd\"]: appears twice in its object, the second time at line 1, column 13; keep one"},
		{"duplicate key with controls", `{"\u001b[2J":1,"\u001b[2J":2}`,
			`["\x1b[2J"]: appears twice in its object, the second time at line 1, column 16; keep one`},
		{"duplicate key of many", manyKeys("k7"),
			`k7: appears twice in its object, the second time at line 1, column 792; keep one`},
		{"duplicate long key", `{"` + long + `":1,"` + long +
			`":2}`,
			`["longlonglonglonglonglonglonglonglonglonglonglong"...]: appears twice in its object, the second time at line 1, column 407; keep one`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check([]byte(tt.text))
			if err == nil {
				t.Fatal("accepted")
			}
			e, ok := errors.AsType[*toolyard.InputError](err)
			if !ok {
				t.Fatalf("%T is no InputError", err)
			}
			if e.TooLarge {
				t.Error("TooLarge is set")
			}
			if got := err.Error(); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestCheckSize(t *testing.T) {
	data := bytes.Repeat([]byte(" "), toolyard.MaxBatchBytes+1)
	data[0], data[1] = '[', ']'
	err := Check(data)
	e, ok := errors.AsType[*toolyard.InputError](err)
	if !ok || !e.TooLarge {
		t.Fatalf("want an InputError with TooLarge, got %#v", err)
	}
	if want := "the input is 16777217 bytes; at most 16777216 are allowed in a batch"; e.Error() != want {
		t.Errorf("\n got %s\nwant %s", e, want)
	}
	if err := Check(data[:toolyard.MaxBatchBytes]); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

// A text is refused at its 513th level, whatever follows: neither goroutine stack nor time grows with the nesting.
func TestDeepNestingIsCheap(t *testing.T) {
	for _, levels := range []int{10_000, 1_000_000, toolyard.MaxBatchBytes / 5} {
		for _, open := range []string{"[", `{"a":`} {
			start := time.Now()
			if err := Check([]byte(strings.Repeat(open, levels))); err == nil {
				t.Errorf("%d levels of %s accepted", levels, open)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%d levels of %s took %v", levels, open, took)
			}
		}
	}
}

// The largest documents of the shapes that cost most: many keys in one object, many objects, long strings of escapes.
func TestLargeDocumentsAreLinear(t *testing.T) {
	var keys strings.Builder
	keys.WriteString("{")
	for i := 0; keys.Len() < 8<<20; i++ {
		fmt.Fprintf(&keys, `"%x":0,`, i)
	}
	keys.WriteString(`"z":0}`)
	for name, text := range map[string]string{
		"keys":    keys.String(),
		"objects": "[" + strings.Repeat(`{"a":{"b":{}}},`, 500_000) + "0]",
		"escapes": `{"` + strings.Repeat(`\u0061`, 1_000_000) + `":"` + strings.Repeat(`\n`, 1_000_000) + `"}`,
	} {
		start := time.Now()
		if err := Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// FuzzCheck holds the scanner to encoding/json: the same texts are JSON, and a dumb twin over its tokens finds the
// same duplicates and the same depth.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{"a":[1,2.5e-3,"\u0061",null]}`, `{"a":1,"\u0061":2}`, `[[[[]]]]`, `{"a":{"a":{}}`,
		`"\ud800"`, `1 2`, "\ufeff1", `-01`, `{"x":tru}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := Check(data)
		if err != nil {
			if _, ok := errors.AsType[*toolyard.InputError](err); !ok {
				t.Fatalf("%T is no InputError", err)
			}
			if text := err.Error(); !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n\r\x00") {
				t.Fatalf("a message that a terminal could trip over: %q", text)
			}
		}
		if want := json.Valid(data) && utf8.Valid(data) && twin(data); (err == nil) != want {
			t.Fatalf("Check(%q) = %v; encoding/json says valid: %t", data, err, want)
		}
	})
}

// twin reports whether valid JSON has no duplicate keys and is not too deep.
func twin(data []byte) bool {
	type open struct {
		keys  map[string]bool // nil: an array
		value bool            // a value comes next
	}
	var stack []open
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		d.UseNumber()
		token, err := d.Token()
		if err == io.EOF {
			return true
		}
		if err != nil {
			return false
		}
		var top *open
		if len(stack) > 0 {
			top = &stack[len(stack)-1]
		}
		if text, ok := token.(string); ok && top != nil && top.keys != nil && !top.value {
			if top.keys[text] {
				return false
			}
			top.keys[text], top.value = true, true
			continue
		}
		if top != nil {
			top.value = false
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, open{keys: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, open{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		if len(stack) > toolyard.MaxJSONDepth {
			return false
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	data := []byte("[" +
		strings.Repeat(`{"id":"toolu_01","tool":"read_file","input":{"file_path":"README.md","limit":10}},`, 10_000) +
		"0]")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(data); err != nil {
			b.Fatal(err)
		}
	}
}
