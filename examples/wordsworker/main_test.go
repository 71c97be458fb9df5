package main

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool/tooltest"
)

func TestCountWords(t *testing.T) {
	count, err := countWords()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		input, output string
		code          toolyard.Code
	}{
		{`{"text": "to be or not to be"}`, "6 words", toolyard.OK},
		{`{"text": ""}`, "0 words", toolyard.OK},
		{`{"words": "to be"}`, "", toolyard.SchemaValidationFailed}, // what a model gets wrong never reaches the tool
	} {
		if r := tooltest.Call(t, count, c.input, tooltest.Options{}); r.Output != c.output || r.Code != c.code {
			t.Errorf("%s: %q %q", c.input, r.Code, r.Text())
		}
	}
}
