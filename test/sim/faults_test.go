package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// fault is something that happens to a party, or to the server.
type fault string

// The faults.
const (
	crash   fault = "crash"   // gone at once; another one of its kind starts later, under a new name
	severed fault = "severed" // its connections are cut, and refused for a while
	deaf    fault = "deaf"    // what is sent to it is held back for a while
	mute    fault = "mute"    // what it sends is held back for a while
	pause   fault = "pause"   // both, and its tools stand still
	stop    fault = "stop"    // it is asked to end, and does so in order
	loses   fault = "loses"   // answers to it are lost
	late    fault = "late"    // answers to it come late
	dropped fault = "dropped" // its connections are cut, and it may connect again at once

	outage fault = "outage" // the server is stopped for a while
	kill   fault = "kill"   // the server is killed, and forgets its last deliveries
	leader fault = "leader" // the streams have no leader for a while
	stall  fault = "stall"  // the streams store nothing and say nothing
	full   fault = "full"   // a stream takes nothing
	closed fault = "closed" // the leader of a stream has closed its store, and answers some requests
)

var (
	ofConnections = []fault{severed, deaf, mute, pause}
	ofParties     = []fault{crash, severed, deaf, mute, pause, stop, loses, late, dropped}
	ofServer      = []fault{outage, kill, leader, stall, full}
)

// mayBeFull are the streams that may be full.
var mayBeFull = []string{"TY_EVENT", "TY_CALL", "TY_REPLY", "TY_BATCH", "KV_ty_ticket", "KV_ty_worker", "KV_ty_session",
	"KV_ty_approval"}

// fate is what goes wrong in a history, and how often.
type fate struct {
	w      *world
	d      draws
	kinds  []fault
	every  time.Duration // the mean time between faults that come out of the blue
	strike float64       // how often a step of a party is the last one before something happens to it
	// around is how often a step is one that matters to the history's focus, and something happens just then.
	around float64

	begun atomic.Bool // everybody is there, and it is not quiet yet

	mu     sync.Mutex
	struck []string // parties to which something happens before the next step
	kills  bool     // and the server is killed
	ailing bool     // something is wrong with the server
	had    map[fault]bool
	// blows are the faults of ambushes that happen before the next step.
	blows []blow

	ambushes []ambush
	// gentle says that nobody is lost for anything that happens.
	gentle bool
}

// blow is a fault that was decided to happen to a party.
type blow struct {
	party string
	kind  fault
	takes time.Duration
	after time.Duration
}

func (w *world) drawFate() *fate {
	f := &fate{w: w, d: draws{w.random("faults")}, had: map[fault]bool{}}
	w.quietAt = f.d.between(4*time.Second, 20*time.Second)
	for _, k := range slices.Concat(ofParties, ofServer) {
		if f.d.one(3) {
			f.kinds = append(f.kinds, k)
		}
	}
	f.every = f.d.between(500*time.Millisecond, 8*time.Second)
	if (draws{w.random("closed")}).one(6) {
		f.kinds = append(f.kinds, closed)
	}
	if f.d.IntN(10) < 7 {
		f.strike = 0.004 * f.d.Float64()
	}
	switch w.sc.focus {
	case anything:
		if f.d.one(3) {
			f.kinds = ofServer
		}
	case upgrades:
		f.kinds = append([]fault{crash, stop}, ofConnections...)
		f.every = f.d.between(500*time.Millisecond, 3*time.Second)
	case visitors:
		f.kinds, f.every = []fault{crash, severed, stop, dropped}, f.d.between(500*time.Millisecond, 3*time.Second)
	case streams:
		f.kinds, f.every = ofConnections, f.d.between(300*time.Millisecond, 2*time.Second)
	case takeovers:
		f.kinds, f.every = ofConnections, f.d.between(200*time.Millisecond, 2*time.Second)
	case absences:
		f.kinds, f.every = ofConnections, f.d.between(time.Second, 5*time.Second)
	case restarts:
		f.kinds, f.around = []fault{crash}, 0.5*f.d.Float64()
	case people:
		f.around = 0.1
	}
	return f
}

func (f *fate) String() string {
	var names []string
	for _, k := range f.kinds {
		names = append(names, string(k))
	}
	return fmt.Sprintf("it is about %s; faults until %s: %s, one every %s and at %.2f%% of the steps", f.w.sc.focus,
		stamp(f.w.quietAt),
		strings.Join(names, " "), f.every, 100*f.strike)
}

// step is told of each step, and may decide that it is the last one of a party before something happens to it.
func (f *fate) step(party, what string) {
	if !f.begun.Load() || party == "" {
		return
	}
	strikes, kills := f.d.Float64() < f.strike, false
	if f.around > 0 {
		switch f.w.sc.focus {
		case people: // a batch is parked or woken, or its owner writes something else
			strikes = strikes || isAbout(what, "._.batch", "ty.wake.") && f.d.Float64() < f.around
		case restarts: // a read is handed out, or has its result
			kills = isAbout(what, "ty.call.READ_ONLY.", "ty.event.") && f.d.Float64() < f.around
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if strikes {
		f.struck = append(f.struck, party)
	}
	f.kills = f.kills || kills
	for _, a := range f.ambushes {
		if a.at.MatchString(what) && f.d.Float64() < a.odds {
			f.blows = append(f.blows, blow{f.ambushed(a, party), pick(f.d, a.kinds), f.d.between(a.least, a.most),
				f.d.between(0, a.within)})
		}
	}
}

// ambushed is whom an ambush hits.
func (f *fate) ambushed(a ambush, acting string) string {
	if a.whom == "" {
		return acting
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	var all []string
	for _, m := range f.w.machines {
		if m.p != nil && strings.HasPrefix(m.name, a.whom) {
			all = append(all, m.p.name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return pick(f.d, all)
}

// machine is the machine on which a party runs; nil when it runs no more.
func (w *world) machine(party string) *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.p != nil && m.p.name == party })
	if i < 0 {
		return nil
	}
	return w.machines[i]
}

// isAbout reports whether a step is about messages on one of some subjects.
func isAbout(what string, subjects ...string) bool {
	return slices.ContainsFunc(subjects, func(s string) bool { return strings.Contains(what, s) })
}

// before lets happen what step has decided, before the next step and while nothing runs.
func (f *fate) before() {
	f.mu.Lock()
	struck, kills, blows := f.struck, f.kills, f.blows
	f.struck, f.kills, f.blows = nil, false, nil
	f.mu.Unlock()
	for _, name := range struck {
		if m := f.w.machine(name); m != nil && len(f.kinds) > 0 {
			f.hit(m)
		}
	}
	for _, b := range blows {
		if b.after > 0 {
			f.w.after(b.after, func() {
				b.after = 0
				f.mu.Lock()
				defer f.mu.Unlock()
				f.blows = append(f.blows, b)
			})
		} else if m := f.w.machine(b.party); m != nil {
			f.lets(m, b.kind, b.takes, f.d.one(2))
		}
	}
	if kills {
		f.hitServer(kill, f.d.between(10*time.Millisecond, 300*time.Millisecond)|1)
		if f.d.one(3) {
			f.hit(f.w.machines[f.d.IntN(f.w.sc.dispatchers)])
		}
	}
}

// victim draws whom something happens to.
func (f *fate) victim() *machine {
	first, n := 0, len(f.w.machines)
	switch f.w.sc.focus {
	case streams, takeovers:
		n = f.w.sc.dispatchers
	case upgrades:
		n = f.w.sc.dispatchers + len(f.w.sc.workers)
	case absences:
		first, n = f.w.sc.dispatchers, len(f.w.sc.workers)
	case visitors: // the API, and who came after it
		first = f.w.sc.dispatchers + len(f.w.sc.workers)
		n -= first
	}
	return f.w.machines[first+f.d.IntN(n)]
}

// run lets things happen until the history is to be quiet, or done in one way or another, and heals the parties then.
func (f *fate) run(over, broken <-chan struct{}) {
	f.begun.Store(true)
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-over:
		case <-broken:
		}
		return false
	}
	for {
		pause := time.Duration(f.d.ExpFloat64()*float64(f.every)) | 1
		if left := f.w.restless(); pause >= left {
			wait(left)
			break
		}
		if !wait(pause) {
			break
		}
		if len(f.kinds) > 0 {
			f.hit(f.victim())
		}
	}
	f.begun.Store(false)
	f.w.mu.Lock()
	f.w.quietAt = min(f.w.quietAt, f.w.now())
	parties := f.w.parties
	f.w.mu.Unlock()
	for _, p := range parties {
		if p.hurt() {
			p.heal()
		}
	}
}

// restless is for how long things may still go wrong.
func (w *world) restless() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.quietAt-w.now())
}

// hit draws what happens to a machine, or to the server.
func (f *fate) hit(m *machine) {
	k := pick(f.d, f.kinds)
	d := f.d.between(10*time.Millisecond, 800*time.Millisecond)
	switch f.d.IntN(4) {
	case 0:
		d = f.d.between(800*time.Millisecond, 4*time.Second)
	case 1:
		d = f.d.between(4*time.Second, 12*time.Second) // longer than everything that anybody waits for
	case 2:
		d = f.fitting(d)
	}
	f.lets(m, k, d, f.d.one(2))
}

// lets lets a fault happen to a machine, or to the server, for so long.
func (f *fate) lets(m *machine, k fault, d time.Duration, noticed bool) {
	f.w.mu.Lock()
	p := m.p
	f.w.mu.Unlock()
	if p.gone() || p.ctx.Err() != nil || !f.begun.Load() {
		return
	}
	f.w.note(p.name, "%s for %s", strings.ToUpper(string(k)), d)
	if slices.Contains(ofServer, k) || k == closed {
		f.hitServer(k, min(d, f.w.restless(), 5*time.Second)|1)
		return
	}
	f.happens(k)
	if !f.gentle {
		p.wound()
	}
	f.w.after(d|1, p.heal) // or run does so before
	switch k {
	case crash:
		p.crash(noticed)
		f.w.restart(m, min(d, 3*time.Second)|1)
	case stop:
		p.stop(errStopped)
		f.w.restart(m, min(d, 3*time.Second)|1)
	case severed:
		p.sever(noticed)
	case deaf, mute, pause:
		p.hold(k != mute, k != deaf, k == pause)
	case loses:
		f.w.bus.server().LoseAnswers(p.name, 1+f.d.IntN(3))
	case late:
		f.w.bus.server().DelayAnswers(p.name, min(d, 3*time.Second)|1)
	case dropped:
		f.w.bus.server().Drop(p.name)
	}
}

// happens notes which faults a history has.
func (f *fate) happens(k fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.had[k] = true
}

// fitting draws a time that fits what the history is about.
func (f *fate) fitting(other time.Duration) time.Duration {
	switch wait := settings.BatchAckWait; f.w.sc.focus {
	case streams: // back again when the next owner is about to begin
		return f.d.between(wait-200*time.Millisecond, wait+400*time.Millisecond)
	case people: // about as long as it takes to park a batch and to wake it, or until another has taken it over
		return f.d.between(wait, 3*wait)
	case absences: // longer than until it counts as lost
		return f.d.between(settings.WorkerTTL+settings.CallAckWait, 12*time.Second)
	}
	return other
}

// hitServer lets something happen to the server.
func (f *fate) hitServer(k fault, d time.Duration) {
	f.w.disturbed.Store(true)
	s := f.w.bus.server()
	which := pick(f.d, f.w.sc.streams(mayBeFull...))
	f.mu.Lock()
	ailing := f.ailing
	f.ailing = true
	f.mu.Unlock()
	if ailing { // one thing at a time
		return
	}
	f.happens(k)
	var end func()
	switch k {
	case outage:
		s.Stop()
		end = s.Start
	case kill:
		s.Kill()
		end = s.Start
	case leader:
		s.LoseLeader("")
		end = func() { s.ElectLeader("") }
	case stall:
		s.Stall("", true)
		end = func() { s.Stall("", false) }
	case full:
		s.Fill(which, true)
		end = func() { s.Fill(which, false) }
	case closed:
		f.w.note("", "the store of %s is closed", which)
		s.CloseStore(which)
		end = func() { s.ElectLeader(which) }
	}
	f.w.after(d, func() {
		end()
		f.mu.Lock()
		f.ailing = false
		f.mu.Unlock()
	})
}
