package batch

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

// Route is where a call is queued: for the workers of one pool that take calls of one class.
type Route struct {
	Pool  toolyard.Pool
	Class toolyard.Class
}

// Input is what a machine is stepped with.
type Input interface{ input() }

// The inputs.
type (
	// Stored is an event that is in the log: the owner's own, or another's.
	Stored struct{ Record }
	// Granted says that the group's ticket is granted. Generation is that of the workspace under it; 0: unknown.
	Granted struct {
		Group      int
		Ticket     uint64
		Generation uint64
	}
	// Observed says what is known of the workers now.
	Observed struct {
		// Absent are the routes that no worker serves, and Serving how many serve each of the others.
		Absent  []Route
		Serving map[Route]int
		// Dropped are the calls that their worker no longer runs, with the sequence of its claim. The worker says so,
		// or it has been silent for so long that it cannot run anything.
		Dropped map[int]uint64
	}
)

// Held says that calls are kept back, which the machine has queued: they wait for their turn under a rate. Handed says
// that they are handed to workers now.
type (
	Held   struct{ Calls []int }
	Handed struct{ Calls []int }
)

// Limited says that calls that were kept back are not handed to workers.
type Limited struct {
	Calls []int
	// Code is rate_limited or budget_exceeded.
	Code toolyard.Code
	// Why is what the model reads, and Detail what the operator does.
	Why, Detail string
	// RetryAfterMS is how long to wait before the call is made again, in milliseconds; 0: that is of no use.
	RetryAfterMS int64
}

// Lapsed says that the owner was silent for so long that another may have adopted the batch without its knowledge.
// The calls that it queues from then on are claimed before they begin.
type Lapsed struct{}

// Withdrawn names the calls that provably no worker was ever given. Nothing is known of the others.
type Withdrawn struct{ Never []int }

// Noticed is what the hooks said of the batch; nil when nothing.
type Noticed struct{ Notice *toolyard.Notice }

func (Held) input()      {}
func (Handed) input()    {}
func (Limited) input()   {}
func (Lapsed) input()    {}
func (Withdrawn) input() {}
func (Noticed) input()   {}
func (Stored) input()    {}
func (Granted) input()   {}
func (Observed) input()  {}

// Effect is what the shell around a machine does. Effects are performed in the order in which they are returned.
type Effect interface{ effect() }

// The effects.
type (
	// Append stores an event at the end of a chain, expecting that chain's last known sequence. The shell answers with
	// Stored: of this event when it was appended, of the events that stand there instead when not. A conflict on the
	// batch chain means that the batch has another owner: the shell stops.
	Append struct {
		Chain    Chain
		Index    int
		Expected uint64
		Body     events.Body
	}
	// TakeTicket joins the workspace's queue for a group and releases the tickets of earlier groups, as one change. The
	// shell answers with Granted, at once or later.
	TakeTicket struct {
		Group int
		Mode  ticket.Mode
		Locks []tool.Lock // of a named ticket
		// Through is the last group that can go on under the ticket while the batch is alone in its workspace.
		Through int
	}
	// ReleaseTickets takes the batch's tickets up to this group's out of the queue.
	ReleaseTickets struct{ Group int }
	// Queue hands calls of one item to the workers of their route.
	Queue struct {
		Route   Route
		Request events.Requested
	}
	// Abort tells all workers to stop these calls now. It saves time; the log says that they end.
	Abort struct {
		Calls []int
		Stop
	}
	// Withdraw takes the messages of calls out of the work queue, and finds out which of them no worker was ever given.
	// The shell answers with Withdrawn.
	Withdraw struct{ Calls []int }
	// Extend plans the calls that were appended and not planned yet, and stores that as events.Extended at the end of
	// the batch chain. The shell answers with Stored, as to Append.
	Extend struct{ Expected uint64 }
	// ListApproval puts a call on the list of those that wait for a person, or takes it off.
	ListApproval struct {
		Index  int
		Remove bool
	}
	// Remember writes what the batch's calls have changed into its session, before the reply that completes the batch.
	Remember struct{ Change tool.SessionChange }
	// Notify tells the hooks that every call has its result. The shell answers with Noticed.
	Notify struct{}
	// Park says that the batch is parked in the log. The shell wakes it if there is news, and releases it.
	Park struct{}
	// Complete says that nothing is left to do: the submission can be acknowledged.
	Complete struct{}
)

func (Append) effect()         {}
func (TakeTicket) effect()     {}
func (ReleaseTickets) effect() {}
func (Queue) effect()          {}
func (Abort) effect()          {}
func (Withdraw) effect()       {}
func (Extend) effect()         {}
func (ListApproval) effect()   {}
func (Remember) effect()       {}
func (Park) effect()           {}
func (Notify) effect()         {}
func (Complete) effect()       {}
