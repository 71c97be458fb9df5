package verdict

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/replay"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// History is all that is left of a run.
type History struct {
	Submissions []*Submission
	Ledger      []ledger.Line
	Batches     map[toolyard.BatchKey]*Batch
	// Replied are the batches that the reply stream knows.
	Replied []toolyard.BatchKey
	// Refused are the batches that were refused for want of room.
	Refused []toolyard.BatchKey
	// Processes are the workers' processes, by worker id.
	Processes map[string]int
	FaultEnd  time.Time
	// LedgerAt is when the ledger was read; zero: when every tool had had time to stop.
	LedgerAt time.Time
}

// Submission is a batch that an agent has handed in, and what the agent saw of it.
type Submission struct {
	Batch toolyard.Batch `json:"batch"`
	// Acked is when the batch was accepted, or the last calls of an open one; Over when its last result was there.
	Acked time.Time `json:"acked"`
	Over  time.Time `json:"over"`
	// Results are what the agent got, and when.
	Results []toolyard.Result `json:"results"`
	At      []time.Time       `json:"at"`
	// Again are the results that others got who submitted the same batch, or asked for it later.
	Again [][]toolyard.Result `json:"again,omitempty"`
	// Problems are what the agent found wrong.
	Problems []string `json:"problems,omitempty"`
}

// Key is the batch's.
func (s *Submission) Key() toolyard.BatchKey { return s.Batch.Key() }

// Problem notes what the agent found wrong.
func (s *Submission) Problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// Batch is what the streams hold of one batch.
type Batch struct {
	Log []broker.Logged
	// View is the batch as it is told to whoever asks, and Replayed the same from its events, read again.
	View, Replayed []byte
	Contradiction  error
}

// Read reads what the streams hold of a batch, and what a client is told of it.
func Read(ctx context.Context, b *natsbroker.Broker, c *client.Client, k toolyard.BatchKey) (*Batch, error) {
	r := &Batch{}
	var err error
	if r.Log, err = b.Log(ctx, k); errors.Is(err, broker.ErrNoBatch) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	view, err := c.Batch(k).View(ctx)
	if err != nil {
		return r, err
	}
	r.View = raw(view)
	var events bytes.Buffer
	for e, err := range c.Batch(k).Events(ctx) {
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
		if r.Contradiction = again.Add(e); r.Contradiction != nil {
			break
		}
	}
	r.Replayed = raw(again.Report().Batch)
	return r, nil
}

// Results are what the log gives each call, by index, and when it was stored.
func (r *Batch) Results() map[int]Finished {
	out := map[int]Finished{}
	for _, l := range r.Log {
		for _, res := range events.ResultsIn(l.Body) {
			if _, ok := out[res.Index]; !ok {
				out[res.Index] = Finished{res, l.Time}
			}
		}
	}
	return out
}

// Finished is a call's result and when it was stored.
type Finished struct {
	toolyard.Result
	At time.Time
}

// Write writes the history down for people, in the order of time.
func (h *History) Write(path string) error {
	type line struct {
		At   time.Time `json:"at"`
		What string    `json:"what"`
		Data any       `json:"data"`
	}
	var lines []line
	for _, l := range h.Ledger {
		lines = append(lines, line{time.Unix(0, l.Wall), "tool " + string(l.Kind), l})
	}
	for _, sub := range h.Submissions {
		for i, r := range sub.Results {
			lines = append(lines, line{sub.At[i], fmt.Sprintf("%s has result %d", sub.Key(), r.Index),
				map[string]any{"code": r.Code, "worker": r.Worker}})
		}
		lines = append(lines, line{sub.Acked, fmt.Sprintf("%s was accepted", sub.Key()),
			map[string]any{"batch": sub.Batch, "problems": sub.Problems}})
	}
	for k, r := range h.Batches {
		for _, l := range r.Log {
			lines = append(lines, line{l.Time, fmt.Sprintf("%s stored %s", k, l.Body.EventType()),
				map[string]any{"chain": l.Chain, "index": l.Index, "seq": l.Seq, "source": l.Meta.Source,
					"body": l.Body}})
		}
	}
	lines = append(lines, line{h.FaultEnd, "the last fault has ended", nil})
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

// raw is a value as JSON.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the checks' own values
	}
	return b
}
