//go:build unix

package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/replay"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// history is all that is left of a run.
type history struct {
	submissions []*submission
	ledger      []ledger.Line
	batches     map[toolyard.BatchKey]*recorded
	// replied are the batches that the reply stream knows.
	replied []toolyard.BatchKey
	// refused are the batches that were refused for want of room.
	refused []toolyard.BatchKey
	// processes are the workers' processes, by worker id.
	processes map[string]int
	faultEnd  time.Time
}

// recorded is what the streams hold of one batch.
type recorded struct {
	log []broker.Logged
	// view is the batch as it is told to whoever asks, and replayed the same from its events, read again.
	view, replayed []byte
	contradiction  error
}

// history reads everything.
func (s *system) history() (*history, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), startWait)
	defer cancel()
	h := &history{batches: map[toolyard.BatchKey]*recorded{}, processes: map[string]int{}, faultEnd: s.faultEnd}
	for id, p := range s.workers {
		h.processes[id] = p.pid()
	}
	for _, l := range s.loads {
		l.mu.Lock()
		h.submissions = append(h.submissions, l.submissions...)
		h.refused = append(h.refused, l.refused...)
		l.mu.Unlock()
	}
	var err error
	if h.ledger, err = ledger.Read(s.ledger()); err != nil {
		return h, err
	}
	for _, sub := range h.submissions {
		if h.batches[sub.key()], err = s.record(ctx, sub.key()); err != nil {
			return h, fmt.Errorf("read batch %s: %w", sub.key(), err)
		}
	}
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
		h.replied = append(h.replied, toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(id)})
	}
	return h, nil
}

func (s *system) record(ctx context.Context, k toolyard.BatchKey) (*recorded, error) {
	r := &recorded{}
	var err error
	if r.log, err = s.b.Log(ctx, k); errors.Is(err, broker.ErrNoBatch) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	view, err := s.c.Batch(k).View(ctx)
	if err != nil {
		return r, err
	}
	r.view = raw(view)
	var events bytes.Buffer
	for e, err := range s.c.Batch(k).Events(ctx) {
		if err != nil {
			return r, err
		}
		events.Write(append(e, '\n'))
	}
	var again replay.Replay
	for e, err := range replay.Read(&events) {
		if err != nil {
			return r, err
		}
		if r.contradiction = again.Add(e); r.contradiction != nil {
			break
		}
	}
	r.replayed = raw(again.Report().Batch)
	return r, nil
}

// results are what the log gives each call, by index, and when it was stored.
func (r *recorded) results() map[int]finished {
	out := map[int]finished{}
	for _, l := range r.log {
		for _, res := range resultsIn(l.Body) {
			if _, ok := out[res.Index]; !ok && l.Chain != batch.ChainReply {
				out[res.Index] = finished{res, l.Time}
			}
		}
	}
	return out
}

// finished is a call's result and when it was stored.
type finished struct {
	toolyard.Result
	at time.Time
}

// write writes the history down for people, in the order of time.
func (h *history) write(path string) error {
	type line struct {
		At   time.Time `json:"at"`
		What string    `json:"what"`
		Data any       `json:"data"`
	}
	var lines []line
	for _, l := range h.ledger {
		lines = append(lines, line{time.Unix(0, l.Wall), "tool " + string(l.Kind), l})
	}
	for _, sub := range h.submissions {
		for i, r := range sub.Results {
			lines = append(lines, line{sub.At[i], fmt.Sprintf("%s has result %d", sub.key(), r.Index), map[string]any{"code": r.Code, "worker": r.Worker}})
		}
		lines = append(lines, line{sub.Acked, fmt.Sprintf("%s was accepted", sub.key()), map[string]any{"batch": sub.Batch, "problems": sub.Problems}})
	}
	for k, r := range h.batches {
		for _, l := range r.log {
			lines = append(lines, line{l.Time, fmt.Sprintf("%s stored %s", k, l.Body.EventType()), map[string]any{"chain": l.Chain, "index": l.Index, "seq": l.Seq, "source": l.Meta.Source, "body": l.Body}})
		}
	}
	lines = append(lines, line{h.faultEnd, "the last fault has ended", nil})
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.What, b.What)) })
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}
