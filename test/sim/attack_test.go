package sim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/admission"
)

// attack is a small scenario with faults at the steps at which some fence matters, so that what is rare in others
// happens often. Empty: none; the history is drawn as others are.
type attack string

// The attacks.
const (
	silentWorkers attack = "workers are silent for long while they run calls"
	lateWorkers   attack = "workers are silent for just longer than anybody waits for them"
	slowAnswers   attack = "answers to workers come after the next heartbeat is due, and before a lease is over"
	briefSilence  attack = "workers are not heard for long enough that leases lapse, and not until tools have to stop"
	lostClaims    attack = "claims are not answered, and people are asked about the calls now and then"
	silentOwners  attack = "owners fall silent and come back"
	cutOwners     attack = "owners are cut off from workers that go on"
	openBatches   attack = "owners of open batches fall silent and come back"
	lostCopies    attack = "owners lose live copies"
	killedServer  attack = "the server is killed when it has just queued a read"
	oneQueue      attack = "batches come at one instant, for one workspace, through two dispatchers"
	slowParking   attack = "owners are slow to park batches that wait for people"
	lateWakes     attack = "people answer everything, however late, and wakes are lost"
	nobodyAnswers attack = "a batch waits for people who do not come, in the way of others"
	dyingOwners   attack = "owners are slow to let go of a batch that they park, and die soon after"
	sleepers      attack = "owners and workers stand still while their batches are taken over, end and are archived"
	keptOutputs   attack = "outputs answer other calls, while owners and workers are lost"
	undoneWork    attack = "batches are undone when they are over, while owners and workers are lost"
	laidWork      attack = "batches run on overlays that are committed or dropped, while owners and workers are lost"
	moreShards    attack = "batches come, some of them twice, while a system gets another shard"
	formerOwners  attack = "owners are cut off while calls wait, and hear of decisions before the next owner"
)

// plan is what an attack is made of.
type plan struct {
	dispatchers, workers int // 0: two
	// kinds are those of the calls of the first agent, and others those of the other's; nil: the same.
	kinds, others []string
	// least and work are how long a call works, at least and at most, and commits how many commit points it has, at
	// most; 0: one, and a read has none.
	least, work time.Duration
	commits     int
	// gap is how long after each other batches come, at most; 0: 3 s. batches is how many each agent has; 0: one.
	gap     time.Duration
	batches int
	// open says that calls are appended one by one.
	open bool
	// people says that people are there, last that they are not and that the first agent cancels its batch when all
	// others are over, and patient that they have time for ever.
	people, last, patient bool
	// queueWait is how long a call waits for a worker; 0: as in other histories.
	queueWait time.Duration
	// archiveAfter is how long batches are over before they are archived; 0: they are not.
	archiveAfter time.Duration
	// background is how many background calls a session may have at a time, where calls start batches; 0: none do.
	background int
	// inquiries says that some tools ask people while they run.
	inquiries bool
	// repairs says that workers mend inputs.
	repairs bool
	// undoes says that workers keep what workspaces were. All batches that are drawn are undone then.
	undoes bool
	// overlays says that batches run on overlays, which are committed or dropped, and apart that no two workers see the
	// same ones.
	overlays, apart bool
	// raised is how many shards the system gets when the agents have begun; 0: it keeps its one.
	raised int
	// budget is how many calls an agent may make; 0: any.
	budget int64
	// gentle says that nobody is lost for anything that happens.
	gentle   bool
	ambushes []ambush
	// agents are who is there and what they hand in; nil: it is drawn. approvalWait is how long people have, and lasts
	// for how long things may go wrong; 0: it is drawn.
	agents              func() []agentSpec
	approvalWait, lasts time.Duration
	acts                []act
}

// ambush is a fault that happens to a party at certain steps.
type ambush struct {
	at    *regexp.Regexp // what the step does
	odds  float64
	whom  string // how the names of its victims begin; empty: who makes the step
	kinds []fault
	// least and most are for how long, and within is how long after the step at most.
	least, most, within time.Duration
}

// Steps at which it matters that something goes wrong.
var (
	onCall    = regexp.MustCompile(`^HPUB ty\.event\..*\.default\.\d+`)
	onBatch   = regexp.MustCompile(`^HPUB ty\.event\..*\._\.batch`)
	onTicket  = regexp.MustCompile(`^HPUB \$KV\.ty_ticket\.`)
	onListing = regexp.MustCompile(`^HPUB \$KV\.ty_approval\.`)
	onReply   = regexp.MustCompile(`^HPUB ty\.reply\.`)
	onRead    = regexp.MustCompile(`^PUB \$JS\.API\.STREAM\.MSG\.GET\.TY_EVENT`)
	onQueue   = regexp.MustCompile(`^HPUB ty\.call\.READ`)
	onBeat    = regexp.MustCompile(`^(PUB \$JS\.ACK\.TY_CALL|HPUB \$KV\.ty_worker)`)
	onMap     = regexp.MustCompile(`^HPUB \$KV\.ty_shards\.`)
	onWake    = regexp.MustCompile(`^HPUB ty\.wake\.`)
)

// ms is a time in milliseconds.
const ms = time.Millisecond

// lost are the ways in which nobody hears of a party.
var lost = []fault{pause, deaf, mute, severed}

// parking is what goes wrong around batches that wait for people.
var parking = []ambush{
	{onListing, 0.3, "", []fault{pause, pause, mute, deaf, severed}, 200 * ms, 4000 * ms, 0},
	{onBatch, 0.1, "", []fault{pause, pause, mute, deaf, severed, crash}, 200 * ms, 4000 * ms, 0},
	{onWake, 0.2, "d", lost, 200 * ms, 4000 * ms, 0},
	{onTicket, 0.1, "", lost, 1000 * ms, 4000 * ms, 0},
	{onCall, 0.1, "", []fault{loses, mute, crash, pause}, 500 * ms, 5000 * ms, 0},
}

var plans = map[attack]plan{
	silentWorkers: {
		kinds: []string{"write", "put", "shell", "read"}, commits: 4, work: 6000 * ms,
		ambushes: []ambush{
			{onCall, 0.4, "", []fault{mute, mute, deaf, severed, pause}, 1500 * ms, 7000 * ms, 2000 * ms},
			{onCall, 0.1, "", []fault{mute, deaf, severed, pause, loses, crash}, 100 * ms, 5000 * ms, 0},
		},
	},
	lateWorkers: {
		kinds: []string{"put"}, commits: 2, least: 6000 * ms, work: 9000 * ms,
		ambushes: []ambush{{onCall, 0.5, "", []fault{mute, deaf, severed}, 4500 * ms, 6500 * ms, 500 * ms}},
	},
	slowAnswers: {
		kinds: []string{"write", "shell", "read", "put"}, commits: 4, work: 6000 * ms, gentle: true,
		ambushes: []ambush{{onBeat, 0.7, "", []fault{late}, 1200 * ms, 1400 * ms, 0}},
	},
	briefSilence: {
		kinds: []string{"write", "shell", "put"}, commits: 4, work: 6000 * ms, gentle: true,
		ambushes: []ambush{{onCall, 0.6, "w", []fault{mute}, 1800 * ms, 1850 * ms, 1500 * ms}},
	},
	lostClaims: {
		kinds: []string{"waver", "waver", "write", "put"}, work: 500 * ms, workers: 1, people: true, patient: true,
		ambushes: []ambush{
			{onCall, 0.2, "w", []fault{deaf}, 2300 * ms, 7000 * ms, 0},
			{onCall, 0.2, "w", []fault{dropped, severed}, ms, 1500 * ms, 0},
		},
	},
	silentOwners: {
		kinds: []string{"read", "write", "put", "send", "look"}, work: 500 * ms,
		ambushes: []ambush{
			{onBatch, 0.1, "", lost, 1000 * ms, 5000 * ms, 0}, {onTicket, 0.1, "", lost, 1000 * ms, 5000 * ms, 0},
			{onReply, 0.1, "", lost, 1000 * ms, 5000 * ms, 0}, {onCall, 0.05, "d", lost, 500 * ms, 4000 * ms, 0},
		},
	},
	sleepers: {
		kinds: []string{"read", "read", "look", "put", "write"}, work: 300 * ms, batches: 2, archiveAfter: 100 * ms,
		ambushes: []ambush{
			{onCall, 0.3, "", []fault{pause}, 6000 * ms, 9000 * ms, 0},
			{onReply, 0.3, "", []fault{pause}, 6000 * ms, 9000 * ms, 0},
		},
	},
	cutOwners: {
		kinds: []string{"write", "put", "shell"}, commits: 4, least: 4000 * ms, work: 9000 * ms,
		ambushes: []ambush{{onCall, 0.4, "d", []fault{severed}, 4500 * ms, 8000 * ms, 500 * ms}},
	},
	openBatches: {
		kinds: []string{"read", "read", "write"}, others: []string{"write"}, work: 2000 * ms, open: true,
		ambushes: []ambush{
			{onReply, 0.3, "", []fault{pause, mute, deaf}, 1300 * ms, 2500 * ms, 0},
			{onBatch, 0.1, "", []fault{pause, mute, deaf}, 1300 * ms, 2500 * ms, 0},
			{onRead, 0.02, "", []fault{late, pause, deaf}, 200 * ms, 1000 * ms, 0},
		},
	},
	lostCopies: {
		kinds: []string{"read", "write", "put", "ask_read", "send"}, work: 800 * ms, people: true,
		queueWait: time.Hour,
		ambushes: []ambush{
			{onCall, 0.3, "d", []fault{dropped, severed}, ms, 200 * ms, 20 * ms},
			{onQueue, 0.3, "d", []fault{dropped, severed}, ms, 200 * ms, 500 * ms},
		},
	},
	killedServer: {
		kinds: []string{"read", "read", "write"}, commits: 4, work: 2000 * ms,
		ambushes: []ambush{{onQueue, 0.5, "", []fault{kill}, ms, 100 * ms, 30 * ms}},
	},
	oneQueue: {
		kinds: []string{"write", "read", "put"}, work: 100 * ms, gap: ms, batches: 2,
		ambushes: []ambush{{onTicket, 0.05, "d", []fault{late, loses}, ms, 1000 * ms, 0}},
	},
	slowParking: {
		kinds: []string{"ask_read", "ask_write", "ask_write", "waver", "write"}, work: 300 * ms, people: true,
		ambushes: parking,
	},
	lateWakes: {
		kinds: []string{"ask_read", "ask_read", "ask_write", "read", "write"}, work: 1000 * ms, people: true,
		patient: true,
		ambushes: append([]ambush{
			{onCall, 0.3, "p", append([]fault{crash}, lost...), 200 * ms, 4000 * ms, 0},
			{onCall, 0.2, "d", []fault{dropped, severed}, ms, 200 * ms, 0},
		}, parking...),
	},
	nobodyAnswers: {
		kinds: []string{"write", "ask_write"}, others: []string{"write", "read"}, work: 300 * ms, last: true,
		patient: true, ambushes: parking,
	},
	dyingOwners: {
		kinds: []string{"ask_write", "ask_read"}, least: 2000 * ms, work: 6000 * ms, people: true,
		ambushes: []ambush{
			{onBatch, 0.4, "", []fault{pause}, 1500 * ms, 3000 * ms, 0},
			{onBatch, 0.35, "", []fault{crash}, 1000 * ms, 2000 * ms, 4000 * ms},
			{onListing, 0.2, "", []fault{pause}, 200 * ms, 1500 * ms, 0},
			{onWake, 0.2, "d", []fault{pause, crash}, 200 * ms, 3000 * ms, 1000 * ms},
		},
	},
	keptOutputs: {
		kinds: []string{"recall", "recall", "recall", "write"}, least: 500 * ms, work: 1500 * ms, batches: 3,
		commits: 2,
		ambushes: []ambush{
			{onBatch, 0.1, "", append([]fault{crash}, lost...), 500 * ms, 5000 * ms, 0},
			{onCall, 0.1, "w", append([]fault{crash}, lost...), 500 * ms, 6000 * ms, 400 * ms},
			{onTicket, 0.1, "", append([]fault{loses}, lost...), 500 * ms, 4000 * ms, 0},
		},
	},
	undoneWork: {
		kinds: []string{"write", "put", "shell", "read"}, commits: 3, work: 2000 * ms, gap: 20 * time.Second,
		undoes: true,
		ambushes: []ambush{
			{onBatch, 0.1, "", append([]fault{crash}, lost...), 500 * ms, 5000 * ms, 0},
			{onCall, 0.2, "w", append([]fault{crash, pause, pause}, lost...), 500 * ms, 8000 * ms, 1000 * ms},
			{onTicket, 0.1, "", append([]fault{loses}, lost...), 500 * ms, 4000 * ms, 0},
		},
	},
	laidWork: {
		kinds: []string{"write", "put", "shell", "read"}, commits: 3, work: 2000 * ms, gap: 10 * time.Second,
		overlays: true,
		ambushes: []ambush{
			{onBatch, 0.1, "", append([]fault{crash}, lost...), 500 * ms, 5000 * ms, 0},
			{onCall, 0.2, "w", append([]fault{crash, crash, pause, pause}, lost...), 500 * ms, 8000 * ms, 1000 * ms},
			{onTicket, 0.1, "", append([]fault{loses}, lost...), 500 * ms, 4000 * ms, 0},
		},
	},
	moreShards: {
		kinds: []string{"write", "read"}, commits: 2, work: 1500 * ms, gap: 4 * time.Second, batches: 4, raised: 2,
		ambushes: []ambush{
			{onBatch, 0.1, "", append([]fault{crash}, lost...), 500 * ms, 4000 * ms, 0},
			{onTicket, 0.1, "", append([]fault{loses}, lost...), 500 * ms, 4000 * ms, 0},
			{onMap, 0.3, "raiser", []fault{crash, loses, late, pause}, 10 * ms, 2000 * ms, 0},
		},
	},
	formerOwners: {
		kinds: []string{"read", "ask_read"}, others: []string{"write"}, least: 1000 * ms, work: 3000 * ms, commits: 4,
		people: true,
		ambushes: []ambush{
			{onListing, 0.5, "", []fault{severed}, 1500 * ms, 5000 * ms, 100 * ms},
			{onListing, 0.7, "p", []fault{mute}, 2000 * ms, 5000 * ms, 0},
		},
	},
}

// attacked makes the history one of an attack, whatever was drawn.
func (w *world) attacked(by attack) {
	p, ok := directed[by]
	if !ok {
		p = plans[by]
	}
	d := draws{w.random("attack")}
	w.quietAt = d.between(8*time.Second, 14*time.Second)
	w.fate = &fate{w: w, d: draws{w.random("faults of the attack")}, had: map[fault]bool{}, every: time.Hour,
		ambushes: p.ambushes, gentle: p.gentle}
	w.sc = &scenario{
		focus: anything, dispatchers: cmp.Or(p.dispatchers, 2), people: p.people, queueWait: p.queueWait,
		archiveAfter: p.archiveAfter, backgroundCalls: p.background,
		inquiries: p.inquiries, repairs: p.repairs, undoes: p.undoes, overlays: p.overlays, apart: p.apart,
		approvalWait: d.between(6*time.Second, 12*time.Second).Truncate(ms), workspaces: []toolyard.Workspace{"ws1"},
	}
	if w.sc.shards, w.sc.raised = 1, p.raised; p.raised > 0 {
		w.sc.lead = d.between(0, 4*time.Second)
	}
	if p.patient {
		w.sc.approvalWait = longWait
	}
	w.sc.approvalWait = cmp.Or(p.approvalWait, w.sc.approvalWait)
	if p.budget > 0 {
		w.sc.narrow = p.budget
		w.sc.budgets = admission.Budgets{ofAgents(p.budget)}
	}
	w.quietAt = cmp.Or(p.lasts, w.quietAt)
	w.stage = newStage(w, slices.Clone(p.acts))
	for range cmp.Or(p.workers, 2) {
		w.sc.workers = append(w.sc.workers, workerSpec{classes: toolyard.Classes, slots: 1 + d.IntN(2)})
	}
	if p.agents != nil {
		w.sc.agents = p.agents()
		return
	}
	for i := range 2 {
		a := agentSpec{name: toolyard.Agent(fmt.Sprint("a", i+1))}
		for n := range cmp.Or(p.batches, 1) {
			b := p.batch(d, &a, i, n)
			b.batch.Workspace = w.sc.workspaces[0]
			a.batches = append(a.batches, b)
		}
		for _, b := range slices.Clone(a.batches) {
			if p.undoes {
				b.batch.Options.Snapshot = true
				u := undoing(b, client.Undoing{})
				u.submit = d.between(0, 3*time.Second)
				a.batches = append(a.batches, u)
			}
			if p.overlays && d.lay(b) {
				a.batches = append(a.batches, d.uses(b)...)
			}
		}
		w.sc.agents = append(w.sc.agents, a)
	}
}

// batch draws an agent's batch.
func (p *plan) batch(d draws, a *agentSpec, agent, n int) *batchSpec {
	b := &batchSpec{submit: d.between(0, cmp.Or(p.gap, 3*time.Second))}
	b.batch = toolyard.Batch{
		ID: toolyard.BatchID(fmt.Sprint("b", n+1)), Agent: a.name, Session: "s", Interactive: p.people,
		Options: toolyard.Options{
			Partition: toolyard.Consecutive, OnError: toolyard.Continue, MaxConcurrency: 1 + d.IntN(4),
			TimeoutMS: longWait.Milliseconds(),
		},
	}
	if p.raised > 0 && d.one(2) {
		b.twice, b.again = true, d.between(ms, 3*time.Second)
	}
	kinds := p.kinds
	if agent > 0 && p.others != nil {
		kinds = p.others
	}
	if p.last && agent == 0 {
		b.last, b.batch.Interactive = true, true
	}
	for i := range 1 + d.IntN(5) {
		k, _ := kindOf(pick(d, kinds))
		in := input{WorkMS: d.between(max(p.least, ms), p.work).Milliseconds(), Ignores: d.one(4)}
		if k.recalls { // the same input each time
			in = input{WorkMS: p.least.Milliseconds()}
		} else if p.commits > 0 || !k.class.Safe() {
			in.Commits = 1 + d.IntN(max(p.commits, 1))
		}
		b.batch.Calls = append(b.batch.Calls, toolyard.Call{ID: fmt.Sprint("c", i), Tool: k.name, Input: raw(in)})
	}
	b.first = len(b.batch.Calls)
	if p.open {
		b.open, b.closes, b.first, b.pause = true, true, d.IntN(2), d.between(ms, 2*time.Second)
	}
	return b
}
