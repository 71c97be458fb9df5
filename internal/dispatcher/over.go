package dispatcher

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
)

// afterBatchTimeout bounds what hooks do about a batch that is over; each has a limit of its own within it.
const afterBatchTimeout = 2 * time.Minute

// BatchOver is a batch whose calls have all been answered, as hooks may see it.
type BatchOver struct {
	Key       toolyard.BatchKey
	Session   toolyard.Session
	Workspace toolyard.Workspace
	Calls     []CallOver // in the order of the calls
}

// CallOver is one call of it. Input is the model's, without what the redactor knows to be secret; nil when it cannot be shown.
type CallOver struct {
	Input  json.RawMessage
	Result toolyard.Result
}

// notify tells the hooks, beside what else there is to do. A hook that breaks asks the agent to stop: nobody knows what it
// would have said.
func (r *runner) notify(ctx context.Context) {
	over := BatchOver{Key: r.key, Session: r.m.State().Plan.Session, Workspace: r.workspace}
	inputs := r.m.State().Inputs()
	for i, c := range r.m.State().Calls {
		over.Calls = append(over.Calls, CallOver{Input: r.shown(inputs[i]), Result: *c.Result})
	}
	go func() {
		telling, cancel := context.WithTimeout(ctx, afterBatchTimeout)
		defer cancel()
		notice, err := r.d.cfg.AfterBatch(telling, over)
		if err != nil {
			r.log.Error("a hook that runs after a batch broke; the agent is asked to stop", "error", err)
			notice = &toolyard.Notice{Stop: true, Reason: "A hook of this installation that runs after a batch broke."}
		}
		select {
		case r.noticed <- batch.Noticed{Notice: notice}:
		case <-ctx.Done():
		}
	}()
}

// shown is an input without secrets.
func (r *runner) shown(input json.RawMessage) json.RawMessage {
	clean := input
	if redact := r.d.cfg.Planner.Pipeline.Redact; redact != nil {
		clean = json.RawMessage(redact(string(input)))
	}
	if !json.Valid(clean) {
		return nil
	}
	return clean
}
