package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/toolyard/toolyard/client"
)

// answer is what a person is going to say about a call that waits.
type answer struct {
	silent bool
	after  time.Duration // since the person has seen it
	denies bool
	// edits says that the person changes the input, remembers that the session keeps the approval.
	edits, remembers bool
}

func (w *world) answer(person int, id string) answer {
	d := draws{w.random(fmt.Sprint("answer ", person, " to ", id))}
	a := answer{silent: d.one(5), after: d.between(0, 300*time.Millisecond), denies: d.one(4)}
	if person > 0 {
		a.silent = !d.one(3)
	}
	if d.one(2) {
		a.after = d.between(0, 4*time.Second)
	}
	switch d.IntN(5) {
	case 0:
		a.edits = true
	case 1, 2:
		a.remembers = true
	}
	if w.sc.focus == crowds || w.sc.approvalWait == longWait { // nobody is left to run out of time
		a.silent = a.silent && person > 0
	}
	return a
}

// person is somebody who looks at what waits for people now and then, and decides about some of it.
func person(n int, http bool) func(*party) error {
	return func(p *party) error {
		c, end, err := p.client(http)
		if err != nil {
			return err
		}
		defer end()
		p.up()
		due := map[string]time.Time{} // when this person decides about a call
		for {
			if p.sleep(400*time.Millisecond+time.Duration(p.rand64()%uint64(time.Second))) != nil {
				return nil
			}
			list, err := c.Approvals(p.ctx, "")
			if err != nil {
				continue // it is asked again soon
			}
			for _, call := range list {
				about := call.ID
				if call.Form != nil { // a call may ask more than once
					about += " " + call.InputSHA256
				}
				says := p.w.answer(n, about)
				if _, ok := due[about]; !ok {
					due[about] = time.Now().Add(says.after)
				}
				if !says.silent && !time.Now().Before(due[about]) {
					err := p.decide(c, &call, says)
					p.w.note(p.name, "decides about %s/%s/%d: %v", call.Agent, call.Batch, call.Index, err)
				}
			}
		}
	}
}

// decide tells of a decision. What was not stored is said again when the call is seen again.
func (p *party) decide(c *client.Client, call *client.Approval, says answer) error {
	d := client.Decision{By: p.name}
	if says.denies {
		d.Verdict, d.Reason = client.Deny, "not today"
		return c.Decide(p.ctx, call.ID, d)
	}
	d.Verdict, d.InputSHA256 = client.Allow, call.InputSHA256
	switch {
	case call.Form != nil && says.edits:
		d.Input = raw(inquiry{Word: p.name, To: call.Form.Message})
	case call.Form != nil: // as it is filled in
	case says.edits:
		var in input
		if err := json.Unmarshal(call.Input, &in); err != nil {
			return err
		}
		in.Edited = p.name
		d.Input = raw(in)
	case says.remembers:
		d.ForSession = call.Remember != ""
	}
	return c.Decide(p.ctx, call.ID, d)
}
