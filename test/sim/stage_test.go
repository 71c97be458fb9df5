package sim

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
)

// act is what goes wrong, or is done, at a chosen step. The acts of a history follow each other.
type act struct {
	// who begins the name of the party that makes the step, or is the role that an earlier act gave it. step says what
	// it does, and of which type the event is that it stores. Without a step the act follows the one before it.
	who  string
	step string
	as   string        // the role of that party from then on
	wait time.Duration // so long after the step
	do   func(s *stage)
}

// stage plays the acts of a history.
type stage struct {
	w      *world
	person chan func(*party, *client.Client)

	mu    sync.Mutex
	acts  []act
	roles map[string]string
	// who makes the step that is performed, what it is, and of which type the event is that it stores, or what else it
	// sends.
	who, what, kind string
	waiting         bool // for the time of the next act
}

func newStage(w *world, acts []act) *stage {
	return &stage{w: w, acts: acts, roles: map[string]string{}, person: make(chan func(*party, *client.Client), 8)}
}

// step is told of each step before it is performed. It must not call the server.
func (s *stage) step(who, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.who, s.what, s.kind = who, what, ""
}

// sends is told of the headers and the data that a party sends, while the step is performed.
func (s *stage) sends(hdr, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.acts) == 0 {
		return
	}
	if _, rest, ok := bytes.Cut(hdr, []byte(headerType)); ok {
		data, _, _ = bytes.Cut(rest, []byte("\r\n"))
	}
	s.kind = string(data)
}

// before plays the next act when its step was performed, while nothing runs.
func (s *stage) before() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(s.kind, ".batch.planned.v1") || strings.HasSuffix(s.kind, ".batch.adopted.v1") {
		s.roles[owner] = s.who
	}
	if s.who == "" || s.waiting || len(s.acts) == 0 || s.acts[0].step == "" {
		return
	}
	a := s.acts[0]
	if name, ok := s.roles[a.who]; ok && name != s.who || !ok && !strings.HasPrefix(s.who, a.who) {
		return
	}
	if !regexp.MustCompile(a.step).MatchString(s.what + " " + s.kind) {
		return
	}
	if a.as != "" {
		s.roles[a.as] = s.who
	}
	s.who = "" // a step is that of one act
	s.play()
}

// play plays the next act, and those behind it that have no step. The mutex is held.
func (s *stage) play() {
	a := s.acts[0]
	if a.wait > 0 {
		s.acts[0].wait, s.waiting = 0, true
		s.w.after(a.wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.waiting = false
			s.play()
		})
		return
	}
	if a.do != nil {
		a.do(s)
	}
	if s.acts = s.acts[1:]; len(s.acts) > 0 && s.acts[0].step == "" {
		s.play()
	}
}

// owner is the role of who has planned or adopted a batch last.
const owner = "owner"

// held is a kind of step that is kept from happening: who begins the name of the party that makes it, or is a role, and
// step is how it begins.
type held struct{ who, step string }

// keeps keeps steps from happening, until others are kept, or none.
func keeps(steps ...held) func(*stage) {
	return func(s *stage) {
		steps := slices.Clone(steps)
		for i := range steps {
			if name, ok := s.roles[steps[i].who]; ok {
				steps[i].who = name
			}
		}
		s.w.note("", "KEEP %v", steps)
		s.w.bus.server().Hold(func(st membroker.Step) bool {
			return slices.ContainsFunc(steps, func(h held) bool {
				return strings.HasPrefix(st.Party, h.who) && strings.HasPrefix(st.What, h.step)
			})
		})
	}
}

// party is who has a role, or a name. The mutex is held, as it is wherever an act is played.
func (s *stage) party(role string) *party {
	name, ok := s.roles[role]
	if !ok {
		name = role
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, p := range s.w.parties {
		if p.name == name {
			return p
		}
	}
	panic("nobody is " + role) // the history's own words
}

// hold holds back what is sent to parties, or what they send.
func hold(in, out bool, roles ...string) func(*stage) {
	return func(s *stage) {
		for _, r := range roles {
			s.w.note("", "HOLD %s: %t %t", r, in, out)
			p := s.party(r)
			p.wound()
			p.hold(in, out, false)
		}
	}
}

// stands has parties stand still: they neither hear nor say anything, and their tools do nothing.
func stands(roles ...string) func(*stage) {
	return func(s *stage) {
		for _, r := range roles {
			s.w.note("", "STAND %s", r)
			p := s.party(r)
			p.wound()
			p.hold(true, true, true)
		}
	}
}

// heal has what was held back arrive.
func heal(roles ...string) func(*stage) {
	return func(s *stage) {
		for _, r := range roles {
			s.w.note("", "HEAL %s", r)
			s.party(r).heal()
		}
	}
}

// cuts cuts parties off, though nothing may be lost by that.
func cuts(roles ...string) func(*stage) {
	return func(s *stage) {
		for _, r := range roles {
			s.w.note("", "CUT %s", r)
			s.party(r).sever(true)
		}
	}
}

// drop cuts the connections of a party, which loses what was on its way. It may connect again at once.
func drop(role string) func(*stage) {
	return func(s *stage) {
		s.w.note("", "DROP %s", role)
		p := s.party(role)
		p.wound()
		s.w.bus.server().Drop(p.name)
	}
}

// fills has a stream take nothing more, or take something again.
func fills(stream string, full bool) func(*stage) {
	return func(s *stage) {
		s.w.note("", "FULL %t", full)
		s.w.disturbed.Store(true)
		s.w.bus.server().Fill(stream, full)
	}
}

// deposes has reads of a stream answered by a leader that was deposed so many changes ago; 0 ends that.
func deposes(stream string, changes int) func(*stage) {
	return func(s *stage) {
		s.w.disturbed.Store(true)
		s.w.bus.server().Depose(stream, changes)
	}
}

// crashes has a party crash. Another one of its kind starts later.
func crashes(role string) func(*stage) {
	return func(s *stage) {
		p := s.party(role)
		m := s.w.machine(p.name)
		s.w.note(p.name, "CRASH")
		p.crash(true)
		s.w.restart(m, time.Second)
	}
}

// decides has a person decide about a call of the first agent's batch.
func decides(call int, verdict client.Verdict) func(*stage) {
	id := broker.ApprovalID(toolyard.BatchKey{Agent: "a1", ID: "b1"}, call)
	return says(func(p *party, c *client.Client) error {
		list, err := c.Approvals(p.ctx, "")
		i := slices.IndexFunc(list, func(a client.Approval) bool { return a.ID == id })
		if err != nil || i < 0 {
			return errors.Join(err, errors.New("the call does not wait"))
		}
		return c.Decide(p.ctx, id, client.Decision{Verdict: verdict, By: p.name, InputSHA256: list[i].InputSHA256})
	})
}

// says has a person do something, until it is done.
func says(do func(*party, *client.Client) error) func(*stage) {
	return func(s *stage) {
		s.person <- func(p *party, c *client.Client) {
			err := p.insist(func() error { return do(p, c) })
			p.w.note(p.name, "has done what it was to do: %v", err)
		}
	}
}

// extra is the person of a directed history: it does what the acts say.
func (s *stage) extra(p *party) error {
	c, end, err := p.client(false)
	if err != nil {
		return err
	}
	defer end()
	p.up()
	for {
		select {
		case do := <-s.person:
			do(p, c)
		case <-p.ctx.Done():
			return nil
		}
	}
}

// severe fails a history in which a party says that a batch's log contradicts itself, or that its code has crashed. It
// hands the rest on.
type severe struct {
	slog.Handler
	w *world
}

func (h severe) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || h.Handler.Enabled(ctx, l)
}

func (h severe) WithAttrs(as []slog.Attr) slog.Handler { return severe{h.Handler.WithAttrs(as), h.w} }

func (h severe) WithGroup(name string) slog.Handler { return severe{h.Handler.WithGroup(name), h.w} }

func (h severe) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		if _, contradicts := errors.AsType[*batch.InvariantError](err); contradicts {
			h.w.fail("contradiction", "%s: %v", r.Message, err)
		}
		if a.Key == "panic" {
			h.w.fail("crash", "%s: %v", r.Message, a.Value)
		}
		return true
	})
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
