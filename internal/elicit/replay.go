package elicit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
)

// replayed begins the keys of questions that a tool asked in the middle of its run.
const replayed = "replay:"

// said is an answer to a question that a tool asked in the middle of its run.
type said struct {
	Question string          `json:"question"`
	Answer   json.RawMessage `json:"answer"`
}

// Replay has the answers for a tool that asks in the middle of its run, and not at its end. Such a tool runs again from
// its beginning, and gets them in the order in which it asked: each for the very same question. A question that is
// another one is asked, and the answers that were for later ones are void.
//
// What was answered before the last question is in the question's state, so nothing else has to be kept of the run. A
// Replay is not safe for concurrent use.
type Replay struct {
	left, given []said
}

// IsReplay reports whether an answer is to a question of [Replay.Ask].
func IsReplay(a *Answer) bool { return a != nil && strings.HasPrefix(a.Key, replayed) }

// NewReplay makes a replay with the answer to a call's last question. One to a question of another kind, or nil, is no
// answer, and the tool is asked again from its first question on.
func NewReplay(a *Answer) *Replay {
	if !IsReplay(a) {
		return &Replay{}
	}
	var before []said
	if a.State != "" {
		if err := json.Unmarshal([]byte(a.State), &before); err != nil || len(before) >= MaxRounds {
			return &Replay{}
		}
	}
	return &Replay{left: append(before, said{strings.TrimPrefix(a.Key, replayed), a.Content})}
}

// Next returns the answer to a question that the tool asks now, if it was answered when the tool ran before.
func (r *Replay) Next(form toolyard.Form) (answer json.RawMessage, ok bool) {
	if len(r.left) == 0 || r.left[0].Question != questionID(form) {
		return nil, false
	}
	r.given, r.left = append(r.given, r.left[0]), r.left[1:]
	return r.given[len(r.given)-1].Answer, true
}

// Ask makes a question of what the tool asks now, with the answers that it has got in this run. The error says why it
// is not asked.
func (r *Replay) Ask(form toolyard.Form) (*Question, error) {
	state := ""
	if len(r.given) > 0 {
		var err error
		if state, err = kept(r.given); err != nil {
			return nil, fmt.Errorf("the answers so far cannot be kept: %w", err)
		}
		if len(state) > MaxKeptBytes {
			return nil, fmt.Errorf("the answers so far are %d bytes; at most %d are kept", len(state), MaxKeptBytes)
		}
	}
	return newQuestion(form, replayed+questionID(form), state)
}

// questionID tells a question apart from all others: its server, words and form.
func questionID(form toolyard.Form) string {
	h := sha256.New()
	for _, part := range []string{form.Server, form.Message, string(form.Schema)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // it never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
