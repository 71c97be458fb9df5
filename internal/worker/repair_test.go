package worker

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestARepairThatIsLateOrTooLong: a repair that does not return is given up, and what is too long is not sent. The
// other calls of the request have their answers.
func TestARepairThatIsLateOrTooLong(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		stuck := make(chan struct{})
		defer close(stuck)
		long := json.RawMessage(`"` + strings.Repeat("x", broker.MaxMendedBytes) + `"`)
		y.repair = func(_ context.Context, m Malformed) (Repaired, error) {
			switch m.Problem {
			case "stuck":
				<-stuck
			case "long":
				return Repaired{Input: long}, nil
			}
			return Repaired{Input: json.RawMessage(`{"a": 1}`), Note: "a is 1"}, nil
		}
		_, e, ok := y.w.tools.Lookup("read")
		if !ok {
			y.Fatal("there is no tool")
		}
		ask := func(index int, tool, declaration, problem string) broker.JudgeCall {
			return broker.JudgeCall{Index: index, Tool: tool, Declaration: declaration, Repair: problem,
				Input: json.RawMessage(`{}`)}
		}
		answers, err := y.b.Repair(y.Context(), toolyard.DefaultPool, []broker.JudgeCall{
			ask(0, "read", e.Hash, "good"), ask(1, "read", e.Hash, "stuck"), ask(2, "read", e.Hash, "long"),
			ask(3, "read", "another", "good"), ask(4, "nobody's", e.Hash, "good")})
		must.OK(y.T, err)
		got := map[int]string{}
		for _, a := range answers {
			got[a.Index] = string(a.Repaired) + a.Note + a.Failed
		}
		want := map[int]string{0: `{"a":1}a is 1`, 1: "the repair gave no answer within 10s",
			2: "the repaired inputs have more than 262144 bytes together"}
		if !maps.Equal(got, want) {
			y.Errorf("the answers are %v, want %v", got, want)
		}
	})
}

// TestARepairTellsNoSecretOfAReload: what a repair says is redacted as results are, by what was loaded last. A redactor
// that breaks leaves nothing of it, and the worker goes on.
func TestARepairTellsNoSecretOfAReload(t *testing.T) {
	for what, c := range map[string]struct {
		redact func(string) string
		want   string
	}{
		"a new secret": {func(text string) string { return strings.ReplaceAll(text, "hunter2", "[secret]") },
			"the repair failed: the service has refused [secret]"},
		"a broken redactor": {func(string) string { panic("broken") }, "[withheld: the redactor broke]"},
	} {
		t.Run(what, func(t *testing.T) {
			inYard(t, 1, func(y *yard) {
				y.repair = func(context.Context, Malformed) (Repaired, error) {
					return Repaired{}, errors.New("the service has refused hunter2")
				}
				cfg := y.w.cfg
				cfg.Redact = c.redact
				must.OK(y.T, y.w.Reload(cfg))
				_, e, ok := y.w.tools.Lookup("read")
				if !ok {
					y.Fatal("there is no tool")
				}
				answers, err := y.b.Repair(y.Context(), toolyard.DefaultPool, []broker.JudgeCall{{Tool: "read",
					Declaration: e.Hash, Repair: "problem", Input: json.RawMessage(`{}`)}})
				if err != nil || len(answers) != 1 || answers[0].Failed != c.want {
					y.Errorf("the answers are %+v, %v; want %q", answers, err, c.want)
				}
			})
		})
	}
}
