// Package failpoint names the places at which the fault tests kill or stop a process, and does so when it is built for
// them.
//
// Authority: none. In a normal build [Hit] and [HitIf] are empty, and the compiler leaves nothing of them. In a build
// with the tag failpoints the environment says what happens at which place:
//
//	TOOLYARD_FAILPOINTS      name=action@n, several with ";" between them
//	TOOLYARD_FAILPOINTS_LOG  a file that gets a line for each action, before it is taken
//
//	kill         SIGKILL to the own process
//	stop         SIGSTOP to the own process: the goroutine goes on when somebody sends SIGCONT
//	delay:TIME   wait
//	note         only the line in the log
//
// An action is taken at the n-th hit, at the first without "@n", and at each one with "@*".
//
// Failure: a name or an action that is not known ends the process before it has begun anything, with status 2: a fault
// test whose fault does not happen proves nothing.
package failpoint

// Name names a place in the code.
type Name string

// The places, each with the cells of the fault matrix that it serves (docs/faults.md).
const (
	// BatchReceived: a dispatcher was handed a submission, and has written nothing. D1.
	BatchReceived Name = "dispatcher.batch-received"
	// CallsPartlyQueued: one call of several that are queued at a time is stored, and the owner does not know of the
	// others. D2.
	CallsPartlyQueued Name = "dispatcher.calls-partly-queued"
	// CallsQueued: all calls that may be in flight are stored, and the owner has not gone on. D3, D9.
	CallsQueued Name = "dispatcher.calls-queued"
	// ResultSeen: the owner has read a call's event and has not acted on it. D4.
	ResultSeen Name = "dispatcher.result-seen"
	// GroupOver: every call of a group has its result, and the owner has not asked for the next group's ticket. D5, D9.
	GroupOver Name = "dispatcher.group-over"
	// GroupStarting: the ticket is granted, and that the group starts is not stored. D5, D9.
	GroupStarting Name = "dispatcher.group-starting"
	// SomeReplied: a reply is stored that is not the last. D6, D9.
	SomeReplied Name = "dispatcher.some-replied"
	// AllReplied: the last reply is stored, and the batch has not left its workspace's queue. D7.
	AllReplied Name = "dispatcher.all-replied"
	// BatchOver: the batch has left the queue, and its submission is not acknowledged. D7.
	BatchOver Name = "dispatcher.batch-over"
	// AbortDecided: the end of calls is stored, and their workers are not told. D8.
	AbortDecided Name = "dispatcher.abort-decided"

	// CallTaken: a worker was handed a call, and has not claimed it. W1.
	CallTaken Name = "worker.call-taken"
	// CallClaimed: the claim is stored, and the tool is not started. W2.
	CallClaimed Name = "worker.call-claimed"
	// ResultReady: the tool is done, and its result is not stored. W4.
	ResultReady Name = "worker.result-ready"
	// ResultStored: the result is stored, and the message is not acknowledged. W5.
	ResultStored Name = "worker.result-stored"

	// IDFenced: the id of a batch that is submitted is fenced off in a former shard, and nothing stands in its home.
	// H2.
	IDFenced Name = "broker.id-fenced"
	// QueueSealed: a former ticket queue is sealed, and the ticket is not in the new one. H2.
	QueueSealed Name = "broker.queue-sealed"
	// ShardsMade: the streams of new shards are there, and the map does not have them. H2.
	ShardsMade Name = "raise.shards-made"
	// ShardsAnnounced: the map says how many shards are prepared. H2.
	ShardsAnnounced Name = "raise.shards-announced"
	// ShardsServed: the new shards are served, and not open. H2.
	ShardsServed Name = "raise.shards-served"
	// ShardsOpen: the new epoch is stored, and the command has not said so. H2.
	ShardsOpen Name = "raise.shards-open"
	// SnapshotPartly: the content of a file is stored for a snapshot, and the snapshot is not. W10.
	SnapshotPartly Name = "worker.snapshot-partly"
	// RestorePartly: a workspace is set back in part. W10.
	RestorePartly Name = "worker.restore-partly"
	// QuestionReady: a tool has asked a person something, and the question is not stored. W15.
	QuestionReady Name = "worker.question-ready"
	// ShellRan: a command of a shell that remembers has ended, and what the shell remembers is not stored. W13.
	ShellRan Name = "worker.shell-ran"
	// ChildStarted: a script's call is stored as a batch, and its result is not read. W12.
	ChildStarted Name = "worker.child-started"
	// CommitPartly: some changes of an overlay are made in the workspace, and others are not. W14.
	CommitPartly Name = "worker.commit-partly"

	// EffectBegun: a tool of the fault tests is in the middle of its effect. W3, W6.
	EffectBegun Name = "tool.effect-begun"
	// EffectDue: a tool of the fault tests has passed its commit point, and its effect has not happened. W6.
	EffectDue Name = "tool.effect-due"
)

// Names are all of them.
var Names = []Name{
	BatchReceived, CallsPartlyQueued, CallsQueued, ResultSeen, GroupOver, GroupStarting, SomeReplied, AllReplied,
	BatchOver, AbortDecided, IDFenced, QueueSealed, ShardsMade, ShardsAnnounced, ShardsServed, ShardsOpen,
	CallTaken, CallClaimed, ResultReady, ResultStored, SnapshotPartly, RestorePartly, ShellRan, QuestionReady,
	ChildStarted, CommitPartly,
	EffectBegun, EffectDue,
}

// The environment variables.
const (
	Env    = "TOOLYARD_FAILPOINTS"
	EnvLog = "TOOLYARD_FAILPOINTS_LOG"
)
