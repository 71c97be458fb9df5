package elicit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func formOf(message string) toolyard.Form {
	return toolyard.Form{Server: "s", Message: message, Schema: json.RawMessage(`{"type":"object"}`)}
}

// answered is the answer to a question, as the next run gets it.
func answered(q *Question, content string) *Answer {
	return &Answer{Key: q.Key, State: q.State, Content: json.RawMessage(content)}
}

// run asks questions in their order, as a tool does, until one has no answer. It returns the answers, and the question.
func run(t *testing.T, a *Answer, messages ...string) (answers []string, q *Question) {
	t.Helper()
	r := NewReplay(a)
	for _, message := range messages {
		answer, ok := r.Next(formOf(message))
		if !ok {
			q, err := r.Ask(formOf(message))
			must.OK(t, err)
			return answers, q
		}
		answers = append(answers, string(answer))
	}
	return answers, nil
}

// TestReplay: each run gets the answers of the runs before, in their order, and asks the next question. The same
// question at another place is another question.
func TestReplay(t *testing.T) {
	questions := []string{"one?", "two?", "one?"}
	var last *Answer
	for n := range len(questions) + 1 {
		answers, q := run(t, last, questions...)
		if len(answers) != n || (q == nil) != (n == len(questions)) {
			t.Fatalf("run %d got the answers %q and asks %+v", n, answers, q)
		}
		for i, a := range answers {
			if want := fmt.Sprintf(`{"n":%d}`, i); a != want {
				t.Errorf("run %d got %s as answer %d; want %s", n, a, i, want)
			}
		}
		if q != nil {
			last = answered(q, fmt.Sprintf(`{"n":%d}`, n))
		}
	}
}

// TestReplayOfAnotherRun: a tool that asks something else is asked about that, and the answers that were for later
// questions are void.
func TestReplayOfAnotherRun(t *testing.T) {
	_, q := run(t, nil, "one?", "two?")
	_, q = run(t, answered(q, `{"n":1}`), "one?", "two?")
	last := answered(q, `{"n":2}`)
	answers, q := run(t, last, "one?", "else?", "two?")
	if len(answers) != 1 || q.Message != "else?" {
		t.Fatalf("got the answers %q and %+v", answers, q)
	}
	if answers, q = run(t, answered(q, `{}`), "one?", "else?", "two?"); len(answers) != 2 || q.Message != "two?" {
		t.Errorf("got the answers %q and %+v", answers, q)
	}
	other := formOf("one?")
	other.Schema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	if _, ok := NewReplay(last).Next(other); ok {
		t.Error("an answer was taken for another form")
	}
	other = formOf("one?")
	other.Server = "another"
	if _, ok := NewReplay(last).Next(other); ok {
		t.Error("an answer was taken for another server's question")
	}
}

// TestAnswersThatAreNotReplayed: those of other questions, and what is no list of answers.
func TestAnswersThatAreNotReplayed(t *testing.T) {
	_, q := run(t, nil, "one?")
	many := must.JSON(t, make([]said, MaxRounds))
	for name, a := range map[string]*Answer{
		"none": nil, "of a question at a run's end": {Key: "who", State: "x"},
		"a broken state": {Key: q.Key, State: "x"}, "too many": {Key: q.Key, State: string(many)},
	} {
		if answer, ok := NewReplay(a).Next(formOf("one?")); ok {
			t.Errorf("%s: the answer %s", name, answer)
		}
	}
	r := NewReplay(answered(q, `"`+strings.Repeat("x", MaxKeptBytes)+`"`))
	if _, ok := r.Next(formOf("one?")); !ok {
		t.Error("a long answer is none")
	}
	if q, err := r.Ask(formOf("two?")); err == nil || !strings.Contains(err.Error(), "the answers so far are") {
		t.Errorf("answers past the limit are kept: %+v %v", q, err)
	}
}

// TestNobodyAnswersInVain: a person may answer each question of a call with an answer as long as may be.
func TestNobodyAnswersInVain(t *testing.T) {
	long := `{"<":"` + strings.Repeat(`<`, MaxAnswerBytes-len(`{"<":""}`)) + `"}`
	var questions []string
	var all []Asked
	for n := range MaxAtOnce {
		questions = append(questions, fmt.Sprint("question ", n))
		key := strings.Repeat("\x01", MaxKeyBytes-len(together)-1) + fmt.Sprint(n)
		all = append(all, Asked{key, formOf(questions[n])})
	}
	var last *Answer
	for range questions { // it fails the test where it cannot ask
		_, q := run(t, last, questions...)
		last = answered(q, long)
	}
	if answers, q := run(t, last, questions...); len(answers) != len(questions) || q != nil {
		t.Errorf("in the middle of a run: %d answers, and %+v", len(answers), q)
	}
	q, err := Ask(all, strings.Repeat("s", MaxStateBytes-len(all)*2*MaxKeyBytes*4))
	for range questions[1:] {
		must.OK(t, err)
		_, _, q, err = answered(q, long).Answers()
	}
	must.OK(t, err)
	answers, _, q, err := answered(q, long).Answers()
	if err != nil || q != nil || len(answers) != len(all) {
		t.Errorf("at once: %d answers, %+v, %v", len(answers), q, err)
	}
}

// FuzzReplay: whatever was stored, a run ends with at most as many answers as one call asks questions, and its next
// question leads to the same answers.
func FuzzReplay(f *testing.F) {
	_, q := run(&testing.T{}, nil, "one?")
	f.Add(q.Key, "", "{}")
	f.Add(q.Key, `[{"question":"`+strings.TrimPrefix(q.Key, replayed)+`","answer":{}}]`, "null")
	f.Fuzz(func(t *testing.T, key, state, content string) {
		if !json.Valid([]byte(content)) {
			return
		}
		r := NewReplay(&Answer{Key: key, State: state, Content: json.RawMessage(content)})
		n := 0
		for ; ; n++ {
			if _, ok := r.Next(formOf("one?")); !ok {
				break
			}
		}
		if n > MaxRounds {
			t.Fatalf("%d answers", n)
		}
		next, err := r.Ask(formOf("one?"))
		if err != nil {
			return
		}
		again := NewReplay(answered(next, "{}"))
		for i := range n {
			if _, ok := again.Next(formOf("one?")); !ok && n < MaxRounds {
				t.Fatalf("answer %d of %d is lost", i, n)
			}
		}
	})
}
