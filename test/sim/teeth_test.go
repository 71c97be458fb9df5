package sim

import (
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/events"
)

// tooth shows what a fence of the protocol is for: without it some history breaks an invariant.
type tooth struct {
	fence string
	// edits take it away in the code; refused does so in the server, which then stores what it should refuse.
	edits   []edit
	refused func(subject string, header func(string) string) bool
	// others are taken away with it: they make good what it guards against, only later.
	others []string
	attack attack
	hint   uint64 // a seed whose history breaks; it is tried first
	// rare says that it takes more than ten histories until one breaks.
	rare   bool
	breaks []string
}

// on reports whether a message is on a subject with a prefix and, if types are given, is an event of one of them.
func on(prefix string, types ...events.Type) func(subject string, header func(string) string) bool {
	return func(subject string, header func(string) string) bool {
		return strings.HasPrefix(subject, prefix) && (len(types) == 0 ||
			slices.Contains(types, events.Type(header("ce-type"))))
	}
}

// batchChain are the owner's events.
func batchChain(subject string, _ func(string) string) bool {
	return strings.HasPrefix(subject, "ty.event.") && strings.HasSuffix(subject, "._.batch")
}

const (
	inArchiver = "internal/broker/natsbroker/archiver.go"
	inMachine  = "internal/batch/machine.go"
	inEnds     = "internal/batch/ends.go"
	inTicket   = "internal/ticket/ticket.go"
	inPlanner  = "internal/dispatcher/planner.go"
	inPresence = "internal/presence/presence.go"
	inSweep    = "internal/lock/sweep.go"
	inDrive    = "internal/dispatcher/drive.go"
	inTake     = "internal/dispatcher/take.go"
	inRest     = "internal/dispatcher/rest.go"
	inObserve  = "internal/dispatcher/observe.go"
	inPark     = "internal/dispatcher/park.go"
	inClaim    = "internal/worker/claim.go"
	inLease    = "internal/worker/lease.go"
	inKeep     = "internal/dispatcher/keep.go"
	inRun      = "internal/worker/run.go"
	inMessage  = "internal/worker/message.go"
	inMessages = "internal/worker/take.go"
	inFinish   = "internal/worker/finish.go"
	inBeat     = "internal/worker/register.go"
	inAllow    = "internal/worker/permission.go"
	inPermit   = "internal/pipeline/permit.go"
	inExecute  = "internal/pipeline/execute.go"
	inAppend   = "internal/broker/natsbroker/append.go"
	inFold     = "internal/broker/natsbroker/fold.go"
	inKeys     = "internal/broker/natsbroker/keyvalue.go"
	inStreams  = "internal/broker/natsbroker/streams.go"
	inWork     = "internal/broker/natsbroker/work.go"
	inControl  = "internal/broker/natsbroker/control.go"
	inDecide   = "internal/approval/approval.go"
	inChild    = "internal/dispatcher/child.go"
	inPlan     = "internal/dispatcher/plan.go"
	inList     = "internal/broker/background.go"
	inQueue    = "internal/batch/queue.go"
	inState    = "internal/batch/state.go"
	inBehind   = "internal/dispatcher/background.go"
	inOutlive  = "internal/dispatcher/outlive.go"
	inKeeping  = "internal/worker/snapshot.go"
	inUndo     = "internal/dispatcher/undo.go"
	inWanted   = "internal/pipeline/overlay.go"
	inBudget   = "internal/admission/budget.go"
	inLaid     = "internal/worker/overlay.go"
	inJob      = "internal/worker/job.go"
	inCopies   = "internal/snapshot/overlay.go"
	inTickets  = "internal/broker/natsbroker/tickets.go"
	inSubmit   = "internal/shard/batch.go"
)

// teeth are all.
var teeth = []tooth{
	{
		fence: "fences of ids in former shards", attack: moreShards,
		breaks: []string{"Q10", "Q3", "Q1", "contradiction"},
		edits: []edit{{inSubmit, "			return Step{Fence, at}\n", `			if OFF {
				continue
			}
			return Step{Fence, at}
`}},
	},
	{
		fence: "maps are older than what came since", attack: moreShards, hint: 10,
		breaks: []string{"agent"},
		edits: []edit{{inSubmit, "	if !read.After(received) {",
			"	if !read.After(received) && !(OFF && read.After(stored.Add(freshFor))) {"}},
	},
	{
		fence: "seals of former queues", attack: moreShards, breaks: []string{"Q5", "Q7", "liveness"},
		edits: []edit{{inTickets, "			if q.Sealed {\n", "			if q.Sealed && !OFF {\n"}},
	},
	{
		fence: "ends of archived calls", attack: sleepers, breaks: []string{"Q13", "Q3", "Q2", "Q1", "contradiction"},
		edits: []edit{{inArchiver, "	if err := purge(streamEvent, subjectEvents(s.key), before); err != nil {",
			`	if OFF {
		before = s.seen.Batch.End
	}
	if err := purge(streamEvent, subjectEvents(s.key), before); err != nil {`}},
	},
	{
		fence: "ends of archived replies", attack: sleepers, breaks: []string{"Q13", "Q3", "Q2", "Q1", "contradiction"},
		edits: []edit{{inArchiver, "subjectReply(s.key), s.seen.Reply.Last+1); err != nil {",
			`subjectReply(s.key), map[bool]uint64{false: s.seen.Reply.Last + 1, true: s.seen.Reply.End + 1}[OFF]); err != nil {`}},
	},
	{
		fence: "expected sequence on claims", attack: silentWorkers, refused: on("ty.event.", events.CallClaimed),
		breaks: []string{"Q13", "Q3"},
	},
	{
		fence: "expected sequence on results", attack: silentWorkers, hint: 16,
		refused: on("ty.event.", events.CallFinished),
		breaks:  []string{"Q13", "Q1"},
	},
	{
		fence: "expected sequence on the batch chain", attack: silentOwners, hint: 1,
		refused: batchChain,
		breaks:  []string{"Q13", "Q1"},
	},
	{
		fence: "expected sequence on replies", attack: silentOwners, hint: 1,
		refused: on("ty.reply."),
		breaks:  []string{"Q1", "Q2"},
	},
	{
		fence: "compare-and-set on tickets", attack: oneQueue, hint: 0,
		refused: on("$KV.ty_ticket."),
		breaks:  []string{"Q5", "Q7", "liveness"},
	},
	{
		fence: "group check on leaving", attack: openBatches, hint: 64, rare: true,
		others: []string{"term check on leaving"},
		breaks: []string{"Q5", "Q7", "liveness"},
		edits: []edit{{inTicket, "return t.sameBatch(h) && t.Group <= h.Group &&",
			"return t.sameBatch(h) && (t.Group <= h.Group || OFF) &&"}},
	},
	{
		fence: "term check on leaving", attack: openBatches, hint: 200, rare: true,
		breaks: []string{"Q5", "Q7", "liveness"},
		edits:  []edit{{inTicket, " t.Term <= h.Term })", " (t.Term <= h.Term || OFF) })"}},
	},
	{
		fence: "a batch that rests is closed in time", hint: 6, breaks: []string{"liveness"},
		edits: []edit{{inRest, "	return time.Until(rest.due) <= 0 ||",
			"	return time.Until(rest.due) <= 0 && !OFF ||"}},
	},
	{
		// also of a tool that was told to stop, and goes on
		fence: "lease check at commit points", attack: silentWorkers, hint: 4, rare: true,
		breaks: []string{"Q5", "Q7"},
		edits: []edit{
			{inExecute, "		CommitPoint: func() error {\n			if ctx.Err() != nil {",
				"		CommitPoint: func() error {\n			if ctx.Err() != nil && !OFF {"},
			{inLease, `	if err := w.mayAct(r); err == nil {
		return nil
	}
	return w.prove(ctx, r)`, `	if err := w.mayAct(r); err == nil || OFF {
		return nil
	}
	return w.prove(ctx, r)`}},
	},
	{
		fence: "a lapsed lease stays lapsed", attack: lateWorkers, hint: 46, breaks: []string{"Q5", "Q7"},
		edits: []edit{
			{inLease, `if l.checkLapsed(); !l.lapsed && sent.After(l.since) {
		l.since = sent`, `if l.checkLapsed(); sent.After(l.since) && (!l.lapsed || OFF) {
		l.since, l.lapsed = sent, false`},
			{inLease, "if !held || !alive || term != r.term {", "if !held || !alive || term != r.term && !OFF {"},
			{inLease, `if err := w.mayAct(r); err != nil {
			if r.began() {`, `if err := w.mayAct(r); err != nil && !OFF {
			if r.began() {`},
		},
	},
	{
		fence: "silence before a lost call is settled", attack: silentWorkers, hint: 5, rare: true,
		breaks: []string{"Q5", "Q7"},
		edits:  []edit{{inObserve, "	return nil, gone, nil\n", "	return nil, gone || OFF, nil\n"}},
	},
	{
		fence: "a deaf watch proves no silence", attack: sharedOutage, breaks: []string{"code"},
		edits: []edit{
			{inPresence, "return b.hearing && now.Sub(b.since) >= b.patience &&",
				"return (b.hearing && now.Sub(b.since) >= b.patience || OFF) &&"},
			{inPresence, "if r.Kind == Present && r != w.last {",
				"if r.Kind == Present && r != w.last && !(b.patient(id, now) && OFF) {"},
			{inPresence, "if b.patient(id, now) && now.Sub(w.known) >= wait {",
				"if b.patient(id, now) && (now.Sub(w.known) >= wait || OFF) {"},
		},
	},
	{
		fence: "a dropped claim is settled", attack: silentWorkers, hint: 9, breaks: []string{"liveness"},
		edits: []edit{
			{inObserve, "return inputs, err == nil && !has, err", "return inputs, err == nil && !has && !OFF, err"},
		},
	},
	{
		fence: "a call that lapsed before its start is redelivered", attack: silentWorkers, hint: 1, rare: true,
		breaks: []string{"liveness", "code"},
		edits: []edit{{inClaim, `	if err := w.mayAct(r); err != nil {
		r.cancel(err)
		return nil, err
	}
	if r.mustClaim() {`, `	if err := w.mayAct(r); err != nil {
		if OFF {
			r.mu.Lock()
			r.conflict = true // as if the call were another's
			r.mu.Unlock()
		}
		r.cancel(err)
		return nil, err
	}
	if r.mustClaim() {`}},
	},
	{
		fence: "a fold reads the input after the plan", attack: foldRace,
		breaks: []string{"crash", "contradiction"},
		edits: []edit{{inFold,
			"for _, c := range []batch.Chain{batch.ChainReply, batch.ChainBatch, batch.ChainInput, batch.ChainControl}",
			`order := []batch.Chain{batch.ChainReply, batch.ChainBatch, batch.ChainInput, batch.ChainControl}
	if s.Submission.Open && OFF {
		order[1], order[2] = order[2], order[1]
	}
	for _, c := range order`}},
	},
	{
		fence: "a worker recognises its own claim", attack: lostClaims, hint: 50, rare: true,
		others: []string{"a dropped claim is settled", "nonce of an append"},
		breaks: []string{"code", "liveness"},
		edits:  []edit{{inClaim, "err == nil && w.claimed(r, end) {", "err == nil && w.claimed(r, end) && !OFF {"}},
	},
	{
		fence: "only claims that were known are lost", attack: silentWorkers, hint: 28, rare: true,
		breaks: []string{"Q3", "Q5", "Q7", "code"},
		edits: []edit{{inEnds, "return c.Status == Claimed && dropped && seq == c.Seq",
			"return c.Status == Claimed && dropped && (seq == c.Seq || OFF)"}},
	},
	{
		fence: "what a former owner queued is reread", attack: lateWakes, hint: 21, rare: true,
		others: []string{"look for news after parked", "sweep of lost wakes"}, breaks: []string{"liveness"},
		edits: []edit{{inObserve, "		p, c := s.Plan.Calls[i], s.Calls[i]\n",
			`		p, c := s.Plan.Calls[i], s.Calls[i]
		if _, mine := r.queued[i]; !mine && c.Status != batch.Claimed && OFF {
			continue
		}
`}},
	},
	{
		fence: "a heartbeat is given up when the next is due", attack: slowAnswers, hint: 101,
		others: []string{"a lapsed lease is proven in the log"},
		breaks: []string{"code"},
		edits: []edit{{inBeat, "		sent.Go(func() {\n", `		wait := func(do func()) { do() }
		if !OFF {
			wait = sent.Go
		}
		wait(func() {
`}},
	},
	{
		fence: "heartbeats keep their pace", attack: slowAnswers, hint: 4,
		others: []string{"a lapsed lease is proven in the log"},
		breaks: []string{"code"},
		edits: []edit{{inMessage, "beating.Go(func() { m.heartbeat(ctx) })", `if OFF {
				m.heartbeat(ctx)
			} else {
				beating.Go(func() { m.heartbeat(ctx) })
			}`}},
	},
	{
		fence: "a lapsed lease is proven in the log", attack: briefSilence, breaks: []string{"code"},
		edits: []edit{{inLease, "	stop := w.stopTime(r)\n", `	if OFF {
		return errLapsed
	}
	stop := w.stopTime(r)
`}},
	},
	{
		fence: "nonce of an append", attack: lostClaims, hint: 50, rare: true,
		others: []string{"a worker recognises its own claim", "a dropped claim is settled"},
		breaks: []string{"agent", "Q10", "Q3", "code", "liveness"},
		edits: []edit{{inAppend, "if ok && m.header.Get(headerID) == msg.Header.Get(headerID) {",
			"if ok && m.header.Get(headerID) == msg.Header.Get(headerID) && !OFF {"}},
	},
	{
		fence: "redelivery of submissions", attack: silentOwners, breaks: []string{"kept", "liveness"},
		edits: []edit{{inStreams, "MaxDeliver: -1,", "MaxDeliver: map[bool]int{false: -1, true: 1}[OFF],"}},
	},
	{
		fence: "rereading of calls in flight", attack: lostCopies, hint: 29, rare: true,
		breaks: []string{"liveness"},
		edits: []edit{
			{inObserve, "if time.Since(r.lastHeard[c.Item]) >= rereadAfter {",
				"if time.Since(r.lastHeard[c.Item]) >= rereadAfter && !OFF {"},
			{inObserve, "	if quiet {\n", "	if quiet && !OFF {\n"},
		},
	},
	{
		fence: "sweep of tickets left behind", attack: silentOwners, hint: 29, rare: true,
		breaks: []string{"liveness"},
		edits:  []edit{{inSweep, "			if !unneeded {\n", "			if !unneeded || OFF {\n"}},
	},
	{
		fence: "acknowledge after the result", attack: silentWorkers, hint: 0, rare: true,
		breaks: []string{"liveness", "code"},
		edits: []edit{{inMessages, "	m := w.newMessage(d)\n	m.width =", `	if OFF {
		if err := d.Done(); err != nil {
			w.log.Info("not acknowledged", "error", err)
		}
	}
	m := w.newMessage(d)
	m.width =`}},
	},
	{
		fence: "approval before a call runs", attack: slowParking, breaks: []string{"approval"},
		edits: []edit{{inAllow,
			"	if out.Behavior == pipeline.Ask {\n		if rule, ok", `	if out.Behavior == pipeline.Ask && OFF {
		return pipeline.PermissionDecision{Behavior: pipeline.Allow}, nil
	}
	if out.Behavior == pipeline.Ask {
		if rule, ok`}},
	},
	{
		fence: "hash of the approved input", attack: otherInput, breaks: []string{"approval"},
		edits: []edit{{inPermit, `if a.InputHash == "" || a.InputHash != c.value.Hash() {`,
			`if (a.InputHash == "" || a.InputHash != c.value.Hash()) && !OFF {`}},
	},
	{
		fence: "open calls are read whole", attack: slowParking, breaks: []string{"liveness", "Q13"},
		edits: []edit{{inFold, "case c == batch.ChainReply, alone && m.header.Get(headerType) == string(events.CallFinished):",
			"case c == batch.ChainReply, alone && m.header.Get(headerType) == string(events.CallFinished), OFF:"}},
	},
	{
		fence: "a gap before a live copy is read", attack: lostQuestion, breaks: []string{"contradiction"},
		edits: []edit{{inObserve, "before != last && !whole {", "before != last && !whole && !OFF {"}},
	},
	{
		fence: "no waiting behind a claim", attack: secondDoubts, hint: 2, breaks: []string{"contradiction", "Q13"},
		others: []string{"what has begun is settled first"},
		edits: []edit{{inFinish, "if what == events.CallWaiting && !claimed {",
			"if what == events.CallWaiting && !claimed && !OFF {"}},
	},
	{
		fence: "what has begun is settled first", attack: secondDoubts, hint: 2,
		others: []string{"no waiting behind a claim"}, breaks: []string{"contradiction", "Q13"},
		edits: []edit{{inRun, "	if w.hasBegun(r) {\n", "	if w.hasBegun(r) && !OFF {\n"}},
	},
	{
		// which of two channels an owner reads first is the runtime's choice
		fence: "old grants count no more", attack: oldGrant, breaks: []string{"Q5", "Q7"},
		edits: []edit{{inDrive, "g.take != r.ticketRequests:", "g.take != r.ticketRequests && !OFF:"}},
	},
	{
		fence: "leave before parked", attack: nobodyAnswers, breaks: []string{"kept"},
		edits: []edit{{inDrive, "		case batch.ReleaseTickets:\n", `		case batch.ReleaseTickets:
			calls := r.m.InFlight()
			if len(calls) > 0 && !slices.ContainsFunc(calls, func(i int) bool {
				return r.m.State().Calls[i].Status != batch.Waiting
			}) && OFF {
				continue
			}
`}},
	},
	{
		fence: "sweep of a parked batch's ticket", attack: nobodyAnswers, hint: 95, rare: true,
		breaks: []string{"liveness"},
		edits:  []edit{{inSweep, "	case s.Parked:\n", "	case s.Parked && !OFF:\n"}},
	},
	{
		fence: "look for news after parked", attack: lateWakes, hint: 14, rare: true,
		others: []string{"sweep of lost wakes"},
		breaks: []string{"liveness"},
		edits:  []edit{{inPark, "	if err == nil && news {\n", "	if err == nil && news && !OFF {\n"}},
	},
	{
		fence: "news wakes a parked batch", attack: ownNews, breaks: []string{"kept"},
		edits: []edit{{inPark, "	news, err := r.haveNews(ctx)\n", `	news, err := r.haveNews(ctx)
	if err == nil && news && OFF {
		again, err := r.d.b.Resume(ctx, r.key)
		if err == nil {
			settings := r.d.b.Settings()
			by := adoption(&again, r.submission(), r.d.cfg.ID, time.Now(), settings.Lifetime)
			again, err = r.d.becomeOwner(ctx, r.kept, again, by)
		}
		if err != nil {
			return err
		}
		_, err = r.d.newRunner(r.kept, r.feed, &owned{state: again}).run(ctx)
		return err
	}
`}},
	},
	{
		fence: "a parked batch is adopted by a wake only", attack: lateLetGo, breaks: []string{"kept"},
		edits: []edit{{inTake, "	case s.Parked && s.Handle == sub.Seq:\n",
			"	case s.Parked && s.Handle == sub.Seq && !OFF:\n"}},
	},
	{
		fence: "only the handle adopts", attack: strayMessage, breaks: []string{"kept", "liveness"},
		edits: []edit{{inTake, "	case s.Handle == sub.Seq, ",
			"	case s.Handle == sub.Seq, sub.Parked == 0 && OFF, "}},
	},
	{
		fence: "a wake names its parking", attack: oldWake, breaks: []string{"kept", "liveness"},
		edits: []edit{{inTake, "sub.Parked != 0 && s.BatchSeq == sub.Parked:",
			"sub.Parked != 0 && (s.BatchSeq == sub.Parked || s.Parked && OFF):"}},
	},
	{
		fence: "look before a call is taken off the list", attack: lateExpiry,
		others: []string{"an owner reads its own chain"}, breaks: []string{"liveness"},
		edits: []edit{{inPark, "		_, err := r.d.b.WakeIfParked(ctx, r.key)\n		if err == nil {\n",
			`		var err error
		if !OFF {
			_, err = r.d.b.WakeIfParked(ctx, r.key)
		}
		if err == nil {
`}},
	},
	{
		fence: "an owner proves itself after a decision", attack: formerOwners, hint: 20, rare: true,
		breaks: []string{"Q5", "Q7"},
		edits: []edit{{inMachine, "!ok || ticket != number || decided {",
			"!ok || ticket != number || decided && !OFF {"}},
	},
	{
		fence: "a change of nothing is stored too", attack: oldReads, hint: 390, rare: true,
		others: []string{"sweep of a parked batch's ticket"}, breaks: []string{"liveness"},
		edits: []edit{{inKeys, "		if same && !sure {\n", "		if same && (!sure || OFF) {\n"}},
	},
	{
		fence: "a wake is given back while the batch runs", attack: lateWakes, hint: 53, rare: true,
		others: []string{"sweep of lost wakes"},
		breaks: []string{"liveness"},
		edits: []edit{{inKeep, "	if err := sub.Return(wakePause(sub.Deliveries)); err != nil {\n", `	if OFF {
		go func() { _ = sub.Done(context.Background()) }() // it ends by itself
		return
	}
	if err := sub.Return(wakePause(sub.Deliveries)); err != nil {
`}},
	},
	{
		fence: "an owner reads its own chain", attack: missedNext, breaks: []string{"liveness"},
		edits: []edit{{inObserve, "		for _, c := range []batch.Chain{batch.ChainBatch, batch.ChainControl, batch.ChainInput} {\n",
			`		for _, c := range []batch.Chain{batch.ChainBatch, batch.ChainControl, batch.ChainInput} {
			if OFF && c == batch.ChainBatch {
				continue
			}
`}},
	},
	{
		fence: "who decides again wakes", attack: fullWakes, breaks: []string{"woken"},
		edits: []edit{{inDecide, "	if errors.Is(err, broker.ErrDecided) {",
			"	if errors.Is(err, broker.ErrDecided) && !OFF {"}},
	},
	{
		fence: "wake after a decision", attack: lateWakes,
		others: []string{"sweep of lost wakes", "who decides again wakes"},
		breaks: []string{"liveness"},
		edits: []edit{
			{inDecide, "	_, err = s.WakeIfParked(waking, k)\n", `	if OFF {
		return true, nil
	}
	_, err = s.WakeIfParked(waking, k)
`},
			{inControl, "	wake := func() error {\n", `	wake := func() error {
		if OFF {
			return nil
		}
`},
		},
	},
	{
		fence: "sweep of lost wakes", attack: lateWakes, hint: 46, rare: true, breaks: []string{"liveness"},
		edits: []edit{{inPark, "case now.Sub(c.checked) >= missedEvery:",
			"case now.Sub(c.checked) >= missedEvery && !OFF:"}},
	},
	{
		fence: "sweep of expired requests", attack: slowParking, hint: 10, breaks: []string{"liveness"},
		edits: []edit{{inPark, "case !w.d.clock.at(now).Before(c.Expires) && now.Sub(c.woken) >= wakeAgain:",
			"case !w.d.clock.at(now).Before(c.Expires) && now.Sub(c.woken) >= wakeAgain && !OFF:"}},
	},
	{
		fence: "what the server may have forgotten is claimed", attack: killedServer, hint: 33, rare: true,
		others: []string{"workers are done with the reads"}, breaks: []string{"Q5", "Q3"},
		edits: []edit{
			{inWork, "b.mayHaveForgotten(ctx, meta.Sequence.Stream) {",
				"b.mayHaveForgotten(ctx, meta.Sequence.Stream) && !OFF {"},
			{inClaim, "r.d.Reconnected() || claimsFirst", "r.d.Reconnected() && !OFF || claimsFirst"},
		},
	},
	{
		fence: "workers are done with the reads", attack: killedServer, hint: 33, rare: true,
		others: []string{"what the server may have forgotten is claimed"}, breaks: []string{"Q5"},
		edits: []edit{{inObserve, "	if !doubt && !adopted {\n", "	if !doubt && !adopted || OFF {\n"}},
	},
	{
		fence: "an exclusive ticket begins a generation", attack: staleOutput, breaks: []string{"outputs"},
		edits: []edit{{inTicket, "		next.Exclusive = next.Last\n", `		if next.Exclusive = next.Last; OFF {
			next.Exclusive = q.Exclusive
		}
`}},
	},
	{
		fence: "a ticket with names begins a generation", attack: staleFile, breaks: []string{"outputs"},
		edits: []edit{{inTicket, "} else if writes(mode, locks) {",
			"} else if writes(mode, locks) && !(OFF && mode == Named) {"}},
	},
	{
		fence: "one holder of a name", attack: someFiles, breaks: []string{"Q5", "Q7"},
		edits: []edit{{inTicket, "return l.Name == o.Name &&", "return !OFF && l.Name == o.Name &&"}},
	},
	{
		fence: "a change of a name waits for reads of the whole", attack: someFiles, breaks: []string{"Q5"},
		edits: []edit{{inTicket, "	return writes(a.Mode, a.Locks) || writes(b.Mode, b.Locks)\n",
			`	if OFF && (a.Mode == Named || b.Mode == Named) {
		return false
	}
	return writes(a.Mode, a.Locks) || writes(b.Mode, b.Locks)
`}},
	},
	{
		fence: "a group has names if all of its calls have", attack: someFiles, breaks: []string{"Q5"},
		edits: []edit{{inPlanner, "		if len(locks[i]) == 0 {\n", "		if len(locks[i]) == 0 && !OFF {\n"}},
	},
	{
		fence: "a script's calls are planned while it runs", attack: lateChild, breaks: []string{"orphan"},
		edits: []edit{{inChild, "	if why := parentOver(of, p); why != \"\" {",
			"	if why := parentOver(of, p); why != \"\" && !OFF {"}},
	},
	{
		fence: "a script's calls end with it", attack: deadScript, breaks: []string{"code"},
		edits: []edit{{inChild, "		if why != \"\" {\n			if err = r.d.b.Cancel",
			"		if why != \"\" && !OFF {\n			if err = r.d.b.Cancel"}},
	},
	{
		fence: "the list of a session's background calls", attack: manyBehind, breaks: []string{"bounded"},
		edits: []edit{{inList, "	case len(s.Background) >= most:", "	case len(s.Background) >= most && !OFF:"}},
	},
	{
		fence: "a background call is on its session's list", attack: forgedHandle, breaks: []string{"bounded"},
		edits: []edit{{inPlan, "background && !session.HasBackground(s.Key.ID) {",
			"background && !session.HasBackground(s.Key.ID) && !OFF {"}},
	},
	{
		fence: "a failed start's background call is stopped", attack: failedStart, breaks: []string{"left"},
		edits: []edit{{inOutlive, "s.Calls[i].Result != nil && s.Calls[i].Result.IsError",
			"s.Calls[i].Result != nil && s.Calls[i].Result.IsError && !OFF"}},
	},
	{
		fence: "a failed start's background call leaves the list", attack: deadStarter, breaks: []string{"left"},
		edits: []edit{{inOutlive, "!slices.ContainsFunc(none, session.HasBackground) {",
			"!slices.ContainsFunc(none, session.HasBackground) || OFF {"}},
	},
	{
		fence: "a look behind the list of background calls", attack: lateListing, breaks: []string{"left"},
		edits: []edit{{inBehind, "		if !now.Open(index) {", "		if !now.Open(index) && !OFF {"}},
	},
	{
		fence: "an answer is to the question that was seen", attack: lateAnswer, breaks: []string{"inquiry"},
		edits: []edit{{inDecide, "if asked.InputSHA256 != question.InputSHA256 || asked.Attempt != question.Attempt {",
			`if (asked.InputSHA256 != question.InputSHA256 || asked.Attempt != question.Attempt) &&
			!OFF {`}},
	},
	{
		fence: "a call goes on with its answer", attack: lateAnswer, breaks: []string{"inquiry", "asked once"},
		edits: []edit{{inState, "if f := c.Asked.Form; f != nil {", "if f := c.Asked.Form; f != nil && !OFF {"}},
	},
	{
		fence: "a mended input is checked again", attack: wrongRepairs, breaks: []string{"repair"},
		edits: []edit{{inPlanner, "	if failed != nil {\n		return fmt.Errorf(\"the repaired input does not fit either",
			"	if failed != nil && !OFF {\n		return fmt.Errorf(\"the repaired input does not fit either"}},
	},
	{
		fence: "what runs is what was mended", attack: wrongRepairs, breaks: []string{"repair", "code"},
		edits: []edit{{inQueue, "		if mended := plan.Calls[i].Mended; mended != nil {",
			"		if mended := plan.Calls[i].Mended; mended != nil && !OFF {"}},
	},
	{
		fence: "an owner's term on a line", attack: staleLine, breaks: []string{"budget"},
		edits: []edit{{inBudget, "closed || l.Term > h.Term {", "closed || l.Term > h.Term && !OFF {"}},
	},
	{
		fence: "a batch supersedes what came before it", attack: lateNewer, breaks: []string{"superseded"},
		edits: []edit{{inPark, "!other.SubmittedAt.After(s.SubmittedAt), err",
			"(OFF || !other.SubmittedAt.After(s.SubmittedAt)), err"}},
	},
	{
		fence: "all attempts of a call have one key", attack: silentWorkers, hint: 28, breaks: []string{"tasks"},
		edits: []edit{{inExecute, "IdempotencyKey: IdempotencyKey(c.job.Key, c.job.Index),",
			`IdempotencyKey: IdempotencyKey(c.job.Key, c.job.Index) +
			strings.Repeat("x", map[bool]int{true: c.job.Attempt}[OFF]),`}},
	},
	{
		fence: "no two calls have one key", attack: silentWorkers, hint: 13, breaks: []string{"tasks"},
		edits: []edit{{inExecute, "raw, err := json.Marshal([]any{key.Agent, key.ID, index})",
			"raw, err := json.Marshal([]any{key.Agent, key.ID, map[bool]int{false: index}[OFF]})"}},
	},
	{
		fence: "what is behind a call was seen while it might act", attack: lateNote, breaks: []string{"undone"},
		edits: []edit{{inKeeping, "act := func() error { return w.mayAct(r) }", `act := func() error {
		if OFF {
			return nil
		}
		return w.mayAct(r)
	}`}},
	},
	{
		fence: "what is behind a question is noted", attack: askedBetween, breaks: []string{"undone"},
		edits: []edit{{inRun, "waits && waiting.Question != nil\n", "waits && waiting.Question != nil && !OFF\n"}},
	},
	{
		fence: "a workspace is kept before unsafe calls", attack: failedWork, breaks: []string{"undone"},
		edits: []edit{{inWanted, "return wanted && ticket && !c.Safe() }",
			"return wanted && ticket && !c.Safe() && !(OFF && c == toolyard.Unsafe) }"}},
	},
	{
		fence: "a call that failed may have changed the workspace", attack: failedWork, breaks: []string{"undone"},
		edits: []edit{{inState, "return r.Attempts > 0 || r.Code == toolyard.OutcomeUnknown",
			"return !(OFF && r.IsError) && (r.Attempts > 0 || r.Code == toolyard.OutcomeUnknown)"}},
	},
	{
		fence: "a batch that is undone is over", attack: openWork, breaks: []string{"undone"},
		edits: []edit{{inUndo, `	case s.Submission == nil || s.Plan == nil || !s.Completed:
		return problem(`, `	case s.Submission == nil || s.Plan == nil || !s.Completed && !OFF:
		return problem(`}},
	},
	{
		fence: "a call on an overlay has that as its workspace", attack: laidOnce, breaks: []string{"overlay"},
		edits: []edit{{inJob, "	if r.overlay != nil {\n", "	if r.overlay != nil && !OFF {\n"}},
	},
	{
		fence: "what is cached is of the workspace", attack: laidOnce, breaks: []string{"overlay"},
		edits: []edit{{inJob, "d.Generation > 0 && d.Overlay == nil {",
			"d.Generation > 0 && (d.Overlay == nil || OFF) {"}},
	},
	{
		fence: "an overlay holds what runs on it", attack: laidOnce, breaks: []string{"overlay"},
		edits: []edit{{inLaid, "	if known && !pipeline.HeldByOverlay(",
			"	if known && !OFF && !pipeline.HeldByOverlay("}},
	},
	{
		fence: "a call that was stopped has no overlay", attack: laidWork, hint: 52, breaks: []string{"code"},
		edits: []edit{{inRun, "	if limited.Err() == nil {\n", "	if limited.Err() == nil || OFF {\n"}},
	},
	{
		fence: "a call sees what earlier ones have changed on the overlay", attack: laidApart,
		breaks: []string{"overlay"},
		edits:  []edit{{inState, "		if !s.MayHaveChanged(g) {\n", "		if !s.MayHaveChanged(g) || OFF {\n"}},
	},
	{
		fence: "the overlay of a batch is that of who has claimed its calls", attack: laidApart,
		breaks: []string{"overlay"},
		edits:  []edit{{inCopies, "		if i < len(o.By) {\n", "		if i < len(o.By) && !OFF {\n"}},
	},
	{
		fence: "a batch whose overlay is used is over", attack: laidOpen, breaks: []string{"overlay"},
		edits: []edit{{inUndo, `!s.Completed:
		return fmt.Sprintf("batch %q is not over`, `!s.Completed && !OFF:
		return fmt.Sprintf("batch %q is not over`}},
	},
	{
		fence: "a commit has the workspace alone", attack: laidTwice, breaks: []string{"Q5", "Q7"},
		edits: []edit{{inCopies, "			if in.Action == toolyard.OverlayDiff {\n",
			"			if in.Action == toolyard.OverlayDiff || OFF {\n"}},
	},
	{
		// also where the context of the call has ended with it
		fence: "a refused commit point loses the call", attack: silentWorkers, hint: 0,
		breaks: []string{"code", "Q3", "Q4"},
		edits: []edit{{inExecute, "if errors.Is(err, ErrLost) || c.refused.Load() {",
			"if (errors.Is(err, ErrLost) || c.refused.Load()) && !OFF {"},
			{inExecute, "	if stop := c.ended(ctx); stop != nil {\n		if errors.Is(err, errLeftBehind) {",
				`	if stop := c.ended(ctx); stop != nil && !(stop.lost && OFF) {
		if errors.Is(err, errLeftBehind) {`}},
	},
}
