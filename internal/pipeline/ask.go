package pipeline

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/elicit"
)

// asking says what the tool may ask a person.
func (c *call) asking() elicit.Session {
	s := elicit.Session{Answer: c.job.Answer}
	switch {
	case !c.job.Interactive:
		s.Mute = "this session has nobody who could be asked"
	case c.job.Attempt >= elicit.MaxRounds:
		s.Mute = fmt.Sprintf("one call asks at most %d times", elicit.MaxRounds-1)
	}
	return s
}

// ask ends the run until a person has answered what the tool asks. A question that cannot be shown completely is not
// asked: the call fails.
func (c *call) ask(q *elicit.Question) finding {
	asked, err := c.askable(q)
	if err != nil {
		return failed(toolyard.ExecutionFailed, fmt.Sprintf("The MCP server %q wants to ask a person something before "+
			"it goes on, and cannot: %v. The tool did not finish.", q.Server, err), err.Error())
	}
	w := &WaitingError{
		Question: q, Reason: fmt.Sprintf("The MCP server %q asks: %s", q.Server, q.Message),
		Source: "an elicitation of the MCP server " + q.Server, Judgement: c.judgement,
		Observable: bytes.Clone(q.Filled.Canonical()), InputHash: asked, CallHash: c.value.Hash(),
	}
	for _, text := range c.contexts {
		w.Context = append(w.Context, c.withhold(text))
	}
	if c.changed {
		w.Changed = c.input()
	}
	return finding{wait: w, detail: w.Source}
}

// askable returns the hash of a question as it is shown. The error says why it cannot be asked.
func (c *call) askable(q *elicit.Question) (hash string, err error) {
	if mute := c.asking().Mute; mute != "" {
		return "", errors.New(mute)
	}
	for _, text := range []string{q.Server, q.Message, string(q.Schema), q.Key, q.State} {
		if c.withhold(text) != text {
			return "", errors.New("its question has a secret in it")
		}
	}
	if hash, err = display.AskedSHA256(&q.Form, q.Filled); err != nil {
		return "", err
	}
	_, err = display.Lines(q.Filled.Canonical(), display.Options{Form: &q.Form, SHA256: hash})
	return hash, err
}
