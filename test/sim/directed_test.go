package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
)

// The directed histories. Each is small, and what goes wrong in it goes wrong at chosen steps: what random faults would
// not find in thousands of histories.
const (
	lateExpiry   attack = "a former owner answers a call that has waited too long, when the next has parked its batch"
	strayMessage attack = "a batch that was woken gets its first message again, which is acknowledged late"
	lateLetGo    attack = "an owner that has parked its batch lets go of it late, and others get its message"
	ownNews      attack = "an owner that has parked its batch finds news late, and others have let go of its message"
	oldWake      attack = "a batch that was parked again gets a wake for its first parking, which is acknowledged late"
	otherInput   attack = "a decision in the log is about another input than the one that was asked about"
	oldReads     attack = "the reads of an owner that leaves a queue are answered by a leader that was deposed"
	lostQuestion attack = "an owner does not hear that a call waits, and hears what was decided"
	secondDoubts attack = "a tool wants a person for a call that its worker has run before, and could not store what came"
	sharedOutage attack = "owner and worker are cut off together, and the worker is the last to come back"
	oldGrant     attack = "a batch leaves the queue when its ticket has just been granted, and joins again"
	fullWakes    attack = "there is no room for the wake of a decision, and whoever decided tries again"
	missedNext   attack = "an owner that waits for its workspace is away while the next one has it, and gives it back"
	staleOutput  attack = "an exclusive call comes between two equal reads, and ends without its owner and its worker"
	someFiles    attack = "calls name files, beside calls that read all of them"
	staleFile    attack = "a change of one file comes between two equal reads, and ends without its owner and its worker"
	lostLeader   attack = "a worker dies while calls wait there for the execution of another"
	lateChild    attack = "a script's call is stored long after the script was canceled"
	deadScript   attack = "a script's worker dies while one of its calls runs"
	manyBehind   attack = "a session starts more background calls than it may have"
	forgedHandle attack = "somebody hands in batches that look like background calls"
	failedStart  attack = "a command that may go on behind its batch is canceled while its call waits for it"
	deadStarter  attack = "a dispatcher submits a background call, whose start was canceled, and dies behind that"
	lateListing  attack = "a background call is listed when the batch of its start, which was canceled, is settled"
	lateAnswer   attack = "an answer is stored when another one was, and the call has asked something else"
	wrongRepairs attack = "a worker mends an input, and makes another one that does not fit either"
	staleLine    attack = "an owner stands still before it sets what its batch has used, and another goes on"
	lateNewer    attack = "a batch that supersedes is planned by an owner that stood still, behind a later batch"
	lateNote     attack = "a worker stands still while it looks at what a call has left, and its lease lapses"
	askedBetween attack = "others change a workspace while a call waits for the answer to its question"
	failedWork   attack = "a batch is undone whose calls have changed the workspace, and failed"
	laidOnce     attack = "a batch runs on an overlay, beside equal calls in the workspace, and is committed"
	laidOpen     attack = "an overlay is to be committed while its batch waits for a person"
	laidApart    attack = "the second call of a batch on an overlay goes to a worker that does not see it"
	laidTwice    attack = "two people commit an overlay at once, and another agent changes the workspace"
	laidCut      attack = "a worker dies in the middle of a commit"
	openWork     attack = "a batch is to be undone while it waits for a person"
	foldRace     attack = "an owner extends and closes its batch between two reads of the next one"
)

// hands is an agent that hands in one batch.
func hands(agent toolyard.Agent, at time.Duration, calls ...toolyard.Call) agentSpec {
	b := &batchSpec{submit: at, first: len(calls), batch: toolyard.Batch{
		ID: "b1", Agent: agent, Session: "s", Workspace: "ws1", Interactive: true,
		Options: toolyard.Options{Partition: toolyard.Consecutive, OnError: toolyard.Continue, MaxConcurrency: 4,
			TimeoutMS: longWait.Milliseconds()},
	}}
	for i, c := range calls {
		c.ID = fmt.Sprint("c", i)
		b.batch.Calls = append(b.batch.Calls, c)
	}
	return agentSpec{name: agent, batches: []*batchSpec{b}}
}

// script is a call of a script that makes some calls.
func script(calls ...toolyard.Call) toolyard.Call {
	return toolyard.Call{Tool: toolyard.RunCodeTool, Input: raw(input{WorkMS: 1, Calls: calls})}
}

// behind is a call that starts another one in the background.
func behind(c toolyard.Call) toolyard.Call {
	return toolyard.Call{Tool: toolyard.BackgroundStart, Input: raw(toolyard.BackgroundStartInput{Tool: c.Tool,
		Input: c.Input})}
}

// then has an agent hand in the batches of others too, as its own.
func (a agentSpec) then(others ...agentSpec) agentSpec {
	for _, o := range others {
		for _, b := range o.batches {
			b.batch.Agent, b.batch.ID = a.name, toolyard.BatchID(fmt.Sprint("b", len(a.batches)+1))
			a.batches = append(a.batches, b)
		}
	}
	return a
}

// appends makes the batch an open one, whose calls from first on are appended.
func (a agentSpec) appends(first int) agentSpec {
	b := a.batches[0]
	b.open, b.closes, b.first, b.pause = true, true, first, 100*ms
	return a
}

// goesOn has the batch's commands go on behind it, and is canceled.
func (a agentSpec) goesOn(after, canceled time.Duration) agentSpec {
	b := a.batches[0]
	b.batch.Options.BackgroundAfterMS, b.cancel = after.Milliseconds(), canceled
	return a
}

// undone has the batch be undone so long after its end.
func (a agentSpec) undone(after time.Duration) agentSpec {
	b := a.batches[0]
	b.batch.Options.Snapshot = true
	u := undoing(b, client.Undoing{})
	u.submit = after
	a.batches = append(a.batches, u)
	return a
}

// laid has the batch run on an overlay, which is committed so long after its end, so many times at once.
func (a agentSpec) laid(after time.Duration, commits int) agentSpec {
	b := a.batches[0]
	b.batch.Options.Overlay = true
	for n := range commits {
		u := using(b, n, client.OverlayUse{Action: toolyard.OverlayCommit, Final: true})
		u.submit = after
		a.batches = append(a.batches, u)
	}
	return a
}

// patch is a call that changes a file for so long, in so many steps.
func patch(file string, work time.Duration, steps int) toolyard.Call {
	return toolyard.Call{Tool: patchTool, Input: raw(input{WorkMS: work.Milliseconds(), Commits: steps, File: file})}
}

// untilOthers has the batch canceled when all others are over.
func (a agentSpec) untilOthers() agentSpec {
	a.batches[0].last = true
	return a
}

// call is a call that works for so long.
func call(tool string, work time.Duration) toolyard.Call {
	k, _ := kindOf(tool)
	in := input{WorkMS: work.Milliseconds(), Command: k.command}
	if !k.class.Safe() {
		in.Commits = 1
	}
	return toolyard.Call{Tool: tool, Input: raw(in)}
}

// failing is a call that acts, and fails then.
func failing(tool string) toolyard.Call {
	return toolyard.Call{Tool: tool, Input: raw(input{WorkMS: 1, Commits: 1, Code: toolyard.ExecutionFailed})}
}

// callOn is a call that works on a file for so long.
func callOn(tool, file string, work time.Duration) toolyard.Call {
	c := call(tool, work)
	c.Input = onFile(c.Input, file)
	return c
}

// named has the batch ask for named locks.
func (a agentSpec) named() agentSpec {
	a.batches[0].batch.Options.NamedLocks = true
	return a
}

// writesDecision has somebody write a decision about a call of the first agent's batch into the log, who has not looked
// at the list.
func writesDecision(call int, d events.Decided) func(*stage) {
	return says(func(p *party, _ *client.Client) error {
		nc, err := p.connect()
		if err != nil {
			return err
		}
		defer nc.Close()
		b, err := natsbroker.Join(p.ctx, nc, "/person/"+p.name, nil)
		if err != nil {
			return err
		}
		k := toolyard.BatchKey{Agent: "a1", ID: "b1"}
		d.By = p.name
		if d.InputSHA256 == "" {
			return approval.Decide(p.ctx, b, k, call, d)
		}
		_, at, err := b.Asked(p.ctx, k, call)
		if err != nil {
			return err
		}
		d.Call = call
		if _, err = b.Append(p.ctx, k, batch.ChainItem, at.Pool, at.Item, at.Seq, d); err == nil {
			_, err = b.WakeIfParked(p.ctx, k)
		}
		return err
	})
}

// The steps of directed histories.
const (
	acks    = "PUB $JS.ACK.TY_BATCH."
	wakes   = "HPUB ty.wake."
	tickets = "HPUB $KV.ty_ticket."
	starts  = "HPUB ty.batch.a1.bg"
	lists   = `^HPUB \$KV\.ty_approval\.\S+ \{`
	parked  = `\.batch\.parked\.`
	adopted = `\.batch\.adopted\.`
)

// directed are the plans of the directed histories.
var directed = map[attack]plan{
	lateExpiry: {
		workers: 1, approvalWait: 6 * time.Second, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("ask_read", ms), call("read", 3*time.Second), call("write", ms))}
		},
		acts: []act{
			{who: "d", step: lists, as: "former", do: hold(true, true, "former")},
			{wait: 6010 * ms, do: heal("former")},
		},
	},
	fullWakes: {
		workers: 1, patient: true, lasts: 5 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, call("ask_read", ms))} },
		acts: []act{
			{who: "d", step: parked},
			{wait: 500 * ms, do: fills("TY_BATCH", true)},
			{do: decides(0, client.Allow)},
			{wait: 1500 * ms, do: fills("TY_BATCH", false)},
		},
	},
	missedNext: {
		workers: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("write", 5*time.Second)), hands("a2", 500*ms, call("write", ms))}
		},
		acts: []act{
			{who: "d", step: `\.a2\.b1\._\.batch .*\.batch\.planned\.`, as: "former"},
			{wait: 200 * ms, do: cuts("former")},
			{who: "d", step: `\.a2\.b1\._\.batch .*` + adopted, as: "next"},
			{do: keeps(held{"next", "HPUB ty.reply.a2."})},
			{who: "w", step: `\.a2\.b1\.default\.0 .*\.call\.finished\.`},
			{who: "next", step: `^HPUB \$KV\.ty_ticket\.`, do: crashes("next")},
			{do: keeps()},
			{wait: 500 * ms, do: heal("former")},
		},
	},
	strayMessage: {
		dispatchers: 3, workers: 1, patient: true, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("ask_read", ms), call("write", 9*time.Second))}
		},
		acts: []act{
			{who: "d", step: parked, as: "parker", do: hold(false, true, "parker")},
			{wait: 100 * ms, do: decides(0, client.Allow)},
			{wait: 5 * time.Second, do: heal("parker")},
			{wait: time.Second, do: crashes(owner)},
		},
	},
	lateLetGo: {
		workers: 1, patient: true, lasts: 10 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, call("ask_read", 5*time.Second))} },
		acts: []act{
			{who: "d", step: parked, as: "parker", do: hold(false, true, "parker")},
			{do: keeps(held{"p3", wakes})},
			{do: decides(0, client.Allow)},
			{wait: 3 * time.Second, do: heal("parker")},
			{wait: time.Second, do: keeps()},
		},
	},
	ownNews: {
		workers: 1, patient: true, lasts: 10 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, call("ask_read", 5*time.Second))} },
		acts: []act{
			{who: "d", step: parked, as: "parker", do: hold(false, true, "parker")},
			{do: keeps(held{"p3", wakes})},
			{do: decides(0, client.Allow)},
			{who: "d", step: `^HPUB ty\.wake\.`, as: "waker"},
			{who: "waker", step: `^PUB \$JS\.ACK\.TY_BATCH\.`, do: keeps(held{"waker", "PUB $JS.API"}, held{"p3", wakes})},
			{do: heal("parker")},
			{wait: 200 * ms, do: keeps()},
		},
	},
	oldWake: {
		dispatchers: 3, workers: 1, patient: true, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("ask_read", 3*time.Second), call("ask_read", 3*time.Second),
				call("ask_read", 9*time.Second))}
		},
		acts: []act{
			{who: "d", step: parked},
			{wait: 4400 * ms, do: hold(true, false, "d1", "d2", "d3")},
			{do: decides(0, client.Allow)},
			{who: "p", step: `^HPUB ty\.wake\.`},
			{wait: 700 * ms, do: decides(1, client.Allow)}, // in the next five seconds, so that the wake is another one
			{who: "p", step: `^HPUB ty\.wake\.`, do: heal("d1", "d2", "d3")},
			{who: "d", step: adopted, as: "second", do: keepsAcksBut("second")},
			{who: "second", step: parked, do: decides(2, client.Allow)},
			{wait: 5 * time.Second, do: keeps()},
			{wait: 1500 * ms, do: crashes(owner)},
		},
	},
	otherInput: {
		workers: 1, patient: true, lasts: 5 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, call("ask_read", ms))} },
		acts: []act{{who: "d", step: lists, do: writesDecision(0, events.Decided{Decision: events.Approve,
			InputSHA256: strings.Repeat("0", 64)})}},
	},
	oldReads: {
		workers: 1, patient: true, lasts: 10 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", time.Second, call("ask_read", ms)).untilOthers(),
				hands("a2", 1300*ms, call("write", ms)), hands("a3", 0, call("write", ms))}
		},
		acts: []act{
			{who: "d", step: lists, as: "leaver", do: keeps(held{"leaver", tickets})},
			{who: "d", step: `^HPUB \$KV\.ty_ticket\.`, do: deposes("KV_ty_ticket", 4)}, // somebody joins
			{do: keeps()},
			{wait: 2 * time.Second, do: deposes("KV_ty_ticket", 0)},
		},
	},
	lostQuestion: {
		workers: 1, patient: true, lasts: 5 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("ask_read", ms), call("read", 3*time.Second))}
		},
		acts: []act{
			{who: "w", step: `call\.waiting`, do: drop(owner)},
			{wait: 150 * ms, do: writesDecision(0, events.Decided{Decision: events.Approve})},
		},
	},
	secondDoubts: {
		dispatchers: 1, workers: 1, people: true, patient: true, lasts: 140 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, call("waver", ms))} },
		acts: []act{
			{who: "w", step: `\.call\.claimed\.`, do: fills("TY_EVENT", true)},
			{wait: 125 * time.Second, do: hold(false, true, "d1")}, // longer than a worker tries to store a result
			{do: fills("TY_EVENT", false)},
			{wait: 5 * time.Second, do: heal("d1")},
		},
	},
	sharedOutage: {
		dispatchers: 1, workers: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, call("write", 500*ms))} },
		acts: []act{
			{who: "w", step: `\.call\.claimed\.`, wait: 100 * ms, do: cuts("d1", "w1")},
			{wait: 6 * time.Second, do: heal("d1")},
			{wait: time.Second, do: heal("w1")},
		},
	},
	oldGrant: {
		workers: 1, patient: true, lasts: 10 * time.Second,
		agents: func() []agentSpec {
			leaver := hands("a1", 0, call("ask_pop", ms), call("ask_pop", 3*time.Second), call("read", ms)).appends(2)
			b := leaver.batches[0]
			b.pause, b.cancel, b.canceled = 2*time.Second, 1100*ms, []int{0}
			return []agentSpec{leaver, hands("a2", 300*ms, call("write", time.Second)),
				hands("a3", 900*ms, call("write", 3*time.Second))}
		},
		acts: []act{
			{who: "d", step: lists, as: "leaver"},
			// it joins behind the first write, and leaves when that is over
			{who: "d", step: lists, wait: 450 * ms, do: decides(0, client.Allow)},
			{wait: 550 * ms, do: keeps(held{"leaver", "HPUB ty.event.a1.b1.default.0"})},
			{wait: 450 * ms, do: decides(1, client.Allow)},
			{wait: 100 * ms, do: keeps()},
		},
	},
	staleOutput: {
		workers: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("recall", ms)), hands("a2", 200*ms, call("write", 300*ms)),
				hands("a3", 400*ms, call("recall", ms)), hands("a4", 600*ms, call("recall", ms)),
				hands("a5", 12*time.Second, call("recall", ms))}
		},
		acts: []act{
			{who: "d", step: `\.a2\.b1\._\.batch .*\.batch\.planned\.`, as: "former"},
			{who: "w", step: `\.a2\.b1\.default\.0 .*\.call\.claimed\.`, wait: 350 * ms, do: cuts("former")},
			{wait: 8 * time.Second, do: heal("former")},
		},
	},
	someFiles: {
		workers: 2, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			view, edit := callOn("view", "a", 2*time.Second), callOn("edit", "b", time.Second)
			return []agentSpec{hands("a1", 0, view, call("read", 2*time.Second)).named(),
				hands("a2", 300*ms, edit).named(), hands("a3", 400*ms, callOn("edit", "./b", time.Second)).named(),
				hands("a4", 500*ms, callOn("view", "b", time.Second)).named(), hands("a5", 600*ms, edit)}
		},
	},
	staleFile: {
		workers: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("recall", ms)),
				hands("a2", 200*ms, callOn("edit", "a", 300*ms)).named(), hands("a3", 400*ms, call("recall", ms)),
				hands("a4", 600*ms, call("recall", ms)), hands("a5", 12*time.Second, call("recall", ms))}
		},
		acts: []act{
			{who: "d", step: `\.a2\.b1\._\.batch .*\.batch\.planned\.`, as: "former"},
			{who: "w", step: `\.a2\.b1\.default\.0 .*\.call\.claimed\.`, wait: 350 * ms, do: cuts("former")},
			{wait: 8 * time.Second, do: heal("former")},
		},
	},
	lostLeader: {
		workers: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("recall", 2*time.Second)),
				hands("a2", 100*ms, call("recall", 2*time.Second)), hands("a3", 200*ms, call("recall", 2*time.Second)),
				hands("a4", 12*time.Second, call("recall", 2*time.Second))}
		},
		acts: []act{{wait: time.Second, do: crashes("w1")}},
	},
	lateChild: {
		workers: 1, background: 1, lasts: 50 * time.Second,
		agents: func() []agentSpec {
			a := hands("a1", 0, script(call("send", ms)))
			a.batches[0].cancel = 2 * time.Second
			return []agentSpec{a, hands("a2", 40*time.Second, call("read", ms))}
		},
		acts: []act{
			{who: "w", step: `MSG\.GET\.TY_BATCH`, do: hold(false, true, "w1")}, // which hands in a call next
			{wait: 35 * time.Second, do: heal("w1")},
		},
	},
	deadScript: {
		workers: 2, background: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, script(call("look", 15*time.Second)))} },
		acts: []act{
			{who: "w", step: `\.a1\.b1\.default\.0 .*\.call\.claimed\.`, as: "runner"},
			{wait: 500 * ms, do: crashes("runner")},
		},
	},
	manyBehind: {
		workers: 2, background: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			start := func(at time.Duration) agentSpec { return hands("a1", at, behind(call("send", 3*time.Second))) }
			return []agentSpec{start(0).then(start(300*ms), start(600*ms))}
		},
	},
	forgedHandle: {
		workers: 2, background: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, call("read", 5*time.Second))} },
		acts: []act{{who: "d", step: `\.batch\.planned\.`, do: says(func(p *party, _ *client.Client) error {
			nc, err := p.connect()
			if err != nil {
				return err
			}
			defer nc.Close()
			b, err := natsbroker.Join(p.ctx, nc, "/person/"+p.name, nil)
			if err != nil {
				return err
			}
			for n := range 2 {
				forged := hands("a1", 0, call("send", 3*time.Second)).batches[0].batch
				forged.ID = toolyard.BackgroundID(forged.Key(), 5+n, false)
				forged.Options.CallTimeoutMS = 10_000
				forged.Normalize(forged.ID)
				if err := b.Submit(p.ctx, forged); err != nil {
					return err
				}
			}
			return nil
		})}},
	},
	failedStart: {
		workers: 2, background: 1, lasts: 10 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call(changingTool, 40*time.Second)).goesOn(time.Minute, 2*time.Second)}
		},
	},
	lateListing: {
		workers: 2, background: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call(changingTool, 40*time.Second)).goesOn(time.Minute, 2*time.Second),
				hands("a2", 12*time.Second, call("read", 9*time.Second))}
		},
		acts: []act{
			{who: "d", step: `\.batch\.planned\.`, do: keeps(held{"d", "HPUB $KV.ty_session."})},
			{wait: 9 * time.Second, do: keeps()},
		},
	},
	deadStarter: {
		workers: 2, background: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call(changingTool, 40*time.Second)).goesOn(time.Minute, 2*time.Second),
				hands("a2", 12*time.Second, call("read", 9*time.Second))}
		},
		acts: []act{
			{who: "d", step: `\.batch\.planned\.`, do: keeps(held{"d", starts})},
			{wait: 9 * time.Second, do: keeps()},
			{who: "d", step: "^" + starts, as: "starter", do: crashes("starter")},
		},
	},
	lateAnswer: {
		workers: 1, patient: true, inquiries: true, lasts: 20 * time.Second,
		agents: func() []agentSpec { return []agentSpec{hands("a1", 0, asking("", 2, ms))} },
		acts: []act{
			{who: "d", step: lists, do: keeps(held{"p3", "HPUB ty.event."})},
			{do: says(answersCall(0))},
			{wait: 500 * ms, do: anotherSays("p4", answersCall(0))},
			{who: "w", step: `call\.waiting`, wait: 500 * ms, do: keeps()},
		},
	},
	wrongRepairs: {
		workers: 1, repairs: true, lasts: 5 * time.Second,
		agents: func() []agentSpec {
			a := hands("a1", 0, malformed("edit", "a", ms), malformed("edit", wrongPath, ms))
			a.batches[0].batch.Options.Repair = true
			return []agentSpec{a}
		},
	},
	staleLine: {
		workers: 1, budget: 100, lasts: 30 * time.Second,
		agents: func() []agentSpec {
			short, long := call("write", 300*ms), call("write", 6*time.Second)
			return []agentSpec{hands("a1", 0, short, short, long, long)}
		},
		acts: []act{
			{who: "d", step: `\.batch\.planned\.`, as: "former"},
			{who: "w", step: `\.a1\.b1\.default\.0 .*\.call\.finished\.`},
			{who: "former", step: `GET\.KV_ty_budget`, do: hold(false, true, "former")},
			{wait: 2 * time.Second, do: heal("former")},
		},
	},
	lateNewer: {
		workers: 1, approvalWait: 6 * time.Second, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			a := hands("a1", 0, call("read", ms)).then(hands("a1", 2*time.Second, call("ask_read", ms)))
			a.batches[0].batch.Options.Supersede = true
			return []agentSpec{a}
		},
		acts: []act{
			{who: "d", step: `GET\.KV_ty_session`, as: "former", do: hold(false, true, "former")},
			{wait: 3 * time.Second, do: heal("former")},
		},
	},
	lateNote: {
		workers: 2, undoes: true, lasts: 25 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("write", time.Second)).undone(12 * time.Second),
				hands("a2", 2*time.Second, call("write", ms))}
		},
		acts: []act{
			{who: "w", step: `\.a1\.b1\.default\.0 .*\.call\.claimed\.`, as: "slow"},
			{wait: time.Second + 3*lookTime/2, do: stands("slow")},
			{wait: 10 * time.Second, do: heal("slow")},
		},
	},
	askedBetween: {
		workers: 1, patient: true, inquiries: true, undoes: true, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			ponders := asking("", 1, ms)
			ponders.Tool = "ponder"
			return []agentSpec{hands("a1", 0, ponders).undone(time.Second),
				hands("a2", 2*time.Second, call("write", ms))}
		},
		acts: []act{{who: "d", step: parked}, {wait: 4 * time.Second, do: says(answersCall(0))}},
	},
	failedWork: {
		workers: 1, undoes: true, lasts: 5 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, failing("write")).undone(ms),
				hands("a2", 3*time.Second, failing("shell")).undone(ms)}
		},
	},
	openWork: {
		workers: 1, patient: true, undoes: true, lasts: 10 * time.Second,
		agents: func() []agentSpec {
			a := hands("a1", 0, call("write", ms), call("ask_write", ms)).undone(2 * time.Second)
			a.batches[1].of = nil
			return []agentSpec{a}
		},
		acts: []act{{who: "d", step: parked}, {wait: 4 * time.Second, do: decides(1, client.Allow)}},
	},
	laidOnce: {
		workers: 2, overlays: true, lasts: 10 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", time.Second, call("recall", ms), patch("a", ms, 2), call("write", ms),
				call("recall", ms)).laid(2*time.Second, 1), hands("a2", 0, call("recall", ms))}
		},
	},
	laidOpen: {
		workers: 1, patient: true, overlays: true, lasts: 10 * time.Second,
		agents: func() []agentSpec {
			a := hands("a1", 0, patch("a", ms, 1), call("ask_read", ms)).laid(2*time.Second, 1)
			a.batches[1].of = nil
			return []agentSpec{a}
		},
		acts: []act{{who: "d", step: parked}, {wait: 4 * time.Second, do: decides(1, client.Allow)}},
	},
	laidApart: {
		workers: 2, overlays: true, apart: true, lasts: 30 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, patch("a", ms, 1), patch("b", ms, 1)).laid(ms, 1)}
		},
		acts: []act{
			{who: "w", step: `\.a1\.b1\.default\.0 .*\.call\.finished\.`, as: "first", do: stands("first")},
			{wait: 20 * time.Second, do: heal("first")},
		},
	},
	laidTwice: {
		workers: 2, overlays: true, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, patch("a", ms, 3), patch("b", ms, 3)).laid(time.Second, 2),
				hands("a2", 1200*ms, call("write", 300*ms), call("write", 300*ms), call("write", 300*ms))}
		},
	},
	laidCut: {
		workers: 2, overlays: true, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, patch("a", ms, 5), patch("b", ms, 5)).laid(time.Second, 1)}
		},
		acts: []act{
			{who: "w", step: `\.a1\.commit1-b1\.default\.0 .*\.call\.claimed\.`, as: "cut"},
			{wait: 100 * ms, do: crashes("cut")},
		},
	},
	foldRace: {
		workers: 1, lasts: 20 * time.Second,
		agents: func() []agentSpec {
			return []agentSpec{hands("a1", 0, call("read", 4200*ms), call("write", ms)).appends(1)}
		},
		acts: []act{
			{who: "d", step: `\.batch\.planned\.`, as: "former", do: keeps(held{"a1", "HPUB ty.event.a1.b1._.input"})},
			{wait: 200 * ms, do: hold(false, true, "former")},
			{who: "d", step: `_\.input"`, as: "next", do: keeps(held{"next", "PUB $JS.API"},
				held{"next", "HMSG ty.live."})},
			{do: heal("former")},
			// the batch is closed by then
			{who: "former", step: `\.batch\.extended\.`, wait: 20 * ms, do: drop("next")},
			{do: keeps()},
		},
	},
}

// keepsAcksBut keeps the acknowledgements of the first dispatcher that wants to acknowledge something and does not have
// a role, and the person's wakes.
func keepsAcksBut(role string) func(*stage) {
	return func(s *stage) {
		but, slow := s.party(role).name, ""
		s.w.bus.server().Hold(func(st membroker.Step) bool {
			if strings.HasPrefix(st.Party, "p") {
				return strings.HasPrefix(st.What, wakes)
			}
			if !strings.HasPrefix(st.What, acks) || st.Party == but {
				return false
			}
			if slow == "" {
				slow = st.Party
			}
			return st.Party == slow
		})
	}
}
