package broker

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/presence"
	"github.com/toolyard/toolyard/internal/ticket"
)

// Log is the events of batches. Everything that must happen once is one primitive, Append.
type Log interface {
	// Append stores an event at the end of a chain of a batch, if the chain's last sequence is still expected. It
	// returns the new event's record; [ErrConflict] when the chain ends elsewhere; [ErrFull] when the stream takes
	// nothing more. An append whose answer is lost is repeated, and finds itself, until ctx ends. pool is used in call
	// chains only.
	Append(ctx context.Context, k toolyard.BatchKey, c batch.Chain, pool toolyard.Pool, index int, expected uint64,
		body events.Body) (batch.Record, error)

	// Fold reads what the owner of a batch must know to go on.
	Fold(ctx context.Context, k toolyard.BatchKey) (batch.State, error)
	// Resume is Fold for whoever takes a batch over: it also reports what is lost where a fold does not need it.
	Resume(ctx context.Context, k toolyard.BatchKey) (batch.State, error)
	// Look is Fold for who only looks: it passes over events that only a newer version knows.
	Look(ctx context.Context, k toolyard.BatchKey) (batch.State, error)
	// CatchUp reads what a chain has beyond the state, and applies it.
	CatchUp(ctx context.Context, s *batch.State, c batch.Chain, index int) error
	// Newer reads what a chain has beyond the state, and leaves the state as it is.
	Newer(ctx context.Context, s *batch.State, c batch.Chain, index int) ([]batch.Record, error)
	// CallEnd reads the last event of a call's chain. Answered reports whether that is its result.
	CallEnd(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, index int) (batch.Record, error)
	Answered(ctx context.Context, k toolyard.BatchKey, pool toolyard.Pool, index int) (bool, error)

	// Submitted and Planned report whether a batch has a submission, and whether its own chain has begun.
	Submitted(ctx context.Context, k toolyard.BatchKey) (bool, error)
	Planned(ctx context.Context, k toolyard.BatchKey) (bool, error)
	// Find is nil when there is a batch, [ErrNoBatch] when there is none, and a [*LostError] when its submission is
	// lost.
	Find(ctx context.Context, k toolyard.BatchKey) error
	// Forsaken is a [*LostError] when nobody will answer a batch any more, for who waits for replies behind a sequence.
	Forsaken(ctx context.Context, k toolyard.BatchKey, seen uint64) error
	// AsPlanned is what the plan of a batch says of it, for when its submission is lost; nil when it has none.
	AsPlanned(ctx context.Context, k toolyard.BatchKey) (*toolyard.Batch, error)

	// Replies reads the replies of a batch after a sequence, in order. RepliesFrom reads so many at most.
	Replies(ctx context.Context, k toolyard.BatchKey, after uint64) ([]batch.Record, error)
	RepliesFrom(ctx context.Context, k toolyard.BatchKey, after uint64, most int) ([]batch.Record, error)
	// Ended reports whether nothing follows a reply of a batch, as far as is stored now.
	Ended(ctx context.Context, k toolyard.BatchKey, seq uint64) (bool, error)
	// EndReplies ends a batch whose log cannot be followed. RefuseBehind tells whoever waits that no more replies come.
	EndReplies(ctx context.Context, k toolyard.BatchKey, sub *toolyard.Batch, why string) (ran bool, err error)
	RefuseBehind(ctx context.Context, k toolyard.BatchKey, why events.Refused) error

	// Tail reads all that is stored about a batch, from its submission on; TailAt behind two sequences.
	Tail(k toolyard.BatchKey) Tail
	TailAt(k toolyard.BatchKey, event, reply uint64) Tail
	// Follow calls see with all that is stored about a batch and then, if live is set, with each event as it is stored.
	Follow(ctx context.Context, k toolyard.BatchKey, live bool, reread time.Duration, see func(Logged) error) error
}

// Tail reads what is stored about one batch, each event once and none left out, in an order in which no reply comes
// before the results in it. It is not safe for concurrent use.
type Tail interface {
	// Next returns the next event; ok is false when nothing more is stored by now. The first one wraps [ErrNoBatch]
	// when there is no such batch.
	Next(ctx context.Context) (l Logged, ok bool, err error)
}

// Inbox is what agents submit, and what wakes parked batches.
type Inbox interface {
	// Submit stores a batch. When it returns nil the batch is accepted. The same batch again is accepted again and runs
	// nothing; other content under its id wraps [ErrOtherContent].
	Submit(ctx context.Context, sub toolyard.Batch) error
	// Input appends calls to an open batch, or closes it. It wraps [ErrClosed] when the batch is closed.
	Input(ctx context.Context, k toolyard.BatchKey, after uint64, body events.Body) (uint64, error)
	// Submissions starts to take submissions for one dispatcher.
	Submissions() (Submissions, error)
	// WakeIfParked wakes a batch if it is parked. Controlled reports whether anything was asked of it since.
	WakeIfParked(ctx context.Context, k toolyard.BatchKey) (parked bool, err error)
	Controlled(ctx context.Context, k toolyard.BatchKey) (bool, error)
}

// Submissions delivers batches to one dispatcher.
type Submissions interface {
	// Next waits for a submission. Errors that pass are passed over; [ErrStopped] is the end. A message under a subject
	// that names no batch is refused, and reported as an [*events.UnreadableError].
	Next(ctx context.Context) (*Submission, error)
	// Stop ends Next. What is on its way is given back.
	Stop()
}

// Control is what people and agents ask of batches that run.
type Control interface {
	// Cancel asks for calls of a batch to end as canceled, for all of them when none is named. It wraps [ErrNoBatch],
	// [ErrCompleted] and [ErrNoCall].
	Cancel(ctx context.Context, k toolyard.BatchKey, reason string, calls ...int) error
	// Interrupt cancels the batches of a session that run, and returns how many there were.
	Interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, reason string) (batches int, err error)
}

// Queue is the calls that wait for workers.
type Queue interface {
	// QueueAll hands calls of one batch to the workers of their routes in a lane, one message each, and says for each
	// what became of it.
	QueueAll(ctx context.Context, lane int, routes []batch.Route, requests []events.Requested) []Queued
	// Unqueue takes a message out of the queue, wherever it is. Withdraw takes out those of one route and lane, and
	// returns those that no worker was ever handed.
	Unqueue(ctx context.Context, seq uint64) error
	Withdraw(ctx context.Context, r batch.Route, lane int, seqs []uint64) (never []uint64, err error)
	// Lane opens a lane of a route. What has come and was not taken when the lane is stopped goes to unwanted, which
	// has to give it back; nil does no more than that.
	Lane(ctx context.Context, r batch.Route, lane int, unwanted func(*Delivery)) (Lane, error)
}

// Lane is one lane of a route, as one worker takes calls from it.
type Lane interface {
	// Take asks for up to n messages and yields them as they come, until the request is over. A [*BadWorkError] is
	// about one message only; any other error is the end, and [ErrStopped] the tidy one.
	Take(ctx context.Context, n int) iter.Seq2[*Delivery, error]
	// Stop ends Take. What is on its way is given back.
	Stop()
}

// Tickets are the queues of workspaces.
type Tickets interface {
	// Tickets reads a workspace's queue. The answer may be behind; a change made on it then fails and is repeated.
	Tickets(ctx context.Context, w toolyard.Workspace) (TicketQueue, error)
	// ChangeTickets applies a change to a workspace's queue: read, change, compare and set, until it holds.
	ChangeTickets(ctx context.Context, known TicketQueue,
		change func(ticket.Queue) (ticket.Queue, error)) (TicketQueue, error)
	// DeleteTickets deletes the key of an empty queue as it was seen, and nothing that was stored since.
	DeleteTickets(ctx context.Context, seen TicketQueue) error
	// WatchTickets calls see with every queue and with each change from then on, until ctx ends.
	WatchTickets(ctx context.Context, see func(TicketQueue, error)) error
}

// Registry is the workers that live.
type Registry interface {
	// Beat writes the worker's key, once; it lives for the worker TTL. Gone takes it out.
	Beat(ctx context.Context, w Worker) error
	Gone(ctx context.Context, id string) error
	Workers(ctx context.Context) ([]Worker, error)
	// WatchWorkers calls see with every entry and with each change from then on, until ctx ends. Sending on again
	// begins anew: the watch has missed something.
	WatchWorkers(ctx context.Context, again <-chan struct{}, see func(WorkerChange, error)) error
	// ReadEntry reads what stands there of a worker, through the leader. LastEntry is the revision of the newest entry.
	ReadEntry(ctx context.Context, id string) (presence.Reading, error)
	LastEntry(ctx context.Context) (uint64, error)
}

// Sessions are what is kept of conversations between their batches.
type Sessions interface {
	// Session reads a session; one that was never changed is new.
	Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (Session, error)
	// ChangeSession changes a session, against all others who do. change may be called several times. What would pass a
	// limit wraps [ErrFull], and changes nothing.
	ChangeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session, change func(*Session)) (Session, error)
}

// Approvals is the list of calls that wait for a person.
type Approvals interface {
	PutApproval(ctx context.Context, a Approval) error
	DropApproval(ctx context.Context, k toolyard.BatchKey, index int) error
	// Approvals returns the calls that wait, those that were asked about last first.
	Approvals(ctx context.Context, agent toolyard.Agent) ([]Approval, error)
	WatchApprovals(ctx context.Context, see func(ApprovalChange)) error
	// Asked reads from the log what a person is asked about a call. It wraps [ErrNoApproval] when nobody is.
	Asked(ctx context.Context, k toolyard.BatchKey, index int) (events.Waiting, toolyard.Pool, uint64, error)
}

// Blobs are objects that are too long for an event: surfaces, offloaded results, changed inputs.
type Blobs interface {
	PutSurface(ctx context.Context, hash string, content []byte) error
	Surface(ctx context.Context, hash string) ([]byte, error)
	// PutResult offloads a result of an agent. Result reads it: it wraps [tool.ErrNoBlob] when there is none.
	PutResult(ctx context.Context, agent toolyard.Agent, content []byte) (ref string, err error)
	Result(ctx context.Context, agent toolyard.Agent, ref string) ([]byte, error)
	PutInput(ctx context.Context, agent toolyard.Agent, input []byte) (ref string, err error)
	ChangedInput(ctx context.Context, agent toolyard.Agent, ref string) ([]byte, error)
}

// DeadLetters are messages that could not be used, and batches that were given up.
type DeadLetters interface {
	// Bury records a dead letter with the beginning of its data.
	Bury(ctx context.Context, l DeadLetter, data []byte) error
	// DeadLetters returns the newest dead letters, the newest first.
	DeadLetters(ctx context.Context, most int) ([]DeadLetter, error)
}

// Space says how full the store is.
type Space interface {
	// Fill looks at all that running batches write to, and returns the fullest.
	Fill(ctx context.Context) (Fill, error)
	// Room asks how much room the NATS server has; OnRoom answers for whoever has it in its process, until the returned
	// function is called.
	Room(ctx context.Context) (Room, error)
	OnRoom(room func() Room, failed func(error)) (stop func() error, err error)
}

// Asking is what dispatchers ask workers, and how workers answer. The functions that end an answering wait for what is
// being answered.
type Asking interface {
	// Judge asks workers of a pool for the classes of calls, and returns one answer for each.
	Judge(ctx context.Context, pool toolyard.Pool, calls []JudgeCall) ([]Judged, error)
	// Check asks a worker of a pool whether a call could run with another input.
	Check(ctx context.Context, pool toolyard.Pool, r events.Requested) (Judged, error)
	OnJudge(pool toolyard.Pool, judge func(context.Context, []JudgeCall) []Judged,
		failed func(error)) (stop func() error, err error)
	// Holds asks a worker whether it has one of these calls in its hands.
	Holds(ctx context.Context, worker string, k toolyard.BatchKey, calls ...int) (has, answered bool, err error)
	OnHolds(worker string, has func(k toolyard.BatchKey, index int) bool,
		failed func(error)) (stop func() error, err error)
}

// Signals are told to whoever listens, and stored nowhere.
type Signals interface {
	// Abort tells all workers to stop calls at once.
	Abort(n AbortNotice) error
	OnAbort(stop func(AbortNotice, error)) (end func() error, err error)
	// Report tells how a call goes on, and TellWaiting that a batch waits for its turn.
	Report(k toolyard.BatchKey, p Progress) error
	TellWaiting(k toolyard.BatchKey, w Waiting) error
}

// LiveMsg is a live copy of something stored, or what is told of a running call. The feed that it came from reads it.
type LiveMsg = nats.Msg

// Live is the live copies of what is stored. They are hints to read: some may be missing.
type Live interface {
	// FollowEvents and FollowReplies start a feed of one batch. Subscribe first, then read: nothing falls between.
	FollowEvents(k toolyard.BatchKey) (Feed, error)
	FollowReplies(k toolyard.BatchKey) (Feed, error)
	// FollowProgress starts a feed of what is told about the batch's running calls.
	FollowProgress(k toolyard.BatchKey) (ProgressFeed, error)
	// Subscribe starts to follow all batches of an agent; "" stands for all agents.
	Subscribe(ctx context.Context, agent toolyard.Agent) (Subscription, error)
	// Hub is the live copies of all batches for one process.
	Hub() Hub
}

// Feed is the live copies of what is stored about one batch.
type Feed interface {
	Copies() <-chan *LiveMsg
	// Lost reports whether copies may have been lost since it was last asked.
	Lost() bool
	// Head says where a copy's event stands: a record without a body.
	Head(m *LiveMsg) (batch.Record, error)
	// Record reads a copy. before is the sequence of the event that its chain had before, by which a reader sees a gap.
	Record(ctx context.Context, m *LiveMsg) (r batch.Record, before uint64, err error)
	// WorkerOf returns the worker that has written the event; "" when it was somebody else.
	WorkerOf(m *LiveMsg) string
	Stop() error
}

// ProgressFeed is what is told about the calls of one batch, from its making on.
type ProgressFeed interface {
	Copies() <-chan *LiveMsg
	// Read reads a message; ok is false when it says nothing.
	Read(m *LiveMsg) (p Progress, ok bool)
	Stop() error
}

// Subscription is the live copies of all batches of an agent, or of all agents. It is not safe for concurrent use, but
// the channel is.
type Subscription interface {
	Copies() <-chan *LiveMsg
	// Read reads a message. gap says that an event of the same chain should have come before it and did not.
	Read(ctx context.Context, m *LiveMsg) (k toolyard.BatchKey, e Logged, gap bool, err error)
	// Missed says what was lost since it was last asked, in words; "" when nothing is known to be.
	Missed() string
	Stop() error
}

// Hub is the live copies of all batches for one process: one subscription of each kind, however many follow.
type Hub interface {
	// Follower follows a batch behind these sequences of events and replies, ReplyFollower behind one of replies.
	Follower(ctx context.Context, k toolyard.BatchKey, event, reply uint64) (Follower, error)
	ReplyFollower(ctx context.Context, k toolyard.BatchKey, after uint64) (ReplyFollower, error)
	// Progress follows what is told about a batch's running calls, and Everything what is stored about all batches of
	// an agent, of all agents if it is empty.
	Progress(ctx context.Context, k toolyard.BatchKey) (Follow, error)
	Everything(ctx context.Context, agent toolyard.Agent) (Follow, error)
	// Read reads a copy of something stored, and ReadProgress what is told of a call.
	Read(ctx context.Context, m *LiveMsg) (toolyard.BatchKey, Logged, error)
	ReadProgress(m *LiveMsg) (p Progress, ok bool)
}

// Follow is one follower of a hub. It is safe for concurrent use.
type Follow interface {
	// News has a value when there may be something to take.
	News() <-chan struct{}
	// Take returns what has come since it was asked last. lost says that more has, and was dropped: then nothing is
	// returned, and what is stored by now is to be read.
	Take() (msgs []*LiveMsg, lost bool)
	Stop()
}

// Follower reads what is stored about a batch as [Tail] does, and then each event as it comes. It is not safe for
// concurrent use.
type Follower interface {
	News() <-chan struct{}
	// Next returns the next event; ok is false when nothing more is known to be stored. After an error it may be called
	// again.
	Next(ctx context.Context) (l Logged, ok bool, err error)
	Stop()
}

// ReplyFollower reads the replies of a batch as [Follower] reads its events.
type ReplyFollower interface {
	News() <-chan struct{}
	Next(ctx context.Context) (r batch.Record, ok bool, err error)
	Stop()
}

// Link is the connection itself.
type Link interface {
	// Settings are those in force. Who is whose account the connection is; the zero Principal when there are none.
	Settings() Settings
	Who() access.Principal
	// Reconnects counts how often the connection was restored. Away reports whether it is lost, or was until a moment
	// ago.
	Reconnects() uint64
	Away() bool
	// Present waits until there is a connection, for a moment. WhilePresent is a context that ends with [ErrNoAnswer]
	// as its cause when the connection is gone.
	Present(ctx context.Context) error
	WhilePresent(ctx context.Context) (context.Context, context.CancelFunc)
	// CheckRoundTrip reports that the way to NATS is too long for a worker to keep its leases.
	CheckRoundTrip() error
	// MayPass reports whether what failed so may succeed when it is repeated.
	MayPass(err error) bool
	// Quiet is a log in which what fails for want of a connection is told at debug.
	Quiet(log *slog.Logger) *slog.Logger
}

// Guests are agents and workers with accounts of their own, which a dispatcher answers.
type Guests interface {
	// AnswerGuests answers until what it returns is closed.
	AnswerGuests(log *slog.Logger, workers func() []Worker, check func(hash string, content []byte) error) (Answering,
		error)
}

// Answering is a dispatcher's answering of guests. Close ends it, and returns when nothing is being answered any more.
type Answering interface{ Close() error }
