package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// inquire has some calls ask people something while they run, once or twice.
func (d draws) inquire(sc *scenario) {
	if !sc.people || d.one(3) {
		return
	}
	sc.inquiries = true
	for _, a := range sc.agents {
		for _, b := range a.batches {
			for i := range b.batch.Calls {
				c := &b.batch.Calls[i]
				if k, ok := kindOf(c.Tool); !ok || k.starts || k.file || d.IntN(5) > 1 {
					continue
				}
				*c = asking(c.ID, 1+d.IntN(2), d.between(ms, 900*ms))
			}
		}
	}
}

// asking is a call that asks so often, and works for so long before each question and behind the last answer.
func asking(id string, questions int, work time.Duration) toolyard.Call {
	return toolyard.Call{ID: id, Tool: "inquire",
		Input: raw(input{WorkMS: work.Milliseconds(), Commits: 1, Questions: questions})}
}

// inquiry is an answer to what a tool asks. To are the words of the question that was answered; empty: it is as the
// form fills it in.
type inquiry struct {
	Word string `json:"word"`
	To   string `json:"to,omitempty"`
}

// inquiryForm is the form of all questions.
var inquiryForm = json.RawMessage(`{"type":"object","required":["word"],"properties":{
	"word":{"type":"string","default":"as it is"},"to":{"type":"string"}}}`)

// asks is the question that a call asks next, as its error; nil: it has asked all.
func (p *party) asks(ctx context.Context, in input) error {
	n := 0
	if a := elicit.From(ctx).Answer; a != nil {
		var err error
		if n, err = strconv.Atoi(a.State); err != nil {
			return fmt.Errorf("the state is not one that was given: %w", err)
		}
	}
	if n >= in.Questions {
		return nil
	}
	n++
	q, err := elicit.New(toolyard.Form{Server: "sim", Message: question(n), Schema: inquiryForm}, fmt.Sprint("q", n),
		strconv.Itoa(n))
	if err != nil {
		return err
	}
	return q
}

// question are the words of a call's question.
func question(n int) string { return fmt.Sprintf("What is word %d?", n) }

// checkInquiries: a tool goes on with the answer that the log has to its last question, and each answer is to the
// question that its person has seen. No question is asked twice, and no run is made twice.
func (w *world) checkInquiries(r *report, h *verdict.History) {
	type run struct {
		call verdict.Call
		key  string // of the question whose answer it goes on with; empty: it is the first
	}
	runs := map[run]int{}
	for n, l := range h.Ledger {
		k, _ := kindOf(l.Tool)
		if !k.inquires || l.Kind != ledger.Begin {
			continue
		}
		c := verdict.Call{BatchKey: l.Key(), Index: l.Index}
		this := run{call: c}
		answers := w.answersTo(h, c)
		with := w.book.answered[n]
		if with == nil {
			for key, d := range answers {
				if d.at.UnixNano() <= l.Wall {
					w.fail("inquiry", "%s begins without an answer, and its question %s was answered", c, key)
				}
			}
		} else {
			this.key = with.Key
			w.checkAnswer(c, l, with, answers)
			r.saw(playsAnswered, true)
		}
		if runs[this]++; runs[this] > 1 {
			w.fail("inquiry", "%s begins %d times with the answer to %q", c, runs[this], this.key)
		}
	}
	for _, sub := range h.Submissions {
		for i := range sub.Batch.Calls {
			asked := map[string]bool{}
			for _, e := range logOf(h.Batches[sub.Key()], i).asked {
				q, _ := e.Body.(events.Waiting)
				if q.Form == nil {
					continue
				}
				if asked[q.Form.Key] {
					w.fail("asked once", "a person is asked question %s of %s/%d again", q.Form.Key, sub.Key(), i)
				}
				asked[q.Form.Key] = true
			}
			r.saw(playsInquiries, len(asked) > 1)
		}
	}
}

// answerTo is the answer to a question in the log.
type answerTo struct {
	hash, message string
	at            time.Time
}

// answersTo are the answers to a call's questions, by the keys of those.
func (w *world) answersTo(h *verdict.History, c verdict.Call) map[string]answerTo {
	out := map[string]answerTo{}
	var form *events.Form
	for _, e := range h.Batches[c.BatchKey].Log {
		if calls := e.Calls(); len(calls) != 1 || calls[0] != c.Index {
			continue
		}
		switch body := e.Body.(type) {
		case events.Waiting:
			form = body.Form
		case events.Decided:
			if form != nil && body.Decision == events.Approve {
				out[form.Key] = answerTo{body.InputSHA256, form.Message, e.Time}
			}
		}
	}
	return out
}

// checkAnswer checks the answer with which a call goes on.
func (w *world) checkAnswer(c verdict.Call, l ledger.Line, with *elicit.Answer, answers map[string]answerTo) {
	has, ok := answers[with.Key]
	if !ok || has.at.UnixNano() > l.Wall {
		w.fail("inquiry", "%s begins with an answer to %s that is not in the log", c, with.Key)
		return
	}
	v, err := schema.Parse(with.Content)
	if err != nil || v.Hash() != has.hash {
		w.fail("inquiry", "%s begins with the answer %s to %s, and the log has %s (%v)", c, with.Content, with.Key,
			has.hash, err)
	}
	var said inquiry
	if err := json.Unmarshal(with.Content, &said); err != nil || said.To != "" && said.To != has.message {
		w.fail("inquiry", "%s begins with %s as the answer to %q (%v)", c, with.Content, has.message, err)
	}
}

// errNothingAsked is why a person has nothing to answer.
var errNothingAsked = errors.New("the call asks nothing")

// answersCall has a person answer what a call of the first agent's batch asks.
func answersCall(call int) func(*party, *client.Client) error {
	return func(p *party, c *client.Client) error {
		list, err := c.Approvals(p.ctx, "")
		if err != nil {
			return err
		}
		for _, a := range list {
			if a.Agent == "a1" && a.Batch == "b1" && a.Index == call && a.Form != nil {
				return c.Decide(p.ctx, a.ID, client.Decision{Verdict: client.Allow, By: p.name,
					InputSHA256: a.InputSHA256, Input: raw(inquiry{Word: p.name, To: a.Form.Message})})
			}
		}
		return errNothingAsked
	}
}

// anotherSays has one more person, of that name, do something beside the others.
func anotherSays(name string, do func(*party, *client.Client) error) func(*stage) {
	return func(s *stage) {
		s.w.after(ms, func() {
			s.w.start(&machine{name: name, run: func(p *party) error {
				c, end, err := p.client(false)
				if err != nil {
					return err
				}
				defer end()
				p.up()
				err = p.insist(func() error { return do(p, c) })
				p.w.note(p.name, "has done what it was to do: %v", err)
				return nil
			}})
		})
	}
}
