//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// history reads everything. The number of batches differs, so each read has a limit of its own.
func (s *system) history() (*verdict.History, error) {
	ctx := context.WithoutCancel(s.t.Context())
	h := &verdict.History{Batches: map[toolyard.BatchKey]*verdict.Batch{}, Processes: map[string]int{},
		FaultEnd: s.faultEnd}
	for id, p := range s.workers {
		h.Processes[id] = p.pid()
	}
	for _, l := range s.loads {
		l.mu.Lock()
		h.Submissions = append(h.Submissions, l.submissions...)
		h.Refused = append(h.Refused, l.refused...)
		l.mu.Unlock()
	}
	var err error
	if h.Ledger, err = ledger.Read(s.ledger()); err != nil {
		return h, err
	}
	for _, sub := range h.Submissions {
		if h.Batches[sub.Key()], err = s.read(ctx, sub.Key()); err != nil {
			return h, fmt.Errorf("read batch %s: %w", sub.Key(), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	replies, err := s.js.Stream(ctx, "TY_REPLY")
	if err != nil {
		return h, err
	}
	info, err := replies.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return h, err
	}
	for subject := range info.State.Subjects {
		t := strings.Split(subject, ".")
		agent, err1 := broker.Unescape(t[2])
		id, err2 := broker.Unescape(t[3])
		if err := errors.Join(err1, err2); err != nil {
			return h, err
		}
		h.Replied = append(h.Replied, toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(id)})
	}
	return h, nil
}

// read reads one batch.
func (s *system) read(ctx context.Context, key toolyard.BatchKey) (*verdict.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	return verdict.Read(ctx, s.b, s.c, key)
}
