package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/cache"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/tool"
)

// job is the call as the pipeline sees it.
func (w *Worker) job(ctx context.Context, r *running) (pipeline.Job, error) {
	d, call := r.d, r.call
	deny, err := policy.ParseRules(d.Deny) // the dispatcher has read them before
	if err != nil {
		return pipeline.Job{}, err
	}
	ask, err := policy.ParseRules(d.Ask)
	if err != nil {
		return pipeline.Job{}, err
	}
	input := call.Input
	var approved *pipeline.Approved
	var answer *elicit.Answer
	if a := call.Approved; a != nil {
		approved = &pipeline.Approved{By: a.By, InputHash: a.InputSHA256, Edited: a.Input != "",
			Waited: time.Duration(a.WaitedMS) * time.Millisecond, Context: a.Context}
		if a.Input != "" {
			if input, err = w.b.ChangedInput(broker.ForCall(ctx, d.Key(), call.Index), d.Agent, a.Input); err != nil {
				return pipeline.Job{}, fmt.Errorf("read the approved input: %w", err)
			}
		}
		if q := a.Answer; q != nil {
			content, err := w.b.ChangedInput(broker.ForCall(ctx, d.Key(), call.Index), d.Agent, q.Ref)
			if err != nil {
				return pipeline.Job{}, fmt.Errorf("read the answer to what the tool asked: %w", err)
			}
			answer = &elicit.Answer{Key: q.Key, State: q.State, Content: content}
		}
	}
	dir, root, copyOf := w.cfg.Workspaces[d.Workspace], w.roots[d.Workspace], ""
	background, holds := d.Batch.Background()
	if background && !holds {
		dir, root = "", nil
	}
	var turn *cache.Turn
	if d.Generation > 0 && d.Overlay == nil { // what is cached is of the workspace
		turn = &cache.Turn{Generation: d.Generation, Deny: d.Deny, Ask: d.Ask}
	}
	if r.overlay != nil {
		dir, root, copyOf = r.overlay.Dir(), r.overlay, dir
	}
	return pipeline.Job{
		Turn:     turn,
		Approved: approved, Answer: answer, Remembered: d.Remembered, Context: d.Context,
		CallContext: pipeline.CallContext{
			Key: d.Key(), Index: call.Index, Session: d.Session, Workspace: d.Workspace, Interactive: d.Interactive,
			WorkspaceDir: dir, Root: root, CopyOf: copyOf,
		},
		Call:        toolyard.Call{ID: call.ID, Tool: call.Tool, Input: input, Echo: call.Echo},
		Start:       func(ctx context.Context) (func(), error) { return w.start(ctx, r) },
		Prepare:     w.prepare(r),
		Declaration: call.Declaration, Judgement: call.Judgement, WasConcurrent: d.WasConcurrent, Attempt: call.Attempt,
		As: call.As, Mended: call.Mended, Waited: call.Waited, FencingToken: d.Ticket, Locks: d.Locks,
		Fence: d.Fence, Background: background, Earlier: call.Earlier(),
		CallTimeout: submission.Milliseconds(d.CallTimeoutMS), Rules: policy.Rules{Deny: deny, Ask: ask},
		CommitPoint: func() error { return w.commit(ctx, r) }, Blobs: agentBlobs{w.b, d.Key(), call.Index},
		Tools:    func(ctx context.Context) ([]tool.Offered, error) { return w.surfaces.offered(ctx, w.b, d.Surface) },
		CallTool: w.callTool(ctx, r),
	}, nil
}
