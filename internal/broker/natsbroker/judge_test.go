package natsbroker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/broker"
)

// TestJudgeRequestsFitMessages: an input that is too long for a message does not prevent the judgement of other calls.
func TestJudgeRequestsFitMessages(t *testing.T) {
	long := json.RawMessage(`"` + strings.Repeat("x", broker.MaxInlineBytes) + `"`)
	half := long[:broker.MaxInlineBytes/2]
	var calls []broker.JudgeCall
	for i, input := range []json.RawMessage{half, half, long, half} {
		calls = append(calls, broker.JudgeCall{Index: i, Tool: "t", Input: input})
	}
	for range 3 * maxJudgeCalls {
		calls = append(calls, broker.JudgeCall{Index: len(calls), Input: json.RawMessage(`{}`)})
	}
	next := 0
	for n, request := range judgeRequests(calls) {
		size := 0
		for _, c := range request {
			if c.Index != next {
				t.Fatalf("request %d has call %d; want %d", n, c.Index, next)
			}
			next, size = next+1, size+len(c.Input)
		}
		if len(request) > maxJudgeCalls || size > broker.MaxInlineBytes && len(request) > 1 {
			t.Errorf("request %d has %d calls of %d bytes", n, len(request), size)
		}
	}
	if next != len(calls) {
		t.Errorf("%d of %d calls are asked about", next, len(calls))
	}
}
