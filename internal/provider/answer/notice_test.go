package answer

import (
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestANoticeIsInTheLastAnswerThatAModelReads: a program reads no words, a search has no place for them.
func TestANoticeIsInTheLastAnswerThatAModelReads(t *testing.T) {
	program, search := json.RawMessage(`{"caller":{"type":"program"}}`), json.RawMessage(`{"type":"tool_search_call"}`)
	both := &toolyard.Notice{Context: "the build is red", Stop: true, Reason: "enough"}
	const words = "[added by a hook] the build is red\n\n[a hook asks you to stop] enough"
	for name, c := range map[string]struct {
		n       *toolyard.Notice
		answers []Answer
		want    []string
	}{
		"the last":  {both, []Answer{{Text: "a"}, {Text: "b\n"}}, []string{"a", "b\n\n" + words}},
		"a program": {both, []Answer{{Text: "a"}, {Text: "1", Echo: program}}, []string{"a\n\n" + words, "1"}},
		"a search": {both, []Answer{{Text: "a", Echo: json.RawMessage(`{"caller":{"type":"direct"}}`)},
			{Text: "1", Echo: search}}, []string{"a\n\n" + words, "1"}},
		"nobody":     {both, []Answer{{Text: "1", Echo: program}}, []string{"1"}},
		"no output":  {both, []Answer{{}}, []string{words}},
		"no words":   {&toolyard.Notice{By: "x"}, []Answer{{Text: "a"}}, []string{"a"}},
		"no notice":  {nil, []Answer{{Text: "a"}}, []string{"a"}},
		"a bare end": {&toolyard.Notice{Stop: true}, []Answer{{Text: "a"}}, []string{"a\n\n[a hook asks you to stop]"}},
	} {
		AddNotice(c.answers, c.n)
		for i, a := range c.answers {
			if a.Text != c.want[i] {
				t.Errorf("%s: answer %d is %q, want %q", name, i, a.Text, c.want[i])
			}
		}
	}
	parts := []toolyard.Content{{Type: toolyard.ContentImage}}
	answers := []Answer{{Text: "a", Parts: parts}}
	if AddNotice(answers, both); len(parts) != 1 || len(answers[0].Parts) != 2 || answers[0].Parts[1].Text != words {
		t.Errorf("beside an image: %+v", answers[0].Parts)
	}
}
