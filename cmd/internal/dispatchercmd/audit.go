package dispatchercmd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/audit"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/pause"
)

// proofNATS is the proof of what came over NATS where agents and pools have accounts of their own.
const proofNATS = "nats"

// openAudit opens the audit log; nil without a path. SIGHUP opens its file again, for a program that renames it.
func openAudit(path string, reload *cli.Reload, log *slog.Logger) (*audit.Log, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	l, err := audit.Open(path, log)
	if err != nil {
		return nil, cli.Usagef("--audit-log: %w", err)
	}
	reload.On("the audit log", l.Reopen)
	return l, nil
}

// audit puts down what is stored about all batches, over HTTP and over NATS, until ctx ends. It calls begun
// when nothing is missed from then on.
func (n *node) audit(ctx context.Context, to *audit.Log, begun func()) {
	proof := string(api.ProvedByNothing)
	if n.guarded {
		proof = proofNATS
	}
	r := follow.New(n.broker.As("/audit/"+broker.NewID()), follow.Options{})
	for ctx.Err() == nil {
		stored, leave, err := r.Everything(ctx, "")
		if err == nil {
			begun()
			for some, serr := range stored {
				if err = serr; err != nil {
					break
				}
				for _, h := range some {
					if e, ok := deed(h, n.id, proof); ok {
						to.Put(e)
					}
				}
			}
			leave()
		}
		if ctx.Err() != nil {
			return
		}
		to.Put(missing("deeds may be missing here: " + fmt.Sprint(err)))
		_ = pause.For(ctx, auditPause)
	}
}

// auditLinger is how long the audit log goes on when all else has ended: what was stored last is on its way to it, in
// this process.
const auditLinger = 100 * time.Millisecond

// endAudit ends the audit log, if there is one, behind all that was stored before.
func (n *node) endAudit() {
	if n.auditEnd == nil {
		return
	}
	if n.nc.IsConnected() {
		if err := n.nc.FlushTimeout(auditPause); err != nil {
			n.log.Warn("the end of the audit log may miss deeds", "error", err)
		}
		time.Sleep(auditLinger)
	}
	n.auditEnd()
	n.auditing.Wait()
}

// missing is an entry for what could not be read.
func missing(why string) audit.Entry {
	return audit.Entry{Action: "gap", Proof: string(api.ProvedByNothing), Reason: why}
}

// auditPause is the pause before events are followed again.
const auditPause = time.Second

// deed is what an event says about who did what; false for one that is no deed of an agent or a person. A decision of
// somebody who may not decide is no event, but a gap that says so. The dispatcher that planned a batch puts it down;
// each dispatcher that has an audit log puts down all else.
func deed(h follow.Happening, dispatcher, proof string) (audit.Entry, bool) {
	e := audit.Entry{Time: h.Time, Proof: proof, Agent: string(h.Key.Agent), Batch: string(h.Key.ID),
		Event: h.Meta.ID}
	if h.Gap != "" {
		return missing(h.Gap), true
	}
	e.Action = strings.TrimSuffix(strings.TrimPrefix(string(h.Body.EventType()), "dev.toolyard."), ".v1")
	switch body := h.Body.(type) {
	case events.Planned:
		if body.Owner != dispatcher {
			return e, false
		}
		// Only the agent's account, and the platform's, store submissions under its name.
		e.Action, e.By, e.Session = "batch.submitted", string(h.Key.Agent), string(body.Session)
		for _, c := range body.Calls {
			e.HandIn(c.Tool)
		}
	case events.Decided:
		e.By, e.Decision, e.Reason = body.By, string(body.Decision), body.Reason
		if index := h.Index; index >= 0 {
			e.Call = &index
		}
	case events.Appended:
		e.By = string(h.Key.Agent)
		for _, c := range body.Calls {
			e.HandIn(c.Tool)
		}
	case events.Canceled:
		e.By, e.Reason = body.By, body.Reason
	default:
		return e, false
	}
	return e, true
}
