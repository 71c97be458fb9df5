package elicit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

func ask(message, form, key, state string) (*Question, error) {
	return New(toolyard.Form{Server: "s", Message: message, Schema: json.RawMessage(form)}, key, state)
}

// TestQuestionsThatAreTaken: each with the answer that its form fills in.
func TestQuestionsThatAreTaken(t *testing.T) {
	for form, filled := range map[string]string{
		`{"type":"object"}`: `{}`,
		`{"type":"object","properties":{"a":{"type":"string","default":"x"},"b":{"type":"integer","default":1}}}`: `{"a":"x","b":1}`,
		`{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"type":"array","items":{"type":"string"}}}}`:  `{}`,
		`{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}}}}`:     `{}`,
	} {
		q, err := ask("What?", form, "k", "")
		if err != nil || string(q.Filled.Canonical()) != filled {
			t.Errorf("%s is filled in as %+v (%v), want %s", form, q, err, filled)
		}
	}
}

// TestQuestionsThatAreNotTaken: past a limit, and with a form that the protocol does not have.
func TestQuestionsThatAreNotTaken(t *testing.T) {
	const form = `{"type":"object"}`
	many := make([]string, MaxFields+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"f%d":{"type":"string"}`, i)
	}
	for name, q := range map[string][4]string{
		"no words":         {"", form, "k", ""},
		"too many words":   {strings.Repeat("x", MaxMessageBytes+1), form, "k", ""},
		"words, not UTF-8": {"\xff", form, "k", ""},
		"no key":           {"What?", form, "", ""},
		"a long key":       {"What?", form, strings.Repeat("x", MaxKeyBytes+1), ""},
		"a long state":     {"What?", form, "k", strings.Repeat("x", MaxStateBytes+1)},
		"no form":          {"What?", "", "k", ""},
		"null":             {"What?", "null", "k", ""},
		"no object":        {"What?", `{"type":"string"}`, "k", ""},
		"a long form":      {"What?", `{"type":"object","title":"` + strings.Repeat("x", MaxSchemaBytes) + `"}`, "k", ""},
		"many fields":      {"What?", `{"type":"object","properties":{` + strings.Join(many, ",") + `}}`, "k", ""},
		"a form in a form": {"What?", `{"type":"object","properties":{"a":{"type":"object"}}}`, "k", ""},
		"a list of lists":  {"What?", `{"type":"object","properties":{"a":{"type":"array","items":{"type":"array"}}}}`, "k", ""},
		"a foreign schema": {"What?", `{"type":"object","$ref":"https://example.com"}`, "k", ""},
	} {
		if got, err := ask(q[0], q[1], q[2], q[3]); err == nil {
			t.Errorf("%s: %+v is asked", name, got)
		}
	}
}

// TestWhoSaysNothingAsksNothing: a tool that runs where nobody has said what it may ask.
func TestWhoSaysNothingAsksNothing(t *testing.T) {
	if s := From(context.Background()); s.Mute == "" || s.Answer != nil {
		t.Errorf("got %+v", s)
	}
	if s := From(With(context.Background(), Session{Answer: &Answer{Key: "k"}})); s.Mute != "" || s.Answer.Key != "k" {
		t.Errorf("got %+v", s)
	}
}

// FuzzNew: a question that is taken has an object as its answer, within the limits, and reading it fails or gives the
// same.
func FuzzNew(f *testing.F) {
	f.Add("What?", `{"type":"object","properties":{"a":{"type":"string","default":"x"}}}`, "k", "s")
	f.Add("", `{"type":"object","properties":{"a":{"type":"array","items":{}}}}`, "", "")
	f.Fuzz(func(t *testing.T, message, form, key, state string) {
		q, err := ask(message, form, key, state)
		if err != nil {
			return
		}
		if len(q.Message) > MaxMessageBytes || len(q.Schema) > MaxSchemaBytes || len(q.State) > MaxStateBytes {
			t.Errorf("%+v is past a limit", q)
		}
		if _, ok := q.Filled.Doc().(map[string]any); !ok {
			t.Errorf("%s is filled in as %s", form, q.Filled.Canonical())
		}
		if _, err := Fits(q.Schema, q.Filled.Canonical()); err != nil && len(err.Error()) == 0 {
			t.Errorf("%s is filled in with what does not fit, for no reason", form)
		}
	})
}
