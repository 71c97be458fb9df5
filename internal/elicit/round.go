package elicit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/toolyard/toolyard"
)

// Asked is one of the things that a tool asks at its end, with its name among those of its server.
type Asked struct {
	Key  string        `json:"key"`
	Form toolyard.Form `json:"form"`
}

// MaxAtOnce is how many things a tool asks at once: a person answers one after the other, and each is a round.
const MaxAtOnce = MaxRounds - 1

// together begins the keys of questions that were asked at once.
const together = "together:"

// round is the state of a question that was asked at once with others. Nothing else has to be kept of them.
type round struct {
	// State is what the server wants back.
	State string `json:"state,omitempty"`
	// Given are the answers so far, by the keys of their questions.
	Given map[string]json.RawMessage `json:"given,omitempty"`
	// Left are the questions that are not asked yet.
	Left []Asked `json:"left,omitempty"`
}

// Ask makes a question of what a tool asks at its end: of the first, where it asks several things at once. The error
// says why none of them is asked.
func Ask(all []Asked, state string) (*Question, error) {
	switch {
	case len(all) == 0:
		return nil, errors.New("it asks nothing")
	case len(all) > MaxAtOnce:
		return nil, fmt.Errorf("it asks %d things at once; at most %d are asked", len(all), MaxAtOnce)
	case len(all) == 1 && !ours(all[0].Key):
		return New(all[0].Form, all[0].Key, state)
	}
	for _, one := range all { // before a person has answered any
		if _, err := New(one.Form, together+one.Key, ""); err != nil {
			return nil, err
		}
	}
	q, err := round{State: state, Left: all}.next()
	if err == nil && len(q.State) > MaxStateBytes { // the rest of the room is that of the answers
		return nil, fmt.Errorf("its state and what else it asks are %d bytes; at most %d are kept", len(q.State),
			MaxStateBytes)
	}
	return q, err
}

// ours reports whether a key begins as one of our own does. A server may name its question so.
func ours(key string) bool {
	return strings.HasPrefix(key, together) || strings.HasPrefix(key, replayed)
}

// next makes a question of the first that is left.
func (r round) next() (*Question, error) {
	one := r.Left[0]
	r.Left = r.Left[1:]
	state, err := kept(r)
	if err != nil {
		return nil, fmt.Errorf("what else it asks cannot be kept: %w", err)
	}
	return newQuestion(one.Form, together+one.Key, state)
}

// Answers are what a tool gets that comes again with the answer to its last question: the answers to all that it asked
// at once, by their keys, and its state. Until a person has answered all of it, next is the question that is left.
func (a *Answer) Answers() (answers map[string]json.RawMessage, state string, next *Question, err error) {
	key, ok := strings.CutPrefix(a.Key, together)
	if !ok {
		return map[string]json.RawMessage{a.Key: a.Content}, a.State, nil, nil
	}
	var r round
	if err := json.Unmarshal([]byte(a.State), &r); err != nil {
		return nil, "", nil, fmt.Errorf("what else it asked cannot be read: %w", err)
	}
	given := maps.Clone(r.Given)
	if given == nil {
		given = map[string]json.RawMessage{}
	}
	given[key] = a.Content
	if r.Given = given; len(r.Left) == 0 {
		return r.Given, r.State, nil, nil
	}
	if next, err = r.next(); err != nil {
		return nil, "", nil, fmt.Errorf("the next question cannot be asked: %w", err)
	}
	return nil, "", next, nil
}
