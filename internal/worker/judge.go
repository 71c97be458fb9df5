package worker

import (
	"context"
	"fmt"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// maxJudging is how many judges of tools run at a time, those included that have been given up and do not return.
const maxJudging = 256

// judge answers for the calls that only a tool's code can judge: one answer for each call whose tool is here. What a
// judge does wrong is said of its own call.
func (w *Worker) judge(ctx context.Context, calls []broker.JudgeCall) []broker.Judged {
	if len(calls) == 1 && calls[0].Check != nil {
		return []broker.Judged{w.rehearse(ctx, calls[0])}
	}
	if len(calls) > 0 && calls[0].Repair != "" {
		return w.repair(ctx, calls)
	}
	names, asked := map[int]string{}, map[int]func() broker.Judged{}
	for _, c := range calls {
		t, e, ok := w.tools.Lookup(c.Tool)
		if !ok || e.Hash != c.Declaration || t.Judge == nil {
			continue
		}
		names[c.Index], asked[c.Index] = c.Tool, func() broker.Judged { return w.judgeOne(t, c) }
	}
	late := fmt.Sprintf("the tool's judge gave no answer within %s", w.b.Settings().JudgeTimeout())
	out := answers(ctx, w.judging, asked, late)
	for _, j := range out {
		if j.Failed != "" {
			w.log.Warn("a tool could not judge a call; it counts as UNSAFE", "tool", names[j.Index], "error", j.Failed)
		}
	}
	return out
}

// rehearse answers whether a call could run with the input that a person has given it, or what a dry run of it gives.
func (w *Worker) rehearse(ctx context.Context, c broker.JudgeCall) broker.Judged {
	r := c.Check
	if len(r.Calls) != 1 {
		return broker.Judged{}
	}
	run := &running{d: &broker.Delivery{Requested: *r}, call: r.Calls[0]}
	lift, err := w.lookAtOverlay(ctx, run)
	if err != nil {
		w.log.Warn("a call was not checked", "batch", r.Batch, "call", r.Calls[0].Index, "error", err)
		return broker.Judged{}
	}
	defer lift()
	job, err := w.job(ctx, run)
	if err != nil {
		w.log.Warn("a call was not checked", "batch", r.Batch, "call", r.Calls[0].Index,
			"error", err)
		return broker.Judged{}
	}
	if c.DryRun {
		res := w.pipe.Load().DryRun(ctx, job)
		return broker.Judged{Index: r.Calls[0].Index, DryRun: &res}
	}
	return broker.Judged{Index: r.Calls[0].Index, Checked: true, Problem: w.pipe.Load().Rehearse(ctx, job)}
}

// judgeOne answers for one call. What the tool says is shown to people and hooks, so it is redacted as its results are.
func (w *Worker) judgeOne(t *tool.Tool, c broker.JudgeCall) (j broker.Judged) {
	public := func(text string) string { return registry.Why(w.pipe.Load().Withhold(text)) }
	defer func() {
		if p := recover(); p != nil {
			j = broker.Judged{Index: c.Index, Failed: public(fmt.Sprintf("the tool's judge panicked: %v", p))}
		}
	}()
	judgement, err := t.Judge(c.Input)
	if err != nil {
		return broker.Judged{Index: c.Index, Failed: public("the tool's judge failed: " + err.Error())}
	}
	judgement.Why = public(judgement.Why)
	return broker.Judged{Index: c.Index, Judgement: judgement}
}
