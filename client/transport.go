package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/follow"
)

// transport is how a client reaches the system: [overNATS] or [overHTTP]. What is handed in was checked before. Each
// method fails with the errors that the exported one says which calls it; and what repeats it when an answer is lost is
// behind it. A yield that returns false ends a method with [errLeft].
type transport interface {
	// whose is the agent that is meant: an empty one is the default over NATS, and the token's over HTTP.
	whose(a toolyard.Agent) toolyard.Agent
	// submit stores a batch and returns whose it is: an empty agent is that of whoever hands it in.
	submit(ctx context.Context, b toolyard.Batch) (toolyard.BatchKey, error)
	// input is how to append to an open batch. have are the calls that it has; nil: that is not known.
	input(k toolyard.BatchKey, have []toolyard.Call) input

	// results yields all results in order, and progress what calls report. stored is when this
	// client learned that the batch is stored; zero: it is not known to be there.
	results(ctx context.Context, k toolyard.BatchKey, stored time.Time, yield func(toolyard.Result) bool) error
	progress(ctx context.Context, k toolyard.BatchKey, stored time.Time, yield func(Progress) bool) error
	// listen begins to hear the progress of a batch that is not stored yet; nil: it cannot.
	listen(ctx context.Context, k toolyard.BatchKey) (*follow.Listening, error)
	view(ctx context.Context, k toolyard.BatchKey) (toolyard.BatchView, error)
	// follow yields all that is stored about a batch, and then, if live is set, each event as it is stored, to the
	// last.
	follow(ctx context.Context, k toolyard.BatchKey, live bool, see func(logged) error) error
	// subscribe follows all batches, of one agent if one is named. It has begun when it returns; what it returns yields
	// the events.
	subscribe(ctx context.Context, agent toolyard.Agent) (func(yield func(Event) bool) error, error)

	cancel(ctx context.Context, k toolyard.BatchKey, reason string, calls []int) error
	approvals(ctx context.Context, agent toolyard.Agent) ([]Approval, error)
	decide(ctx context.Context, id string, d Decision) error

	session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (Session, error)
	changeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session, c sessionChange) (Session, error)
	interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, reason string) (int, error)
	resolve(ctx context.Context, a toolyard.Agent, s toolyard.Session, by, reason string) (Resolved, error)
	batches(ctx context.Context, f Filter) ([]BatchInfo, bool, error)
	workers(ctx context.Context) ([]Worker, error)
	surface(ctx context.Context, a toolyard.Agent, w toolyard.Workspace, deny []string) (json.RawMessage, error)
	report(ctx context.Context, f ReportFilter) (json.RawMessage, error)
	// blob reads what a result of an agent refers to; it wraps [tool.ErrNoBlob] when there is no such thing.
	blob(ctx context.Context, a toolyard.Agent, ref string) ([]byte, error)
	deadLetters(ctx context.Context, most int) ([]DeadLetter, error)
}

// logged is one stored event: what it says, and the CloudEvent in JSON.
type logged struct {
	record batch.Record
	json   []byte
}

// sessionChange is what [Client.SetUnattended], [Client.Forget] and [Client.LoadTools] change; zero values leave things
// as they are.
type sessionChange struct {
	unattended *bool
	forget     bool
	load       []string
}
