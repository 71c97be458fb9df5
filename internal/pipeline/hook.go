package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// hookInput makes a frozen copy for one hook call.
func (c *call) hookInput() HookInput {
	return HookInput{
		CallContext: c.job.CallContext, CallID: c.job.Call.ID, Tool: c.entry.Name, Judgement: c.judgement,
		Input: bytes.Clone(c.toHooks), InputHash: c.value.Hash(),
	}
}

// preHooks lets the hooks veto, change the input, add context and give an opinion.
func (c *call) preHooks(ctx context.Context) finding {
	if c.p.Hooks == nil {
		return finding{}
	}
	if c.job.Approved != nil {
		return noted("not again: they ran before the call was approved")
	}
	broke := func(detail string) finding {
		return failed(toolyard.HookFailed, "A hook of this installation broke, and a broken hook blocks the call.",
			detail)
	}
	in := c.hookInput()
	v, err := guard(c.p, ctx, func(ctx context.Context) (HookVerdict, error) { return c.p.Hooks.Pre(ctx, in) })
	switch _, panicked := errors.AsType[*panicError](err); {
	case panicked || errors.Is(err, errGone):
		return c.bug(toolyard.PhasePreHooks, err)
	case err != nil:
		if stop := c.ended(ctx); stop != nil {
			return finding{fail: stop}
		}
		return broke(err.Error())
	case v.Block || v.Stop:
		return c.vetoed(v)
	}
	switch v.Opinion {
	case "", Allow, Ask, Deny:
		c.opinion, c.opinionReason = v.Opinion, v.Reason
	default:
		return broke(fmt.Sprintf("the opinion %q of %s is not known", v.Opinion, v.By))
	}
	detail := ""
	if v.Opinion != "" {
		detail = join("opinion "+string(v.Opinion), by(v.By))
	}
	detail = join(detail, v.leftOut())
	if c.addContext(v.Context) {
		detail = join(detail, "context added")
	}
	if len(v.Input) > 0 {
		changed, why := c.replaceInput(ctx, v)
		if why != "" {
			return broke(why)
		}
		if changed {
			detail = join(detail, "input changed by "+c.changedBy)
		}
	}
	return finding{detail: detail, noted: detail != ""}
}

// leftOut names the broken hooks that were ignored.
func (v *HookVerdict) leftOut() string {
	if len(v.Broken) == 0 {
		return ""
	}
	return "left out: " + strings.Join(v.Broken, "; ")
}

func (c *call) vetoed(v HookVerdict) finding {
	message := "A hook of this installation refused the call."
	if v.Reason != "" {
		message = "A hook of this installation refused the call: " + v.Reason
	}
	detail := join(by(v.By), v.leftOut())
	if v.Stop {
		detail = join(detail, "it asks for the agent to stop")
	}
	return failed(toolyard.HookBlocked, message, detail)
}

// replaceInput uses a hook's input. why says that it cannot: the input is not JSON, or the call would then be judged
// more strictly than it was scheduled, and would run beside calls that it must not overlap, or without a claim.
func (c *call) replaceInput(ctx context.Context, v HookVerdict) (changed bool, why string) {
	who := v.By
	if who == "" {
		who = "a hook"
	}
	update, err := schema.ParseInput(v.Input)
	if err != nil {
		return false, "the input of " + who + " can't be parsed: " + err.Error()
	}
	if same(update.Doc(), c.seen) {
		return false, ""
	}
	if hasStandIns(update.Doc(), c.seen, c.value.Doc()) {
		return false, who + " saw only a part of the input, and changed it: an input that is cut, or has a secret in a " +
			"name, and a list of which it cannot be told what its secrets are, must come back as it was shown or be " +
			"written anew"
	}
	doc := restore(update.Doc(), c.seen, c.value.Doc())
	if same(doc, c.value.Doc()) {
		return false, ""
	}
	raw, err := schema.Encode(doc)
	if err == nil {
		update, err = schema.Parse(raw)
	}
	if err != nil {
		return false, "the input of " + who + " can't be encoded: " + err.Error()
	}
	if s, err := c.p.schemas().Input(c.entry.InputSchema); err == nil && s.Check(update) == nil {
		j := c.judge(ctx, update)
		if j.Class.Strictness() > c.judgement.Class.Strictness() || (c.judgement.Idempotent && !j.Idempotent) {
			return false, fmt.Sprintf("with the input of %s the call is %s (%s), and it was scheduled as %s", who,
				j.Class, j.Why, c.judgement.Class)
		}
		if !c.holds(update) {
			return false, "with the input of " + who + " the call needs other locks than it was scheduled with"
		}
		j.Class = c.judgement.Class // it was scheduled with this class and runs as such
		c.judgement = j
	} // If the input does not fit, the second parse_schema ends the call.
	c.value, c.changed, c.changedBy = update, true, who
	return true, ""
}

// holds reports whether the call's group has all that the call needs of the workspace with an input that did not exist
// at plan.
func (c *call) holds(v schema.Value) bool {
	return len(c.job.Locks) == 0 || !c.entry.NeedsWorkspace() ||
		registry.HoldAll(c.job.Locks, &c.entry.Declaration, v, c.judgement.Class)
}

// judge judges an input that did not exist at plan.
func (c *call) judge(ctx context.Context, v schema.Value) tool.Judgement {
	d := c.entry.Declaration
	j, ask := registry.JudgeValue(&d, v, c.p.Classify)
	if !ask {
		return j
	}
	if c.code.Judge == nil {
		return tool.Strictest("the tool can't be asked")
	}
	limit := orDefault(c.p.CheckTimeout, DefaultCheckTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	input := bytes.Clone(v.Canonical())
	answer, err := guard(c.p, ctx, func(context.Context) (tool.Judgement, error) { return c.code.Judge(input) })
	if err != nil {
		return tool.Strictest(registry.Why(c.withhold("the tool failed to judge: " + err.Error())))
	}
	answer.Why = c.withhold(answer.Why)
	return registry.CheckJudgement(d, answer)
}

// postHooks shows the hooks the outcome, and lets them change or withhold it. Then it has the scanners look through
// what is left of an output from outside.
func (c *call) postHooks(ctx context.Context) finding { return c.scan(ctx, c.tellHooks(ctx)) }

// tellHooks shows the hooks the outcome, and lets them change or withhold it.
func (c *call) tellHooks(ctx context.Context) finding {
	if c.p.Hooks == nil {
		return finding{}
	}
	in := c.hookInput()
	in.Outcome = HookOutcome{ExecuteMS: c.res.ExecuteMS, Output: c.shown(), Content: c.shownParts(),
		Structured: c.shownStructured()}
	if c.res.Origin != nil {
		in.Outcome.Origin = c.res.Origin.Source
	}
	if c.fail != nil {
		in.Outcome.Code, in.Outcome.IsError, in.Outcome.Error = c.fail.code, true, c.withhold(c.fail.message)
	}
	v, err := guard(c.p, ctx, func(ctx context.Context) (HookVerdict, error) { return c.p.Hooks.Post(ctx, in) })
	if err != nil {
		c.kept = true
		if _, panicked := errors.AsType[*panicError](err); panicked || errors.Is(err, errGone) {
			return c.bug(toolyard.PhasePostHooks, err)
		}
		return failed(toolyard.PostHookFailed, "The tool itself succeeded and its output is kept, but a hook that "+
			"runs after it broke.",
			join(err.Error(), ended(ctx)))
	}
	if v.Block || v.Stop {
		c.dropOutput()
		f := c.vetoed(v)
		switch {
		case c.fail == nil:
			f.fail.message = "The tool itself succeeded; its output is withheld. " + f.fail.message
		case c.fail.foreign: // its words may be the output
			c.fail.message = "What the tool says of its failure is withheld. " + f.fail.message
			c.fail.foreign = false
		}
		return f
	}
	detail := v.leftOut()
	if v.Output != nil && c.fail == nil {
		before := len(c.text)
		if c.parts != nil || c.structured != nil { // they would show what the hook removed
			detail = join(detail, "its parts and data are left out")
		}
		c.out, c.parts, c.structured = tool.Output{Text: *v.Output}, nil, nil
		c.text = valid(c.out.Text)
		detail = join(fmt.Sprintf("output changed by %s, %d to %d bytes, mapped again", orSome(v.By), before,
			len(c.text)), detail)
	}
	if c.addContext(v.Context) {
		detail = join(detail, "context added")
	}
	return finding{detail: detail, noted: detail != ""}
}

// shown is the output that a hook may see.
func (c *call) shown() string {
	if len(c.text) > MaxOutputBytes { // persist_result will refuse it
		return preview(c.withhold(ends(c.text)), -1, "")
	}
	return c.withhold(c.text)
}

// addContext keeps what the hooks add for the model, within the limit of a call.
func (c *call) addContext(text string) bool {
	if text == "" {
		return false
	}
	room := MaxHookContextChars
	for _, t := range c.contexts {
		room -= len([]rune(t))
	}
	if runes := []rune(text); len(runes) > room {
		text = string(runes[:max(room, 0)]) + "… [cut]"
	}
	c.contexts = append(c.contexts, text)
	return true
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return "by " + who
}

func orSome(who string) string {
	if who == "" {
		return "a hook"
	}
	return who
}

func ended(ctx context.Context) string {
	if cause := context.Cause(ctx); cause != nil {
		return cause.Error()
	}
	return ""
}
