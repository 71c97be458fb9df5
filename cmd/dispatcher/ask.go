package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// askEvery is how often run looks for calls that wait for the person at the terminal.
const askEvery = 50 * time.Millisecond

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// askPerson asks the person at the terminal about each call that waits, one after the other, until ctx ends. When the
// terminal says nothing any more, every call is denied.
func (s *std) askPerson(ctx context.Context, c *client.Client, agent toolyard.Agent, log *slog.Logger) {
	lines := bufio.NewScanner(s.in)
	asked := map[string]bool{}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := c.Approvals(ctx, agent)
		if err != nil {
			if ctx.Err() == nil {
				log.Warn("the calls that wait for a person cannot be read", "error", err)
			}
			continue
		}
		for _, a := range slices.Backward(list) { // those that were asked about first first
			if asked[a.ID] {
				continue
			}
			asked[a.ID] = true
			if err := s.askOne(ctx, c, a, lines); err != nil && ctx.Err() == nil && !errors.Is(err, client.ErrNoApproval) {
				log.Error("an answer was not stored", "approval", a.ID, "error", err)
				asked[a.ID] = false
			}
		}
	}
}

// askOne asks about one call, until the answer can be understood.
func (s *std) askOne(ctx context.Context, c *client.Client, a client.Approval, lines *bufio.Scanner) error {
	defer s.bars.hold()()
	p := &show{w: s.err, on: true}
	p.printf("\nMay this call run?\n")
	p.approval(a)
	decision := client.Decision{By: person()}
	for {
		p.printf("[y]es, [n]o%s: ", map[bool]string{true: ", yes for the [s]ession"}[a.Remember != ""])
		if p.err != nil {
			return fmt.Errorf("ask: %w", p.err)
		}
		if !lines.Scan() {
			decision.Reason = "the terminal was closed"
			return c.Deny(ctx, a.ID, decision)
		}
		switch answer := strings.ToLower(strings.TrimSpace(lines.Text())); {
		case answer == "y" || answer == "yes":
			return c.Approve(ctx, a.ID, decision)
		case answer == "n" || answer == "no":
			return c.Deny(ctx, a.ID, decision)
		case a.Remember != "" && (answer == "s" || answer == "session"):
			decision.ForSession = true
			return c.Approve(ctx, a.ID, decision)
		}
	}
}
