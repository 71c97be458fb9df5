package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// Fold reads a batch from the log, from the streams' leaders: what its owner must know to continue. Of each finished
// call and of the replies it reads only the last event, which has everything that counts. If the submission cannot be
// read, the error is an [*events.UnreadableError]; if the log contradicts itself, a [*batch.InvariantError]; if an
// event is known only to a newer version, an [*events.NewerError].
func (b *Broker) Fold(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	return b.fold(ctx, k, b.tolerant)
}

// Look is Fold for readers: it skips events that only a newer version knows, as far as the following ones make sense
// without them.
func (b *Broker) Look(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return batch.State{}, err
	}
	s, err := b.fold(ctx, k, b.looking)
	if _, contradicts := errors.AsType[*batch.InvariantError](err); contradicts && len(s.Newer) > 0 {
		err = &events.NewerError{Newer: s.Newer[0]}
	}
	return s, err
}

func (b *Broker) fold(ctx context.Context, k toolyard.BatchKey, read reader) (batch.State, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return batch.State{}, err
	}
	s, err := b.asSubmitted(ctx, k)
	if err != nil {
		return s, err
	}
	// The order of reading matters, since events may be appended at the same time. A chain is read before the chains
	// that it depends on: replies before the calls' chains, so that every replied result is found, and the batch chain
	// before the input that it includes.
	for _, c := range []batch.Chain{batch.ChainReply, batch.ChainBatch, batch.ChainInput, batch.ChainControl} {
		if err := b.catchUp(ctx, &s, c, 0, read); err != nil {
			return s, err
		}
	}
	if s.Plan != nil {
		// only the owner has written about calls in other groups
		for _, g := range slices.Sorted(maps.Keys(s.Started)) {
			for _, i := range s.Plan.Groups[g].Calls {
				if s.Calls[i].Item != i {
					continue
				}
				if err := b.catchUp(ctx, &s, batch.ChainItem, i, read); err != nil {
					return s, err
				}
			}
		}
	}
	return s, nil
}

// CatchUp reads the events of a chain after the state and applies them: all of them, but of a finished call that is an
// item of its own, and of the replies, only the last one. index is any call of an item.
func (b *Broker) CatchUp(ctx context.Context, s *batch.State, c batch.Chain, index int) error {
	b, err := b.of(ctx, s.Key)
	if err != nil {
		return err
	}
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

// Newer reads the events that [Broker.CatchUp] would apply.
func (b *Broker) Newer(ctx context.Context, s *batch.State, c batch.Chain, index int) ([]batch.Record, error) {
	b, err := b.of(ctx, s.Key)
	if err != nil {
		return nil, err
	}
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
		if c != batch.ChainBatch { // agents write here, and may not have sent the header
			read = b.forward
		}
		var err error
		if stored, err = read(ctx, streamEvent, subjectChain(s.Key, c, "", 0), after); err != nil {
			return nil, err
		}
	case batch.ChainItem, batch.ChainReply:
		stream, subject, seen := streamReply, subjectReply(s.Key), s.ReplySeq
		alone := false // its last event says all
		if c == batch.ChainItem {
			item := s.Item(index)
			stream, subject, seen = streamEvent, subjectChain(s.Key, c, s.Plan.Calls[item[0]].Pool, item[0]),
				s.End(index)
			alone = len(item) == 1
		}
		m, ok, err := b.last(ctx, stream, subject)
		if err != nil {
			return nil, err
		}
		switch {
		case !ok || m.seq <= seen:
		case c == batch.ChainReply, alone && m.header.Get(headerType) == string(events.CallFinished):
			stored = []raw{m}
		default: // of open calls, what a person has decided about it stands before its last attempt
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

// tolerant reads a stored message as a record. Agents may write to a batch's control and input chains, and their
// mistakes must not stop the batch: there an unreadable event means nothing, and neither does one that belongs to
// another chain. An event of a newer version has a meaning, and stays an error.
func (b *Broker) tolerant(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error) {
	k, r, meta, err := b.record(ctx, m)
	if err == nil && !r.Chain.Takes(r.Body) {
		err = &events.UnreadableError{Type: string(r.Body.EventType()), ID: meta.ID,
			Problem: fmt.Sprintf("it is no event of the %s chain", r.Chain)}
	}
	bad, ok := errors.AsType[*events.UnreadableError](err)
	if p, perr := parseSubject(m.subject); ok && perr == nil &&
		(p.chain == batch.ChainControl || p.chain == batch.ChainInput) {
		return p.key, p.record(m, events.Unreadable{Problem: bad.Error()}), meta, nil
	}
	return k, r, meta, err
}

// looking reads a stored message for readers: it returns an event of a newer version as such.
func (b *Broker) looking(ctx context.Context, m raw) (toolyard.BatchKey, batch.Record, events.Meta, error) {
	k, r, meta, err := b.tolerant(ctx, m)
	if newer, ok := errors.AsType[*events.NewerError](err); ok {
		p, _ := parseSubject(m.subject) // also of a chain that only the newer version knows
		return p.key, p.record(m, newer.Newer), meta, nil
	}
	return k, r, meta, err
}

// asSubmitted is the state of a batch of this shard with nothing but its submission.
func (b *Broker) asSubmitted(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	s := batch.State{Key: k}
	m, ok, err := b.submitted(ctx, k)
	if err != nil {
		return s, err
	}
	if !ok {
		return s, fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	err = b.applyRaw(ctx, &s, m)
	return s, err
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

// checkSubmission completes and checks a batch that was found under a subject, which determines agent and batch. A body
// that names others is refused.
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
	for i, c := range sub.Calls { // the publisher may not have made our clients' checks
		sub.Calls[i].Input = strictjson.MendInput(c.Input)
	}
	return sub.Validate()
}

// Replies reads the replies of a batch after a sequence of their stream, in order.
func (b *Broker) Replies(ctx context.Context, k toolyard.BatchKey, after uint64) ([]batch.Record, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return nil, err
	}
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

// Item reads the events of an item's chain after a sequence, from the leader. A worker uses it to recognise a claim
// whose answer was lost.
func (b *Broker) Item(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, item int,
	after uint64) ([]batch.Record, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return nil, err
	}
	stored, err := b.chain(ctx, streamEvent, subjectChain(k, batch.ChainItem, pool, item), after)
	if err != nil {
		return nil, err
	}
	ctx = broker.ForCall(ctx, k, item)
	out := make([]batch.Record, len(stored))
	for i, m := range stored {
		if _, out[i], _, err = b.record(ctx, m); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// EndReplies ends a batch whose log cannot be followed; sub is the batch as it was submitted, or as its plan describes
// it. The batch takes no more calls. Each call without a result gets an internal_error, first on its own chain, so that
// no worker can finish or claim it any more. Then the replies are completed. If replies or appended calls are lost,
// waiters are told so instead. Where a call was claimed, they are told when its worker must have stopped: it sees at
// its next heartbeat that the call is answered, and cannot commit after its lease. A batch with its last reply needs
// the workspace no more, for whoever looks. A call that was queued and has no event can be fenced only in the default
// pool.
func (b *Broker) EndReplies(ctx context.Context, k toolyard.BatchKey, sub *toolyard.Batch, why string) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	var lost error // why the replies cannot be completed
	passes := func(err error) error {
		if errors.Is(err, broker.ErrDamaged) {
			lost, err = err, nil
		}
		return err
	}
	if sub.Open {
		if err := passes(b.inputLost(ctx, k)); err != nil {
			return err
		}
	}
	if sub.Open && lost == nil {
		if _, err := b.Input(ctx, k, 0, events.Closed{By: "owner", Reason: why}); err != nil {
			return err
		}
	}
	counted, err := b.counts(ctx, streamEvent, subjectEvents(k))
	if err != nil {
		return err
	}
	planned, err := b.plannedCalls(ctx, k)
	if err != nil {
		return err
	}
	pools := map[int]toolyard.Pool{} // for items with events, also unreadable ones
	for subject := range counted {
		if p, err := parseSubject(subject); err == nil && p.chain == batch.ChainItem &&
			(p.index >= len(planned) || planned[p.index].pool == p.pool) {
			pools[p.index] = p.pool
		}
	}
	for ran, waited := false, false; ; {
		s := batch.State{Key: k}
		if err := passes(b.CatchUp(ctx, &s, batch.ChainInput, 0)); err != nil {
			return err
		}
		_, _, err := b.lastOrLost(ctx, streamReply, subjectReply(k))
		if err == nil {
			err = b.CatchUp(ctx, &s, batch.ChainReply, 0)
		}
		if err := passes(err); err != nil {
			return err
		}
		if s.Completed || s.Refused != nil {
			return nil
		}
		taken := 0 // of the appended calls, those that are among the calls of a batch as it was planned
		for i := range min(len(sub.Calls), len(planned)) {
			if planned[i].appended {
				taken++
			}
		}
		calls := slices.Concat(sub.Calls, s.Input[min(taken, len(s.Input)):])
		if planned, err := b.AsPlanned(ctx, k); err == nil && lost != nil && planned != nil &&
			len(planned.Calls) > len(calls) {
			calls = append(calls, planned.Calls[len(calls):]...)
		}
		toolyard.NormalizeCalls(calls, 0)
		r := events.Reply{Results: []toolyard.Result{}, Completed: true}
		for i := s.Replied; i < min(len(calls), toolyard.MaxCallsPerBatch); i++ {
			chain := endedChain{item: i, planned: "*"}
			if i < len(planned) {
				chain.item, chain.planned = planned[i].item, planned[i].pool
			}
			chain.alone = chain.item == i && !slices.ContainsFunc(planned[min(i+1, len(planned)):],
				func(c plannedCall) bool { return c.item == i })
			chain.has = pools[chain.item]
			res, claimed, err := b.endCall(ctx, k, i, calls[i], chain, why)
			if err != nil {
				return err
			}
			ran = ran || claimed
			r.Results = append(r.Results, res)
		}
		if ran && !waited {
			waited = true
			if grace := b.Settings().CallAckWait; wait(ctx, &grace) != nil {
				return context.Cause(ctx)
			}
		}
		if lost != nil {
			return b.RefuseBehind(ctx, k, events.Refused{Type: "about:blank", Title: "Internal Server Error",
				Status: 500, Detail: lost.Error()})
		}
		_, err = b.Append(ctx, k, batch.ChainReply, "", s.Replied, s.ReplySeq, r)
		if !errors.Is(err, broker.ErrConflict) {
			return err
		}
	}
}

// plannedCall is where the events of a call are, by the batch chain, and whether the call was appended.
type plannedCall struct {
	pool     toolyard.Pool
	item     int
	appended bool
}

// plannedCalls returns where the events of a batch's calls are, as far as that can be read. Events under another pool's
// subject were written by that pool's workers and are ignored.
func (b *Broker) plannedCalls(ctx context.Context, k toolyard.BatchKey) ([]plannedCall, error) {
	stored, err := b.forward(ctx, streamEvent, subjectChain(k, batch.ChainBatch, "", 0), 0)
	var out []plannedCall
	for _, m := range stored {
		switch events.Type(m.header.Get(headerType)) {
		case events.BatchPlanned, events.BatchExtended, events.GroupStarted:
		default:
			continue
		}
		_, r, _, bad := b.looking(ctx, m)
		if _, unreadable := errors.AsType[*events.UnreadableError](bad); unreadable ||
			errors.Is(bad, broker.ErrDamaged) {
			return out, nil // the following cannot be counted
		}
		if bad != nil {
			return out, bad
		}
		var calls []events.PlannedCall
		appended := false
		switch body := r.Body.(type) {
		case events.Planned:
			calls = body.Calls
		case events.Extended:
			calls, appended = body.Calls, true
		}
		for _, c := range calls {
			out = append(out, plannedCall{c.Pool, len(out), appended})
		}
		if start := events.StartOf(r.Body); start != nil {
			for _, item := range start.Items {
				for _, i := range item {
					if i >= 0 && i < len(out) {
						out[i].item = item[0]
					}
				}
			}
		}
	}
	if errors.Is(err, broker.ErrDamaged) {
		err = nil
	}
	return out, err
}

// endedChain is where the events of a call that is ended are: its item, the pool with events of it ("" if there are
// none), and the pool of its plan ("*" if that is unknown).
type endedChain struct {
	item         int
	alone        bool // the item has no other call
	has, planned toolyard.Pool
}

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
	for end := uint64(0); ; { // the chain's end, as the server reports it
		at, expected := cmp.Or(chain.has, toolyard.DefaultPool), end
		if chain.planned != "*" {
			at = chain.planned
		}
		m, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainItem, chain.planned, chain.item))
		if err != nil {
			return res, claimed, err
		}
		if ok && m.seq >= end {
			p, err := parseSubject(m.subject)
			if err != nil {
				return res, claimed, &events.UnreadableError{Problem: err.Error()}
			}
			at, expected = p.pool, m.seq
			stored, err := b.chain(ctx, streamEvent, m.subject, 0)
			if err != nil && !errors.Is(err, broker.ErrDamaged) {
				return res, claimed, err
			}
			claimed = claimed || err != nil // an event that cannot be read may be a claim
			for _, m := range stored {
				_, r, _, err := b.record(ctx, m)
				if errors.Is(err, events.ErrNewer) { // a process of that version continues the batch
					return res, claimed, err
				}
				if err != nil { // of an item of one call it is that call's
					if m.header.Get(headerType) == string(events.CallFinished) && chain.alone {
						return res, claimed, nil // its own result cannot be read, so this one is replied
					}
					claimed = true
					continue
				}
				switch body := r.Body.(type) {
				case events.Finished:
					for _, res := range body.Results() {
						if res.Index == index {
							return res, claimed, nil
						}
					}
				case events.Claimed:
					claimed = claimed || slices.Contains(r.Calls(), index)
				}
			}
		} else if chain.has != "" || end > 0 {
			claimed = true // the unreadable event may be a claim
		}
		_, err = b.Append(ctx, k, batch.ChainItem, at, chain.item, expected,
			events.Finish(events.End{Result: res}))
		reported, conflicts := reportedEnd(err)
		if !conflicts {
			return res, claimed, err
		}
		end = reported
	}
}

// EndItems ends the calls that may run of a batch of which neither the submission nor the plan can be read, and returns
// when their workers must have stopped: see EndReplies. Which calls there are is known from what is queued for workers,
// and from the chains that have events.
func (b *Broker) EndItems(ctx context.Context, k toolyard.BatchKey, why string) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	started, err := b.counts(ctx, streamEvent, subjectEvents(k))
	if err != nil {
		return err
	}
	queued, err := b.counts(ctx, streamCall, prefixCall+"*.*.*."+broker.KeyTokens(k)+".>")
	if err != nil {
		return err
	}
	type item struct {
		pool  toolyard.Pool
		index int
	}
	items := map[item]toolyard.Pool{} // and the pool with its events, if there are any
	for subject := range queued {
		if _, index, err := parseCallSubject(subject); err == nil {
			items[item{toolyard.Pool(strings.Split(subject, ".")[3]), index}] = ""
		}
	}
	for subject := range started {
		if p, err := parseSubject(subject); err == nil && p.chain == batch.ChainItem {
			items[item{p.pool, p.index}] = p.pool
		}
	}
	for i, has := range items {
		chain := endedChain{item: i.index, alone: true, planned: i.pool, has: has}
		if _, _, err := b.endCall(ctx, k, i.index, toolyard.Call{}, chain, why); err != nil {
			return err
		}
	}
	if len(items) == 0 {
		return nil
	}
	// Also where all have ended before: who has ended them may have died within the wait.
	grace := b.Settings().CallAckWait
	return wait(ctx, &grace)
}
