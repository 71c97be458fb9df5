package answer

import (
	"errors"
	"reflect"
	"testing"

	"github.com/toolyard/toolyard"
)

func TestPairTexts(t *testing.T) {
	parts := []toolyard.Content{{Type: toolyard.ContentImage}}
	calls := []toolyard.Call{{ID: "a", Tool: "alias"}, {ID: "b", Tool: "t"}, {ID: "c", Tool: "t"}, {ID: "d", Tool: "t"},
		{ID: "e", Tool: "t"}, {ID: "g", Tool: "t"}, {ID: "h", Tool: "t"}, {ID: "f", Tool: "t"}}
	results := []toolyard.Result{
		{CallID: "a", Tool: "real_name", Output: "out", Error: "not read", Detail: "never read"},
		{CallID: "b", IsError: true, Code: toolyard.UnknownTool, Error: "no such tool", Echo: toolyard.Echo(`{"n":1}`)},
		{CallID: "c", IsError: true, Code: toolyard.Timeout},
		{CallID: "d", IsError: true},
		{CallID: "e", IsError: true, Code: toolyard.PostHookFailed, Error: "the tool itself succeeded", Output: "out",
			Content: parts},
		{CallID: "g", IsError: true, Code: toolyard.ExecutionFailed, Error: "exit status 1", Output: "1\n"},
		{CallID: "h", IsError: true, Code: toolyard.ExecutionFailed,
			Error: "exit status 1\n\n1\n2\n\n[added by a hook] mind it", Output: "1\n2\n"},
		{CallID: "f", Code: toolyard.ResultRedacted, Output: "pass=***", Content: parts},
	}
	for i := range results {
		results[i].Index = i
	}
	got, err := Pair(calls, results)
	if err != nil {
		t.Fatal(err)
	}
	want := []Answer{
		{CallID: "a", Tool: "alias", Text: "out"},
		{CallID: "b", Tool: "t", Text: "no such tool", IsError: true, Code: toolyard.UnknownTool,
			Echo: toolyard.Echo(`{"n":1}`)},
		{CallID: "c", Tool: "t", Text: "the call failed: timeout", IsError: true, Code: toolyard.Timeout},
		{CallID: "d", Tool: "t", Text: "the call failed", IsError: true},
		{CallID: "e", Tool: "t", Text: "the tool itself succeeded\n\nout", IsError: true,
			Code: toolyard.PostHookFailed},
		{CallID: "g", Tool: "t", Text: "exit status 1\n\n1", IsError: true, Code: toolyard.ExecutionFailed},
		{CallID: "h", Tool: "t", Text: "exit status 1\n\n1\n2\n\n[added by a hook] mind it", IsError: true,
			Code: toolyard.ExecutionFailed},
		{CallID: "f", Tool: "t", Text: "pass=***", Code: toolyard.ResultRedacted, Parts: parts},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestPairGuards(t *testing.T) {
	calls := []toolyard.Call{{ID: "a"}, {ID: "b"}}
	a, b := toolyard.Result{Index: 0, CallID: "a"}, toolyard.Result{Index: 1, CallID: "b"}
	for _, tt := range []struct {
		name    string
		results []toolyard.Result
		want    string
	}{
		{"missing", []toolyard.Result{a}, `rendering results: 2 calls have 1 results; every call needs exactly one`},
		{"extra", []toolyard.Result{a, b, b},
			`rendering results: 2 calls have 3 results; every call needs exactly one`},
		{"misordered", []toolyard.Result{b, a},
			`rendering results: at 0 want the result of call "a", got that of call "b" with index 1`},
		{"repeated", []toolyard.Result{a, a},
			`rendering results: at 1 want the result of call "b", got that of call "a" with index 0`},
		{"wrong index", []toolyard.Result{a, {Index: 2, CallID: "b"}},
			`rendering results: at 1 want the result of call "b", got that of call "b" with index 2`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Pair(calls, tt.results)
			if err == nil || err.Error() != tt.want {
				t.Errorf("\n got %v\nwant %s", err, tt.want)
			}
			if _, ok := errors.AsType[*toolyard.InputError](err); ok {
				t.Error("a bug of ours is called bad input")
			}
		})
	}
}
