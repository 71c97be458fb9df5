package schema

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// FuzzPlain: what is read as plain JSON is read in the same way by encoding/json, within the same limits.
func FuzzPlain(f *testing.F) {
	for _, text := range plainTexts {
		f.Add(text)
	}
	for _, text := range otherTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc, ok := parsePlain(json.RawMessage(text))
		if !ok {
			return
		}
		same, err := parseAny(json.RawMessage(text))
		if err != nil || !reflect.DeepEqual(doc, same) {
			t.Fatalf("%q is %#v, and encoding/json reads %#v, %v", text, doc, same, err)
		}
	})
}

var plainTexts = []string{
	`{}`, `[]`, ` { "b" : [ 1 , -2.5e+3 , true , false , null ] , "a" : { "c" : "x y~" } } `, `"x"`, `0`, `-0`, `1E5`, `0.10`,
	`{"a":1,"a":2}`, "\t[\n1\r]",
}

var otherTexts = []string{
	``, ` `, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[1 2]`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `tru`, `nul`, `"a`,
	`"\n"`, `"é"`, "\"\x01\"", `{} x`, `{}{}`, `{a:1}`, `'a'`, `1e999999`, "\"\x7f\"",
	strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2),
	`[` + strings.Repeat("1,", MaxValues) + `1]`,
	strings.Repeat("[", MaxDepth) + strings.Repeat("1,", MaxLevels/MaxDepth) + "1" + strings.Repeat("]", MaxDepth),
}

// TestPlain: which texts are plain.
func TestPlain(t *testing.T) {
	for _, text := range plainTexts {
		if _, ok := parsePlain(json.RawMessage(text)); !ok {
			t.Errorf("%s is not read as plain", text)
		}
	}
	for _, text := range otherTexts {
		if doc, ok := parsePlain(json.RawMessage(text)); ok {
			t.Errorf("%.40s is plain: %#v", text, doc)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	raw := json.RawMessage(`{"batch":"x18ab","index":3,"args":"` + strings.Repeat("a", 150) + `"}`)
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := parsePlain(raw); !ok {
				b.Fatal("it is not plain")
			}
		}
	})
	b.Run("any", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parseAny(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
