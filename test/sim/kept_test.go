package sim

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// keeping checks while a history runs that a batch which has an owner is kept by a message that nobody has
// acknowledged, so that it goes on if its owner dies at this instant; and that an owner which parks a batch gives its
// tickets back, and those that were reserved for the batch before, and then its message.
type keeping struct {
	w       *world
	batches []*keptBatch
	what    string // the step that is performed
}

// keptBatch is a batch as its chain has it.
type keptBatch struct {
	key    toolyard.BatchKey
	ws     toolyard.Workspace
	at     int    // its shard, once it has a log
	seq    uint64 // of the last event of the batch chain
	reply  uint64 // of the last message of replies
	over   bool   // that message says that no more come
	handle uint64 // of the message by which it is kept
	term   int    // of its owner
	owned  bool
	// left are the tickets that stood in the queue when it was parked, while its message is not acknowledged.
	left []uint64
	// settled is when its message was acknowledged for good; zero: it was not seen.
	settled time.Time
}

func newKeeping(w *world) *keeping {
	k := &keeping{w: w}
	for _, a := range w.sc.agents {
		for _, b := range a.batches {
			k.batches = append(k.batches, &keptBatch{key: b.batch.Key(), ws: b.batch.Workspace})
		}
	}
	return k
}

// settled is when a batch was settled; zero: nobody saw that.
func (k *keeping) settled(key toolyard.BatchKey) time.Time {
	for _, b := range k.batches {
		if b.key == key {
			return b.settled
		}
	}
	return time.Time{}
}

// step is told of each step before it is performed.
func (k *keeping) step(what string) { k.what = what }

// before looks at what is stored, while nothing runs.
func (k *keeping) before() {
	what := k.what
	k.what = ""
	if !strings.HasPrefix(what, "PUB $JS.ACK.TY_BATCH.") && !strings.HasPrefix(what, "HPUB ty.reply.") &&
		!strings.HasSuffix(what, "._.batch") {
		return
	}
	for _, b := range k.batches {
		b.look(k.w)
		if b.over && b.settled.IsZero() && b.handle != 0 && !b.kept(k.w) {
			b.settled = time.Now()
		}
		b.checkLeft(k.w)
		if b.owned && !b.kept(k.w) {
			k.w.fail("kept", "%s has an owner, and message %d is acknowledged, by which it is kept", b.key, b.handle)
		}
	}
}

// kept reports whether the message by which the batch is kept is not acknowledged.
func (b *keptBatch) kept(w *world) bool {
	return w.bus.server().Unacknowledged(nameIn(b.shard(w), "TY_BATCH"), "dispatchers", b.handle)
}

// shard is the shard in which the batch is.
func (b *keptBatch) shard(w *world) int {
	if b.seq == 0 { // it is not known yet
		b.at = w.shardOf(b.key)
	}
	return b.at
}

// look takes in what the batch chain and the replies have.
func (b *keptBatch) look(w *world) {
	s := w.bus.server()
	n := b.shard(w)
	if m := s.Last(nameIn(n, "TY_REPLY"), nameIn(n, "ty.reply.")+broker.KeyTokens(b.key)); m != nil {
		if m.Sequence != b.reply {
			var r events.Reply
			fenced := strings.Contains(string(m.Header), headerType+string(events.ChainEnded)+"\r\n")
			b.reply, b.over = m.Sequence, fenced || json.Unmarshal(m.Data, &r) == nil && r.Completed
		}
		if b.over { // it is over before it is archived
			b.owned = false
			return
		}
	}
	m := s.Last(nameIn(n, "TY_EVENT"), nameIn(n, "ty.event.")+broker.KeyTokens(b.key)+"._.batch")
	if m == nil || m.Sequence == b.seq {
		return
	}
	b.seq = m.Sequence
	is := func(t events.Type) bool { return strings.Contains(string(m.Header), headerType+string(t)+"\r\n") }
	switch {
	case is(events.BatchPlanned):
		var p events.Planned
		if err := json.Unmarshal(m.Data, &p); err != nil {
			w.fail("kept", "the plan of %s cannot be read: %v", b.key, err)
		}
		b.handle, b.owned = p.SubmissionSeq, true
	case is(events.BatchAdopted):
		var a events.Adopted
		if err := json.Unmarshal(m.Data, &a); err != nil {
			w.fail("kept", "the adoption of %s cannot be read: %v", b.key, err)
		}
		b.term, b.owned = a.Takeover, true
		if a.Handle != 0 {
			b.handle = a.Handle
		}
	case is(events.BatchParked):
		b.owned, b.left = false, b.tickets(w)
	}
}

// checkLeft checks, when the message by which a parked batch was kept is acknowledged, that its owner has taken out the
// tickets that stood in the queue when it was parked. One that was reserved since is another dispatcher's to take out.
func (b *keptBatch) checkLeft(w *world) {
	if b.owned { // whoever adopted it keeps the ticket under which calls may run
		b.left = nil
	}
	if len(b.left) == 0 || b.kept(w) {
		return
	}
	now := b.tickets(w)
	if slices.ContainsFunc(b.left, func(n uint64) bool { return slices.Contains(now, n) }) {
		w.fail("kept", "%s is parked and released, and its tickets %d stay in the queue of %s: %d", b.key, b.left, b.ws, now)
	}
	b.left = nil
}

// tickets are the numbers of the batch's tickets that its owner, or an earlier one, may take out.
func (b *keptBatch) tickets(w *world) (out []uint64) {
	for n := range w.sc.count() { // one of them may be a former one
		m := w.bus.server().Last(nameIn(n, "KV_ty_ticket"), nameIn(n, "$KV.ty_ticket.")+broker.Escape(string(b.ws)))
		if m == nil || len(m.Data) == 0 {
			continue
		}
		var q ticket.Queue
		if err := json.Unmarshal(m.Data, &q); err != nil {
			w.fail("kept", "the tickets of %s cannot be read: %v", b.ws, err)
		}
		for _, t := range q.Tickets {
			if t.Agent == b.key.Agent && t.Batch == b.key.ID && t.Term <= b.term {
				out = append(out, t.N)
			}
		}
	}
	return out
}
