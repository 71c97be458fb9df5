package broker

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/presence"
	"github.com/toolyard/toolyard/internal/ticket"
)

// Log is the events of batches. Everything that must happen once uses one primitive, Append.
type Log interface {
	// Append stores an event at the end of a chain of a batch, if the chain's last sequence is the expected one. It
	// returns the new event's record; [ErrConflict] if the chain has another end; [ErrFull] if the stream is full. An
	// append whose answer is lost is repeated, and recognises its own event, until ctx ends. pool is used only in call
	// chains.
	Append(ctx context.Context, k toolyard.BatchKey, c batch.Chain, pool toolyard.Pool, index int, expected uint64,
		body events.Body) (batch.Record, error)

	// Fold reads what the owner of a batch must know to continue it.
	Fold(ctx context.Context, k toolyard.BatchKey) (batch.State, error)
	// Resume is Fold for a takeover: it also reports losses that a fold does not need.
	Resume(ctx context.Context, k toolyard.BatchKey) (batch.State, error)
	// Look is Fold for readers: it skips events that only a newer version knows.
	Look(ctx context.Context, k toolyard.BatchKey) (batch.State, error)
	// CatchUp reads the events of a chain after the state, and applies them.
	CatchUp(ctx context.Context, s *batch.State, c batch.Chain, index int) error
	// Newer reads the events of a chain after the state, and does not change the state.
	Newer(ctx context.Context, s *batch.State, c batch.Chain, index int) ([]batch.Record, error)
	// Item reads the events of an item's chain after a sequence.
	Item(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, item int, after uint64) ([]batch.Record, error)
	// ItemLost returns a [*LostError] if events of an item's chain are lost.
	ItemLost(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, item int) error

	// Submitted and Planned report whether a batch has a submission, and whether its batch chain has begun.
	Submitted(ctx context.Context, k toolyard.BatchKey) (bool, error)
	Planned(ctx context.Context, k toolyard.BatchKey) (bool, error)
	// Origin reads where a batch came from; it wraps [ErrNoBatch] if there is none.
	Origin(ctx context.Context, k toolyard.BatchKey) (Origin, error)
	// Find returns nil if there is a batch, [ErrNoBatch] if there is none, and a [*LostError] if its submission is
	// lost.
	Find(ctx context.Context, k toolyard.BatchKey) error
	// Forsaken returns a [*LostError] if a batch will never be answered, for a waiter that has seen replies up to a
	// sequence.
	Forsaken(ctx context.Context, k toolyard.BatchKey, seen uint64) error
	// AsPlanned returns the batch as its plan describes it, for use if its submission is lost; nil if it has no plan.
	AsPlanned(ctx context.Context, k toolyard.BatchKey) (*toolyard.Batch, error)

	// RepliesFrom reads the replies of a batch after a sequence, in order, and so many at most.
	RepliesFrom(ctx context.Context, k toolyard.BatchKey, after uint64, most int) ([]batch.Record, error)
	// Ended reports whether no reply of a batch follows one, as far as is stored now.
	Ended(ctx context.Context, k toolyard.BatchKey, seq uint64) (bool, error)
	// EndReplies ends a batch whose log cannot be followed. EndItems ends the calls of one whose submission and plan
	// cannot be read.
	EndReplies(ctx context.Context, k toolyard.BatchKey, sub *toolyard.Batch, why string) error
	EndItems(ctx context.Context, k toolyard.BatchKey, why string) error
	// CloseInput has an open batch that is refused take no more calls.
	CloseInput(ctx context.Context, k toolyard.BatchKey) error
	// RefuseBehind tells waiters that no more replies come.
	RefuseBehind(ctx context.Context, k toolyard.BatchKey, why events.Refused) error

	// Tail reads everything stored about a batch, from its submission on; TailAt begins after two sequences.
	Tail(k toolyard.BatchKey) Tail
	TailAt(k toolyard.BatchKey, event, reply uint64) Tail
}

// Tail reads what is stored about one batch: each event once, none left out, and no reply before the results in it. It
// is not safe for concurrent use.
type Tail interface {
	// Next returns the next event; ok is false if no more is stored at this time. The first call wraps [ErrNoBatch] if
	// there is no such batch.
	Next(ctx context.Context) (l Logged, ok bool, err error)
}

// History is what a system has run, as far as it is kept.
type History interface {
	// Kept yields the submissions of an agent, or of all if it is empty, in the order in which they were stored, up to
	// the last one that is stored now; archived ones come later, each once. If since or until is not zero, it yields
	// those that were stored from the one on, and before the other. What expires meanwhile may be missing. After an
	// error it yields nothing.
	Kept(ctx context.Context, agent toolyard.Agent, since, until time.Time) iter.Seq2[Kept, error]
	// Newest returns the newest of them, the newest first, and so many at most. cut says that there are others. It
	// reads little more than these, however many others there are.
	Newest(ctx context.Context, agent toolyard.Agent, since, until time.Time, most int) (list []Kept, cut bool,
		err error)
	// Tail is that of [Log], and Surface that of [Blobs].
	Tail(k toolyard.BatchKey) Tail
	Surface(ctx context.Context, hash string) ([]byte, error)
}

// Kept is a submission that is kept: whose it is, its sequence, and when it was stored.
type Kept struct {
	Key   toolyard.BatchKey
	Place uint64
	Time  time.Time
}

// Inbox receives what agents submit, and wakes for parked batches.
type Inbox interface {
	// Submit stores a batch. If it returns nil, the batch is accepted. Submitting the same batch again is accepted
	// again and runs nothing; other content under its id wraps [ErrOtherContent].
	Submit(ctx context.Context, sub toolyard.Batch) error
	// Submissions starts to take submissions for one dispatcher.
	Submissions() (Submissions, error)
	// WakeIfParked wakes a batch if it is parked. Controlled reports whether anything was requested of it since.
	WakeIfParked(ctx context.Context, k toolyard.BatchKey) (parked bool, err error)
	Controlled(ctx context.Context, k toolyard.BatchKey) (bool, error)
}

// Submissions delivers batches to one dispatcher.
type Submissions interface {
	// Next waits for a submission. It skips temporary errors; [ErrStopped] is the end. A message under a subject that
	// names no batch is refused, and reported as an [*events.UnreadableError].
	Next(ctx context.Context) (*Submission, error)
	// Stop ends Next. Messages that are on their way are given back.
	Stop()
}

// Control is what people and agents can request of running batches.
type Control interface {
	// Cancel asks that calls of a batch end as canceled; without calls, all of them. It wraps [ErrNoBatch],
	// [ErrCompleted] and [ErrNoCall].
	Cancel(ctx context.Context, k toolyard.BatchKey, reason string, calls ...int) error
	// Interrupt asks the batches of a session to stop that were submitted before: calls that have not started do not
	// start, and running ones are stopped if their tool permits it. It returns how many batches it has asked; those
	// that are not planned yet are not among them, and find it in the session.
	Interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, reason string) (batches int, err error)
	// InterruptBatch asks one batch to stop. Repeating a request stores nothing.
	InterruptBatch(ctx context.Context, k toolyard.BatchKey, wish events.Interrupted) error
}

// Queue is the calls that wait for workers.
type Queue interface {
	// QueueAll queues calls of one batch for the workers of their routes in a lane, one message each, and returns an
	// outcome for each.
	QueueAll(ctx context.Context, lane int, calls []batch.Queue) []Queued
	// Unqueue removes a message from the queue, wherever it is. Withdraw removes those of one route and lane, and
	// returns those that were never delivered to a worker.
	Unqueue(ctx context.Context, seq uint64) error
	Withdraw(ctx context.Context, r batch.Route, lane int, seqs []uint64) (never []uint64, err error)
	// DeleteAcknowledged deletes messages that are acknowledged and are still in the queue, because the server was
	// killed, and returns how many.
	DeleteAcknowledged(ctx context.Context) (int, error)
	// Lane opens a lane of a route. Messages that have come and were not taken when the lane is stopped go to unwanted,
	// which must give them back; if it is nil, the lane gives them back.
	Lane(ctx context.Context, r batch.Route, lane int, unwanted func(*Delivery)) (Lane, error)
	// Lanes is how many lanes each route has, from 0 on. more is closed when there are more.
	Lanes() (n int, more <-chan struct{})
}

// Lane is one lane of a route, from which one worker takes calls.
type Lane interface {
	// Take requests up to n messages and yields them as they come, until the request is over. A [*BadWorkError] is
	// about one message only; any other error is the end, and [ErrStopped] the regular one.
	Take(ctx context.Context, n int) iter.Seq2[*Delivery, error]
	// Stop ends Take. Messages that are on their way are given back.
	Stop()
}

// Tickets are the ticket queues of workspaces.
type Tickets interface {
	// Tickets reads a workspace's queue. The answer may be outdated; a change based on it then fails and is repeated.
	Tickets(ctx context.Context, w toolyard.Workspace) (TicketQueue, error)
	// ChangeTickets applies a change to a workspace's queue: read, change, compare and set, until it succeeds.
	ChangeTickets(ctx context.Context, known TicketQueue,
		change func(ticket.Queue) (ticket.Queue, error)) (TicketQueue, error)
	// DeleteTickets deletes the key of an empty queue as it was seen, and nothing that was stored since.
	DeleteTickets(ctx context.Context, seen TicketQueue) error
	// WatchTickets calls see with every queue and with each later change, until ctx ends.
	WatchTickets(ctx context.Context, see func(TicketQueue, error)) error
}

// Registry is the live workers.
type Registry interface {
	// Beat writes the worker's key once; the key expires after the worker TTL. Gone removes it.
	Beat(ctx context.Context, w Worker) error
	Gone(ctx context.Context, id string) error
	Workers(ctx context.Context) ([]Worker, error)
	// WatchWorkers calls see with every entry and with each later change, until ctx ends. A value on again restarts the
	// watch, because it has missed something.
	WatchWorkers(ctx context.Context, again <-chan struct{}, see func(WorkerChange, error)) error
	// ReadEntry reads a worker's entry from the leader. LastEntry is the revision of the newest entry.
	ReadEntry(ctx context.Context, id string) (presence.Reading, error)
	LastEntry(ctx context.Context) (uint64, error)
}

// Usages is what dispatchers tell each other of their use of quotas.
type Usages interface {
	// ReportUsage stores what a dispatcher uses; it expires after the worker TTL. EndUsage removes it.
	ReportUsage(ctx context.Context, dispatcher string, r UsageReport) error
	EndUsage(ctx context.Context, dispatcher string) error
	// WatchUsage calls see with every report and each later change, until ctx ends. It makes what it needs if it is
	// not there.
	WatchUsage(ctx context.Context, see func(UsageChange, error)) error
}

// Budgets are the accounts of budgets that several batches share.
type Budgets interface {
	// ChangeBudget changes an account with a compare-and-set; change may be called several times. It makes what it
	// needs if it is not there.
	ChangeBudget(ctx context.Context, account string,
		change func(admission.Account) (admission.Account, error)) (admission.Account, error)
	// Budgets reads the accounts of an agent's session, of the agent, and of its teams, by their names.
	Budgets(ctx context.Context, a toolyard.Agent, s toolyard.Session) (map[string]admission.Account, error)
}

// UsageReport is what a dispatcher uses of quotas. Number counts its reports.
type UsageReport struct {
	Number uint64                              `json:"number"`
	Usage  map[admission.Scope]admission.Usage `json:"usage"`
}

// UsageChange is an event of a watch of the reports. One of Dispatcher and State is set.
type UsageChange struct {
	Dispatcher string
	// Report is nil if the dispatcher is gone.
	Report *UsageReport
	// Revision is one more than that of the event before, unless some were left out that have newer ones.
	Revision uint64
	State    WatchState
}

// Sessions is the stored state of conversations between their batches.
type Sessions interface {
	// Session reads a session; one that was never changed is new.
	Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (Session, error)
	// ChangeSession changes a session with a compare-and-set; change may be called several times. A change that exceeds
	// a limit wraps [ErrFull], and is not stored.
	ChangeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session, change func(*Session)) (Session, error)
}

// Deaths is which batches may end the processes of their dispatchers.
type Deaths interface {
	// Deaths returns how many dispatchers in a row have ended soon after they took a batch up. SetDeaths stores it.
	Deaths(ctx context.Context, k toolyard.BatchKey) (int, error)
	SetDeaths(ctx context.Context, k toolyard.BatchKey, n int) error
}

// Approvals is the list of calls that wait for a person.
type Approvals interface {
	// PutApproval lists a call, with what it asks. A question that was asked later stays in its place.
	PutApproval(ctx context.Context, a Approval) error
	// DropApproval takes a call off the list whose question of that time was answered. One that was asked later stays.
	DropApproval(ctx context.Context, k toolyard.BatchKey, index int, asked time.Time) error
	// Approvals returns the waiting calls, newest first.
	Approvals(ctx context.Context, agent toolyard.Agent) ([]Approval, error)
	WatchApprovals(ctx context.Context, see func(ApprovalChange)) error
	// Asked reads from the log what a person is asked about a call, and where the decision goes. It wraps
	// [ErrNoApproval] if the call does not wait.
	Asked(ctx context.Context, k toolyard.BatchKey, index int) (events.Waiting, ItemEnd, error)
}

// Blobs are objects that are too long for an event: surfaces, offloaded results, changed inputs.
type Blobs interface {
	PutSurface(ctx context.Context, hash string, content []byte) error
	// Surface wraps [ErrNoObject] if there is none of that hash.
	Surface(ctx context.Context, hash string) ([]byte, error)
	// PutResult offloads a result of an agent. Result reads it, and wraps [tool.ErrNoBlob] if there is none.
	PutResult(ctx context.Context, agent toolyard.Agent, content []byte) (ref string, err error)
	Result(ctx context.Context, agent toolyard.Agent, ref string) ([]byte, error)
	PutInput(ctx context.Context, agent toolyard.Agent, input []byte) (ref string, err error)
	ChangedInput(ctx context.Context, agent toolyard.Agent, ref string) ([]byte, error)
}

// DeadLetters are messages that could not be used, and batches that were given up.
type DeadLetters interface {
	// Bury records a dead letter with the beginning of its data.
	Bury(ctx context.Context, l DeadLetter, data []byte) error
	// DeadLetters returns the newest dead letters, newest first.
	DeadLetters(ctx context.Context, most int) ([]DeadLetter, error)
}

// Clock is the clock that stamps what is stored.
type Clock interface {
	// Clock reads the clock of the server that leads the batch stream.
	Clock(ctx context.Context) (time.Time, error)
}

// Space says how full the store is.
type Space interface {
	// Fill examines everything that running batches write to, and returns the fullest.
	Fill(ctx context.Context) (Fill, error)
	// Room asks how much space the NATS server has. OnRoom answers in the process that has the server, until the
	// returned function is called.
	Room(ctx context.Context) (Room, error)
	OnRoom(room func() Room, failed func(error)) (stop func() error, err error)
}

// Asking is the requests of dispatchers to workers, and the workers' answers. The functions that end an answering wait
// for requests that are being answered.
type Asking interface {
	// Judge asks workers of a pool for the classes of calls, and returns one answer for each.
	Judge(ctx context.Context, pool toolyard.Pool, calls []JudgeCall) ([]Judged, error)
	// Check asks a worker of a pool whether a call could run with another input.
	Check(ctx context.Context, pool toolyard.Pool, r events.Requested) (Judged, error)
	// Repair asks a worker of a pool for inputs that its program's own repair makes. Calls without an answer have none.
	Repair(ctx context.Context, pool toolyard.Pool, calls []JudgeCall) ([]Judged, error)
	// DryRun asks a worker of a pool what would happen to the one call of a request.
	DryRun(ctx context.Context, pool toolyard.Pool, r events.Requested) (Judged, error)
	OnJudge(pool toolyard.Pool, judge func(context.Context, []JudgeCall) []Judged,
		failed func(error)) (stop func() error, err error)
	// Holds asks a worker whether it has one of these calls.
	Holds(ctx context.Context, worker string, k toolyard.BatchKey, calls ...int) (has, answered bool, err error)
	// OutputTail asks a worker for the end of the output of a background call. It is empty if the worker does not
	// answer.
	OutputTail(ctx context.Context, worker string, k toolyard.BatchKey, call int) (OutputTail, error)
	OnHolds(worker string, has func(k toolyard.BatchKey, index int) bool,
		tail func(k toolyard.BatchKey, index int) OutputTail, failed func(error)) (stop func() error, err error)
}

// Signals are sent to current listeners, and are not stored.
type Signals interface {
	// Abort tells all workers to stop calls at once.
	Abort(n AbortNotice) error
	OnAbort(stop func(AbortNotice, error)) (end func() error, err error)
	// Report sends progress of a call, and TellWaiting says that a batch waits for its turn.
	Report(k toolyard.BatchKey, p Progress) error
	TellWaiting(k toolyard.BatchKey, w Waiting) error
}

// LiveMsg is a live copy of something stored, or progress of a running call. The feed that delivered it can read it.
type LiveMsg = nats.Msg

// Live is live copies of what is stored. They are hints to read: some may be missing.
type Live interface {
	// FollowEvents starts a feed of one batch's events, in which so many copies wait for a reader. Subscribe first,
	// then read: nothing falls between.
	FollowEvents(k toolyard.BatchKey, room int) (Feed, error)
	// Hub is the live copies of batches for one process: with all through one subscription for each kind, else through
	// one for each batch that is followed.
	Hub(all bool) Hub
}

// Feed is the live copies of what is stored about one batch.
type Feed interface {
	Copies() <-chan *LiveMsg
	// Lost reports whether copies may have been lost since the last call.
	Lost() bool
	// Head parses the position of a copy's event: a record without a body.
	Head(m *LiveMsg) (batch.Record, error)
	// Record reads a copy. before is the sequence of the previous event of its chain, by which a reader detects a gap.
	Record(ctx context.Context, m *LiveMsg) (r batch.Record, before uint64, err error)
	// WorkerOf returns the worker that wrote an event of a pool's calls; "" if no worker of that pool did.
	WorkerOf(m *LiveMsg, pool toolyard.Pool) string
	Stop() error
}

// NewBatchWait is how long a follower of a new batch waits for a live copy before it reads what is stored.
const NewBatchWait = 20 * time.Millisecond

// Hub is the live copies of batches for one process, however many follow.
type Hub interface {
	// Follower follows a batch after these sequences of events and replies, ReplyFollower after one of replies. Of a
	// batch that is new, which was stored a moment ago, the latter reads what is stored only when nothing has come for
	// [NewBatchWait].
	Follower(ctx context.Context, k toolyard.BatchKey, event, reply uint64) (Follower, error)
	ReplyFollower(ctx context.Context, k toolyard.BatchKey, after uint64, isNew bool) (ReplyFollower, error)
	// Progress follows the progress of a batch's running calls. Everything follows what is stored about all batches of
	// an agent, or of all agents if it is empty.
	Progress(ctx context.Context, k toolyard.BatchKey) (Follow, error)
	Everything(ctx context.Context, agent toolyard.Agent) (Follow, error)
	// Settle waits until followers can take everything that the connection has received. Subscriptions are delivered
	// side by side: what was received first may otherwise be taken later. It returns the context's cause if that ends
	// first.
	Settle(ctx context.Context) error
	// Read reads a copy of something stored, and ReadProgress the progress of a call.
	Read(ctx context.Context, m *LiveMsg) (toolyard.BatchKey, Logged, error)
	ReadProgress(m *LiveMsg) (p Progress, ok bool)
}

// Follow is one follower of a hub. It is safe for concurrent use.
type Follow interface {
	// News receives a value when there may be something to take.
	News() <-chan struct{}
	// Take returns what has come since the last call. lost says that there was more, which was dropped: then it returns
	// nothing, and the follower must read what is stored.
	Take() (msgs []*LiveMsg, lost bool)
	Stop()
}

// Follower reads what is stored about a batch as [Tail] does, and then each new event. It is not safe for concurrent
// use.
type Follower interface {
	News() <-chan struct{}
	// Next returns the next event; ok is false if no more is known to be stored. After an error it may be called again.
	Next(ctx context.Context) (l Logged, ok bool, err error)
	// Reread has Next read what is stored, although nothing is known to be missing.
	Reread()
	Stop()
}

// ReplyFollower reads the replies of a batch as [Follower] reads its events.
type ReplyFollower interface {
	News() <-chan struct{}
	Next(ctx context.Context) (r batch.Record, ok bool, err error)
	Reread()
	Stop()
}

// Link is the connection itself.
type Link interface {
	// Settings returns the system's settings. Who returns whose account the connection uses; the zero Principal if
	// there are no accounts.
	Settings() Settings
	Who() access.Principal
	// Renew reads the system's settings again, which somebody may have changed, and returns them as they were and as
	// they are.
	Renew(ctx context.Context) (was, now Settings, err error)
	// Reconnects counts how often the connection was restored. Away reports whether it is lost, or was until a moment
	// ago.
	Reconnects() uint64
	Away() bool
	// Present waits until there is a connection, for a limited time. WhilePresent returns a context that ends with
	// [ErrNoAnswer] as its cause when the connection is lost.
	Present(ctx context.Context) error
	WhilePresent(ctx context.Context) (context.Context, context.CancelFunc)
	// CheckRoundTrip returns an error if the round trip to NATS is too long for a worker to keep its leases.
	CheckRoundTrip() error
	// MayPass reports whether a failed operation may succeed if it is repeated.
	MayPass(err error) bool
	// Quiet returns a log that writes errors of a lost connection at the level debug.
	Quiet(log *slog.Logger) *slog.Logger
}

// Guests are agents and workers with their own accounts, whose requests a dispatcher answers.
type Guests interface {
	// AnswerGuests answers until the returned Answering is closed. It also answers what all workers ask for background
	// calls, and passes on what guests tell of the batches that run here.
	AnswerGuests(log *slog.Logger, workers func() []Worker, check func(hash string, content []byte) error,
		background func(context.Context, toolyard.Pool, BackgroundAsk) (BackgroundAnswer, error),
		runs func(toolyard.BatchKey) bool) (Answering, error)
}

// Backgrounds is how workers ask a dispatcher for calls of the tools of background calls.
type Backgrounds interface {
	// Background has a dispatcher do what an open call of a pool says.
	Background(ctx context.Context, pool toolyard.Pool, q BackgroundAsk) (BackgroundAnswer, error)
}

// Answering is a dispatcher's answering of guests. Close ends it, and returns when no request is being answered any
// more.
type Answering interface{ Close() error }
