package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// checkDocument hands a document to [Decode]. Nothing panics; every error is an InputError that can be shown on a
// terminal; and what decodes
//   - has JSON inputs,
//   - is the same batch when written in native form and read again,
//   - is read alike by the provider's own SDK,
//   - re-renders in every format, each call answered in order.
func checkDocument(t *testing.T, data []byte, force provider.Format) (decoded bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the document, as %q: %q", force, data)
		}
	}()
	batch, format, err := provider.Decode(data, force)
	if err != nil {
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok {
			t.Fatalf("%T is no InputError", err)
		}
		if text := err.Error(); !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n\r\x00") {
			t.Fatalf("a message that a terminal could trip over: %q", text)
		}
		return false
	}
	if len(batch.Calls) == 0 {
		t.Fatal("no calls and no error")
	}
	sameInSDK(t, format, data, batch.Calls)
	batch.Normalize("b")
	if batch.Validate() != nil {
		return true
	}
	sameInNative(t, batch)
	for _, format := range provider.Formats {
		rendered, err := provider.Render(format, batch.Calls, resultsOf(batch.Calls), nil)
		if err != nil || !json.Valid(rendered) {
			t.Fatalf("%s: %s, %v", format, rendered, err)
		}
		if format == provider.Native {
			continue
		}
		answers, err := sdkAnswers(format, rendered)
		if err != nil || len(answers) != len(batch.Calls) {
			t.Fatalf("%s: the SDK reads %s as %+v, %v", format, rendered, answers, err)
		}
		for i, a := range answers {
			if made := format == provider.Gemini && strings.HasPrefix(batch.Calls[i].ID,
				"toolyard_call_"); a.ID != batch.Calls[i].ID && !made {
				t.Fatalf("%s: answer %d has id %q, its call %q", format, i, a.ID, batch.Calls[i].ID)
			}
		}
	}
	return true
}

func FuzzDecode(f *testing.F) {
	for _, e := range examples {
		f.Add(readExample(f, e.file), "")
	}
	for i, text := range []string{nativeDoc, anthropicDoc, openaiDoc, chatDoc, geminiDoc} {
		f.Add([]byte(text), "")
		f.Add([]byte(text), string(provider.Formats[i]))
		f.Add([]byte(strings.ReplaceAll(text, "{}", `{"a":1,"a":2}`)), "")
		f.Add([]byte(strings.ReplaceAll(text, `"{}"`, `"{"`)), "")
		f.Add([]byte(strings.ReplaceAll(text, `"{}"`, `""`)), "")
	}
	f.Add([]byte(`{"calls":[{"tool":"t","input":"{\"a\":1}"}]}`), "")
	f.Add([]byte(`{"choices":[{"message":{"tool_calls":[{"id":"1","type":"custom","custom":{"name":"t","input":"x"}}]},"finish_reason":"length"}]}`), "")
	f.Add([]byte(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"t"}}]},"finishReason":"MAX_TOKENS"}]}`),
		"")
	f.Add([]byte(`{"type":"message","content":[{"type":"tool_use","id":"1","name":"t","input":{"a":1}}],"stop_reason":"max_tokens"}`), "")
	f.Fuzz(func(t *testing.T, data []byte, force string) { checkDocument(t, data, provider.Format(force)) })
}

// TestDecodeMutated hands in the examples with a few of their nodes dropped, repeated, renamed or replaced by what a
// careless client writes there: a byte-wise fuzzer seldom gets past the JSON. The seed is fixed; each failure names
// its document.
func TestDecodeMutated(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, e := range examples {
		decoded := 0
		const rounds = 300
		for range rounds {
			var tree any
			must.OK(t, json.Unmarshal(readExample(t, e.file), &tree))
			for range 1 + random.IntN(3) {
				tree = mutate(random, tree)
			}
			data := must.JSON(t, tree)
			force := e.format
			if random.IntN(2) == 0 {
				force = ""
			}
			if checkDocument(t, data, force) {
				decoded++
			}
		}
		if decoded == 0 || decoded == rounds {
			t.Errorf("%s: %d of %d mutations decoded, which tests only one side", e.file, decoded, rounds)
		}
	}
}

// mutate changes one node, preferring deep ones.
func mutate(random *rand.Rand, node any) any {
	switch v := node.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if len(keys) == 0 {
			break
		}
		key := keys[random.IntN(len(keys))]
		switch random.IntN(12) {
		case 0:
			delete(v, key)
		case 1:
			v[strings.ToUpper(key)] = v[key]
		case 2:
			v[strings.ToUpper(key[:1])+key[1:]] = v[key]
			delete(v, key)
		default:
			v[key] = mutate(random, v[key])
		}
		return v
	case []any:
		if len(v) == 0 {
			break
		}
		i := random.IntN(len(v))
		switch random.IntN(12) {
		case 0:
			return slices.Delete(v, i, i+1)
		case 1:
			return append(v, v[i])
		default:
			v[i] = mutate(random, v[i])
		}
		return v
	}
	return []any{nil, true, 7, 1e300, "", "x", "{}", `{"a":`, `"{\"a\":1}"`, "\x1b[2J\u202e", "assistant", "custom",
		"length", "incomplete",
		[]any{}, map[string]any{}, []any{nil}, map[string]any{"type": "tool_use"}}[random.IntN(18)]
}

func sameInNative(t *testing.T, batch toolyard.Batch) {
	text := must.JSON(t, batch)
	if len(text) > toolyard.MaxBatchBytes {
		return // escaping made it longer
	}
	again, _, err := provider.Decode(text, "")
	if err != nil {
		t.Fatalf("in native form: %v\n%s", err, text)
	}
	textAgain := must.JSON(t, again)
	if !bytes.Equal(text, textAgain) {
		t.Fatalf("read again:\n%s\n%s", text, textAgain)
	}
}

var capitalKey = regexp.MustCompile(`"[A-Z]\w*"\s*:`)

// sameInSDK compares with the provider's SDK, where that makes sense of the document: it knows fewer liberties in
// fields that we never look at, and nothing of what we leave out on purpose.
func sameInSDK(t *testing.T, format provider.Format, data []byte, calls []toolyard.Call) {
	if format == provider.Native || bytes.Contains(data, []byte("_output")) || bytes.Contains(data, []byte("custom")) ||
		bytes.Contains(data, []byte("\\u")) {
		return
	}
	if format == provider.Gemini && capitalKey.Match(data) {
		return // genai's structs take "FunctionCall" for "functionCall"; the API does not, and nor do we
	}
	theirs, err := sdkCalls(format, bytes.TrimSpace(data))
	if err != nil {
		return
	}
	if len(theirs) != len(calls) {
		t.Fatalf("%s: the SDK reads %+v, we %s", format, theirs, calls)
	}
	for i, c := range calls {
		if theirs[i].Tool != c.Tool || theirs[i].ID != c.ID && theirs[i].ID != "" {
			t.Fatalf("%s: call %d: the SDK reads %+v, we %s", format, i, theirs[i], c)
		}
		var ours, other map[string]any
		if json.Unmarshal(c.Input, &ours) == nil && json.Unmarshal([]byte(theirs[i].Input), &other) == nil &&
			len(ours) > 0 && !reflect.DeepEqual(ours, other) {
			t.Fatalf("%s: call %d: the SDK reads the input %s, we %s", format, i, theirs[i].Input, c.Input)
		}
	}
}
