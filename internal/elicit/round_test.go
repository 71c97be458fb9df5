package elicit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestSeveralQuestionsAtOnce: a person answers one after the other, and the tool gets all answers and its state at the
// end.
func TestSeveralQuestionsAtOnce(t *testing.T) {
	for n := 1; n <= MaxAtOnce; n++ {
		var all []Asked
		want := map[string]string{}
		for i := range n {
			key := fmt.Sprintf("k%d", i)
			all, want[key] = append(all, Asked{key, formOf(key + "?")}), fmt.Sprintf(`{"n":%d}`, i)
		}
		q, err := Ask(all, "state")
		must.OK(t, err)
		for i := range n {
			if q.Message != all[i].Form.Message {
				t.Fatalf("question %d of %d is %q", i, n, q.Message)
			}
			answers, state, next, err := answered(q, fmt.Sprintf(`{"n":%d}`, i)).Answers()
			if err != nil || (next == nil) != (i == n-1) {
				t.Fatalf("behind answer %d of %d: %+v, %v", i, n, next, err)
			}
			if q = next; q != nil {
				continue
			}
			got := map[string]string{}
			for key, a := range answers {
				got[key] = string(a)
			}
			if d := cmp.Diff(want, got); d != "" || state != "state" {
				t.Errorf("%d at once: state %q, answers (-want +got)\n%s", n, state, d)
			}
		}
	}
}

// TestWhatIsNotAskedAtOnce: a person is asked nothing of it, and what a server calls its question means nothing.
func TestWhatIsNotAskedAtOnce(t *testing.T) {
	bad := formOf("")
	long := formOf("long?")
	long.Schema = json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", MaxSchemaBytes/2) + `"}`)
	for name, c := range map[string]struct {
		all  []Asked
		says string
	}{
		"nothing":                  {nil, "nothing"},
		"too many":                 {make([]Asked, MaxAtOnce+1), "at most 7"},
		"one that cannot be asked": {[]Asked{{"a", formOf("a?")}, {"b", bad}}, "its words"},
		"forms that are too long":  {[]Asked{{"a", long}, {"b", long}, {"c", long}, {"d", long}}, "its state"},
	} {
		if q, err := Ask(c.all, ""); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
	}
	q, err := Ask([]Asked{{together + "k", formOf("a?")}}, "s")
	must.OK(t, err)
	answers, state, next, err := answered(q, `{}`).Answers()
	if err != nil || state != "s" || next != nil || string(answers[together+"k"]) != "{}" {
		t.Errorf("%q, %q, %+v, %v", answers, state, next, err)
	}
	if _, _, _, err := (&Answer{Key: together + "k", State: "{"}).Answers(); err == nil {
		t.Error("a state that cannot be read is no error")
	}
}

// TestNamesThatMeanSomethingHere: what a server calls its question is a name to it alone, also where keys of our own
// begin so: the answer reaches it.
func TestNamesThatMeanSomethingHere(t *testing.T) {
	for _, name := range []string{together + "k", replayed, replayed + "k", together + replayed + "k"} {
		q, err := Ask([]Asked{{name, formOf("a?")}}, "s")
		must.OK(t, err)
		a := answered(q, `{"n":1}`)
		if IsReplay(a) {
			t.Errorf("%q: the answer is taken for that of a tool that runs again from its beginning", name)
		}
		answers, state, next, err := a.Answers()
		if err != nil || state != "s" || next != nil || len(answers) != 1 || string(answers[name]) != `{"n":1}` {
			t.Errorf("%q: answers %s, state %q, next %+v, %v", name, answers, state, next, err)
		}
	}
}
