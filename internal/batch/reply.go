package batch

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// MaxReplyBytes is how many bytes of output and errors one reply carries, unless a single result has more.
const MaxReplyBytes = 256 << 10

// reply sends the results that are there, in emission order, and were not sent yet. The last reply says that the
// batch is complete.
func (m *Machine) reply() []Effect {
	s := &m.state
	if s.Completed {
		m.done = true
		return append(m.releaseTickets(len(s.Plan.Groups)-1), Complete{})
	}
	if m.appends.reply {
		return nil
	}
	ready := s.Replied
	for ready < len(s.Calls) && !s.Open(ready) {
		ready++
	}
	r := events.Reply{Results: make([]toolyard.Result, 0, ready-s.Replied)}
	size := 0
	for i := s.Replied; i < ready; i++ {
		size += ResultBytes(s.Calls[i].Result)
		if size > MaxReplyBytes && len(r.Results) > 0 {
			break
		}
		r.Results = append(r.Results, *s.Calls[i].Result)
	}
	r.Completed = s.Closed && s.Replied+len(r.Results) == len(s.Calls)
	var out []Effect
	if r.Completed && m.cfg.Hooks {
		if !m.notice.asked {
			m.notice.asked = true
			out = append(out, Notify{})
		}
		if answer := m.notice.answer; answer != nil {
			r.Notice = answer.Notice
		} else {
			r.Completed = false
		}
	}
	if len(r.Results) == 0 && !r.Completed {
		return out
	}
	m.appends.reply = true
	if r.Completed {
		if change, ok := s.Changes(); ok {
			out = append(out, Remember{change})
		}
	}
	return append(out, Append{Chain: ChainReply, Index: s.Replied, Expected: s.ReplySeq, Body: r})
}

// ResultBytes returns what a result adds to a reply, or to an event, beside what every result has.
func ResultBytes(r *toolyard.Result) int {
	size := len(r.Output) + len(r.Error) + len(r.Structured) + len(r.Echo)
	for i := range r.Content {
		p := &r.Content[i]
		size += len(p.Text) + len(p.Data)*4/3 + len(p.Schema) + len(p.Description) // data is encoded in base64
	}
	return size
}
