package dispatchercmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/pause"
)

// askEvery is how often run looks for calls that wait for the person at the terminal.
const askEvery = 50 * time.Millisecond

// askPerson asks the person at the terminal about each call that waits, one after the other, until ctx ends. When the
// terminal says nothing any more, every call is denied. dir is where the calls act.
func (s *std) askPerson(ctx context.Context, c *client.Client, agent toolyard.Agent, dir string, log *slog.Logger) {
	lines := bufio.NewScanner(s.in)
	asked := map[string]string{} // the question of each call that was asked about last
	for pause.For(ctx, askEvery) == nil {
		list, err := c.Approvals(ctx, agent)
		if err != nil {
			if ctx.Err() == nil {
				log.Warn("the calls that wait for a person cannot be read", "error", err)
			}
			continue
		}
		for _, a := range slices.Backward(list) { // those that were asked about first first
			question := a.InputSHA256 + a.AskedAt.String() // a tool may ask more than once
			if asked[a.ID] == question {
				continue
			}
			asked[a.ID] = question
			if err := s.askOne(ctx, c, a, lines, fileNow(dir, a)); err != nil && ctx.Err() == nil &&
				!errors.Is(err, client.ErrNoApproval) {
				log.Error("an answer was not stored", "approval", a.ID, "error", err)
				delete(asked, a.ID)
			}
		}
	}
}

// askOne asks about one call, until the answer can be understood. What cannot be shown whole is denied.
func (s *std) askOne(ctx context.Context, c *client.Client, a client.Approval, lines *bufio.Scanner,
	before *string) error {
	defer s.bars.hold()()
	k := &asker{s.sheetOf(s.err), lines}
	// Also a no is to this question: somebody else may answer meanwhile, and the call ask another.
	decision := client.Decision{Verdict: client.Deny, By: person(), InputSHA256: a.InputSHA256}
	text, partial := described(a, k.columns, before)
	if partial != nil {
		decision.Reason = partial.Error()
		if _, err := k.pages(append([]string{"", "This call is denied:"}, text...), "[n]o more"); err != nil &&
			!errors.Is(err, io.EOF) {
			return fmt.Errorf("say that a call is denied: %w", err)
		}
		return c.Decide(ctx, a.ID, decision)
	}
	if a.Form != nil {
		return k.fill(ctx, c, a, text, decision)
	}
	said, err := k.ask("May this call run?", text, a.Remember != "")
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	switch said {
	case yes, forSession:
		decision.Verdict, decision.ForSession = client.Allow, said == forSession
	case silent:
		decision.Reason = "the terminal was closed"
	}
	return c.Decide(ctx, a.ID, decision)
}

// fill asks for the answer to what a call's tool asks, until there is one that fits, or the person declines.
func (k *asker) fill(ctx context.Context, c *client.Client, a client.Approval, text []string, d client.Decision) error {
	lines := append([]string{"", "The tool asks you:"}, text...)
	got, err := k.pages(lines, "[n]o answer")
	for err == nil && got == "" {
		if _, err = io.WriteString(k.w, "your answer as JSON on one line, [Enter] for the one above, [n]o answer: "); err != nil {
			break
		}
		if !k.in.Scan() {
			err = io.EOF
			break
		}
		said := strings.TrimSpace(k.in.Text())
		if said == "n" || said == "no" {
			break
		}
		yes := d
		yes.Verdict = client.Allow
		if said != "" {
			yes.Input = json.RawMessage(said)
		}
		decided := c.Decide(ctx, a.ID, yes)
		if wrong, ok := errors.AsType[*toolyard.InputError](decided); ok {
			_, err = fmt.Fprintln(k.w, display.Text(wrong.Problem))
			continue
		}
		return decided
	}
	if errors.Is(err, io.EOF) {
		d.Reason, err = "the terminal was closed", nil
	}
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	return c.Decide(ctx, a.ID, d)
}
