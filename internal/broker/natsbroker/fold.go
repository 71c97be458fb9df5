package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// Fold reads a batch from the log, through the streams' leaders: what its owner must know to go on. Of each call that
// is finished and of the replies it reads the last event only, which says all that counts. A submission that cannot be
// read is an [*events.UnreadableError]; a log that contradicts itself a [*batch.InvariantError]; one with an event that
// only a newer version knows an [*events.NewerError].
func (b *Broker) Fold(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	return b.fold(ctx, k, b.tolerant)
}

// Look reads a batch as Fold does, for who only looks at it: events that only a newer version knows are passed over, as
// far as what follows makes sense without them.
func (b *Broker) Look(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	s, err := b.fold(ctx, k, b.looking)
	if _, contradicts := errors.AsType[*batch.InvariantError](err); contradicts && len(s.Newer) > 0 {
		err = &events.NewerError{Newer: s.Newer[0]}
	}
	return s, err
}

func (b *Broker) fold(ctx context.Context, k toolyard.BatchKey, read reader) (batch.State, error) {
	s := batch.State{Key: k}
	m, ok, err := b.end(ctx, streamBatch, subjectBatch(k))
	if err != nil {
		return s, err
	}
	if !ok {
		return s, fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	if err := b.applyRaw(ctx, &s, m); err != nil {
		return s, err
	}
	// What stands on one chain is there on those that it rests on, which are read behind it, whatever is appended
	// meanwhile: the results that were replied on the calls' chains, so that what says completed has every result, and
	// the input that the batch chain has taken in.
	for _, c := range []batch.Chain{batch.ChainReply, batch.ChainBatch, batch.ChainInput, batch.ChainControl} {
		if err := b.catchUp(ctx, &s, c, 0, read); err != nil {
			return s, err
		}
	}
	if s.Plan != nil {
		// of calls in other groups, nobody but the owner has written
		for _, g := range slices.Sorted(maps.Keys(s.Started)) {
			for _, i := range s.Plan.Groups[g].Calls {
				if err := b.catchUp(ctx, &s, batch.ChainCall, i, read); err != nil {
					return s, err
				}
			}
		}
	}
	return s, nil
}

// CatchUp reads what a chain has beyond the state and applies it: all of it, but of a finished call and of the replies
// only the last event.
func (b *Broker) CatchUp(ctx context.Context, s *batch.State, c batch.Chain, index int) error {
	return b.catchUp(ctx, s, c, index, b.tolerant)
}

func (b *Broker) catchUp(ctx context.Context, s *batch.State, c batch.Chain, index int, read reader) error {
	records, err := b.newer(ctx, s, c, index, read)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := s.Apply(r); err != nil {
			return err
		}
	}
	return nil
}

// Newer reads what [Broker.CatchUp] applies.
func (b *Broker) Newer(ctx context.Context, s *batch.State, c batch.Chain, index int) ([]batch.Record, error) {
	return b.newer(ctx, s, c, index, b.tolerant)
}

func (b *Broker) newer(
	ctx context.Context, s *batch.State, c batch.Chain, index int, reading reader,
) ([]batch.Record, error) {
	var stored []raw
	switch c {
	case batch.ChainBatch, batch.ChainControl, batch.ChainInput:
		after := map[batch.Chain]uint64{batch.ChainBatch: s.BatchSeq, batch.ChainControl: s.ControlSeq,
			batch.ChainInput: s.InputSeq}[c]
		read := b.chain
		if c != batch.ChainBatch { // agents write here, and may not have said what they expected
			read = b.forward
		}
		var err error
		if stored, err = read(ctx, streamEvent, subjectChain(s.Key, c, "", 0), after); err != nil {
			return nil, err
		}
	case batch.ChainCall, batch.ChainReply:
		stream, subject, seen := streamReply, subjectReply(s.Key), s.ReplySeq
		if c == batch.ChainCall {
			stream, subject, seen = streamEvent, subjectChain(s.Key, c, s.Plan.Calls[index].Pool, index),
				s.Calls[index].Seq
		}
		m, ok, err := b.last(ctx, stream, subject)
		if err != nil {
			return nil, err
		}
		switch {
		case !ok || m.seq <= seen:
		case c == batch.ChainReply || m.header.Get(headerType) == string(events.CallFinished):
			stored = []raw{m}
		default: // an open call: what a person has decided about it stands before its last attempt
			if stored, err = b.chain(ctx, stream, subject, seen); err != nil {
				return nil, err
			}
		}
	}
	var out []batch.Record
	for _, m := range stored {
		_, r, _, err := reading(ctx, m)
		if err != nil {
			return nil, err
		}
		r.Latest = c == batch.ChainReply
		out = append(out, r)
	}
	return out, nil
}

// tolerant reads a stored message as a record. On a batch's control and input chains agents may write, and what one of
// them writes must not stop the batch: there an unreadable event is one that means nothing. One of a newer version
// means something, and stays an error.
func (b *Broker) tolerant(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error) {
	k, r, meta, err := b.record(ctx, m)
	bad, ok := errors.AsType[*events.UnreadableError](err)
	if p, perr := parseSubject(m.subject); ok && perr == nil &&
		(p.chain == batch.ChainControl || p.chain == batch.ChainInput) {
		return p.key, p.record(m, events.Unreadable{Problem: bad.Error()}), meta, nil
	}
	return k, r, meta, err
}

// looking reads a stored message for who only looks: one of a newer version is shown as what it is.
func (b *Broker) looking(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error) {
	k, r, meta, err := b.tolerant(ctx, m)
	if newer, ok := errors.AsType[*events.NewerError](err); ok {
		p, _ := parseSubject(m.subject) // also of a chain that only the newer version knows
		return p.key, p.record(m, newer.Newer), meta, nil
	}
	return k, r, meta, err
}

func (b *Broker) applyRaw(ctx context.Context, s *batch.State, m raw) error {
	k, r, _, err := b.record(ctx, m)
	if err != nil {
		return err
	}
	sub, ok := r.Body.(events.Submitted)
	if !ok {
		return &events.UnreadableError{Type: string(r.Body.EventType()), ID: m.header.Get(headerID),
			Problem: "it is no submission; use " + string(events.BatchSubmitted)}
	}
	if err := checkSubmission(k, &sub.Batch); err != nil {
		return err
	}
	r.Body = sub
	return s.Apply(r)
}

// checkSubmission completes and checks a batch that was found under a subject: agent and batch are the subject's, and a
// body that says otherwise is refused.
func checkSubmission(k toolyard.BatchKey, sub *toolyard.Batch) error {
	if sub.Agent == "" {
		sub.Agent = k.Agent
	}
	sub.Normalize(k.ID)
	if sub.Agent != k.Agent {
		return &toolyard.InputError{Field: "agent",
			Problem: fmt.Sprintf("is %q, but the batch was submitted for agent %q", sub.Agent, k.Agent)}
	}
	if sub.ID != k.ID {
		return &toolyard.InputError{Field: "id", Problem: fmt.Sprintf("is %q, but the batch was submitted as %q",
			sub.ID, k.ID)}
	}
	for i, c := range sub.Calls { // whoever published it may not have checked what our clients do
		sub.Calls[i].Input = strictjson.MendInput(c.Input)
	}
	return sub.Validate()
}

// Replies reads the replies of a batch after a sequence of their stream, in order.
func (b *Broker) Replies(ctx context.Context, k toolyard.BatchKey, after uint64) ([]batch.Record, error) {
	stored, err := b.chain(ctx, streamReply, subjectReply(k), after)
	if err != nil {
		return nil, err
	}
	out := make([]batch.Record, len(stored))
	for i, m := range stored {
		if _, out[i], _, err = b.record(ctx, m); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Answered reports whether a call has its result.
func (b *Broker) Answered(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, index int) (bool, error) {
	m, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainCall, pool, index))
	if err != nil || !ok {
		return false, err
	}
	return m.header.Get(headerType) == string(events.CallFinished), nil
}

// CallEnd returns the last event of a call's chain, read through the leader; the zero record when there is none. A
// worker recognises by it a claim whose answer it did not get.
func (b *Broker) CallEnd(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, index int) (batch.Record,
	error) {
	m, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainCall, pool, index))
	if err != nil || !ok {
		return batch.Record{}, err
	}
	_, r, _, err := b.record(broker.ForCall(ctx, k, index), m)
	return r, err
}

// EndReplies ends a batch whose log cannot be followed: it takes no more calls, each call that has no result gets an
// internal_error, on its own chain first so that no worker can finish or claim it any more, and the replies are
// completed. Where replies or appended calls are lost, whoever waits is told so instead. ran says that some call was
// claimed, so that a worker may still be stopping it. A call that was queued and has no event can be fenced only in the
// default pool.
func (b *Broker) EndReplies(ctx context.Context, k toolyard.BatchKey, sub *toolyard.Batch, why string) (ran bool,
	err error) {
	var lost error // why the replies cannot be completed
	passes := func(err error) error {
		if errors.Is(err, broker.ErrDamaged) {
			lost, err = err, nil
		}
		return err
	}
	if sub.Open {
		if err := passes(b.inputLost(ctx, k)); err != nil {
			return false, err
		}
	}
	if sub.Open && lost == nil {
		if _, err := b.Input(ctx, k, 0, events.Closed{By: "owner", Reason: why}); err != nil {
			return false, err
		}
	}
	counted, err := b.counts(ctx, streamEvent, subjectEvents(k))
	if err != nil {
		return false, err
	}
	planned, err := b.plannedPools(ctx, k)
	if err != nil {
		return false, err
	}
	pools := map[int]toolyard.Pool{} // where a call has events, also when these cannot be read
	for subject := range counted {
		if p, err := parseSubject(subject); err == nil && p.chain == batch.ChainCall &&
			(p.index >= len(planned) || planned[p.index] == p.pool) {
			pools[p.index] = p.pool
		}
	}
	for {
		s := batch.State{Key: k}
		if err := passes(b.CatchUp(ctx, &s, batch.ChainInput, 0)); err != nil {
			return ran, err
		}
		_, _, err := b.end(ctx, streamReply, subjectReply(k))
		if err == nil {
			err = b.CatchUp(ctx, &s, batch.ChainReply, 0)
		}
		if err := passes(err); err != nil {
			return ran, err
		}
		if s.Completed || s.Refused != nil {
			return ran, nil
		}
		calls := slices.Concat(sub.Calls, s.Input)
		if planned, err := b.AsPlanned(ctx, k); err == nil && lost != nil && planned != nil &&
			len(planned.Calls) > len(calls) {
			calls = append(calls, planned.Calls[len(calls):]...)
		}
		toolyard.NormalizeCalls(calls, 0)
		r := events.Reply{Results: []toolyard.Result{}, Completed: true}
		for i := s.Replied; i < min(len(calls), toolyard.MaxCallsPerBatch); i++ {
			chain := endedChain{has: pools[i], planned: "*"}
			if i < len(planned) {
				chain.planned = planned[i]
			}
			res, claimed, err := b.endCall(ctx, k, i, calls[i], chain, why)
			if err != nil {
				return ran, err
			}
			ran = ran || claimed
			r.Results = append(r.Results, res)
		}
		if lost != nil {
			return ran, b.RefuseBehind(ctx, k, events.Refused{Type: "about:blank", Title: "Internal Server Error",
				Status: 500, Detail: lost.Error()})
		}
		_, err = b.Append(ctx, k, batch.ChainReply, "", s.Replied, s.ReplySeq, r)
		if !errors.Is(err, broker.ErrConflict) {
			return ran, err
		}
	}
}

// plannedPools are the pools for which a batch's calls were planned, as far as that can be read. What stands under
// another pool's subject is the word of that pool's workers, and means nothing.
func (b *Broker) plannedPools(ctx context.Context, k toolyard.BatchKey) ([]toolyard.Pool, error) {
	stored, err := b.forward(ctx, streamEvent, subjectChain(k, batch.ChainBatch, "", 0), 0)
	var out []toolyard.Pool
	for _, m := range stored {
		switch events.Type(m.header.Get(headerType)) {
		case events.BatchPlanned, events.BatchExtended:
		default:
			continue
		}
		_, r, _, bad := b.looking(ctx, m)
		if _, unreadable := errors.AsType[*events.UnreadableError](bad); unreadable ||
			errors.Is(bad, broker.ErrDamaged) {
			return out, nil // what follows cannot be counted
		}
		if bad != nil {
			return out, bad
		}
		var calls []events.PlannedCall
		switch body := r.Body.(type) {
		case events.Planned:
			calls = body.Calls
		case events.Extended:
			calls = body.Calls
		}
		for _, c := range calls {
			out = append(out, c.Pool)
		}
	}
	if errors.Is(err, broker.ErrDamaged) {
		err = nil
	}
	return out, err
}

// endedChain is where a call that is ended has events ("" when it has none), and where it was planned ("*" when that is
// not known).
type endedChain struct{ has, planned toolyard.Pool }

// endCall gives a call its last result, unless it has one.
func (b *Broker) endCall(
	ctx context.Context, k toolyard.BatchKey, index int, c toolyard.Call, chain endedChain, why string,
) (res toolyard.Result, claimed bool, err error) {
	res = toolyard.Result{
		Index: index, CallID: c.ID, Tool: c.Tool, Echo: c.Echo, IsError: true, Code: toolyard.InternalError,
		Class: toolyard.Unsafe, Detail: why,
		Error: "Internal error: the system lost track of this call." +
			outcome.Evidence{MayHaveStarted: true}.Sentence(),
		Phases: []toolyard.Fact{{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeFailed,
			Code: toolyard.InternalError}},
	}
	for end := uint64(0); ; { // where the server says that the chain ends
		at, expected := cmp.Or(chain.has, toolyard.DefaultPool), end
		if chain.planned != "*" {
			at = chain.planned
		}
		m, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainCall, chain.planned, index))
		if err != nil {
			return res, claimed, err
		}
		if ok && m.seq >= end {
			p, err := parseSubject(m.subject)
			if err != nil {
				return res, claimed, &events.UnreadableError{Problem: err.Error()}
			}
			at, expected = p.pool, m.seq
			_, r, _, err := b.record(ctx, m)
			if errors.Is(err, events.ErrNewer) { // whoever knows what it says goes on with the batch
				return res, claimed, err
			}
			switch m.header.Get(headerType) {
			case string(events.CallFinished):
				if err == nil {
					return r.Body.(events.Finished).Result, claimed, nil
				}
				return res, claimed, nil // it has a result that cannot be read: this one is what can be said
			case string(events.CallClaimed):
				claimed = true
			}
		} else if chain.has != "" || end > 0 {
			claimed = true // what stands there and cannot be read may be a claim
		}
		_, err = b.Append(ctx, k, batch.ChainCall, at, index, expected, events.Finished{Result: res})
		other, conflicts := errors.AsType[*conflictError](err)
		if !conflicts {
			return res, claimed, err
		}
		end = other.end
	}
}
