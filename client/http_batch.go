package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/replay"
	"github.com/toolyard/toolyard/internal/sse"
	"github.com/toolyard/toolyard/internal/submission"
)

// Batches over HTTP: docs/http.md is the contract.

// batchPath is the path of a batch, or of what is under it.
func batchPath(k toolyard.BatchKey, under ...string) string {
	return path(append([]string{"v1", "batches", string(k.ID)}, under...)...)
}

func (*overHTTP) whose(a toolyard.Agent) toolyard.Agent { return a }

func (t *overHTTP) submit(ctx context.Context, b toolyard.Batch) (toolyard.BatchKey, error) {
	var v toolyard.BatchView
	err := t.ask(ctx, request{method: http.MethodPost, path: "/v1/batches", body: b}, &v)
	return toolyard.BatchKey{Agent: v.Agent, ID: v.ID}, err
}

// httpInput appends to one open batch. The server knows what the batch has.
type httpInput struct {
	t *overHTTP
	k toolyard.BatchKey
	// fits is what is known here of the batch's calls; nil when that is not all.
	fits *submission.Input
}

func (t *overHTTP) input(k toolyard.BatchKey, have []toolyard.Call) input {
	in := &httpInput{t: t, k: k}
	if have != nil {
		in.fits = &submission.Input{}
		in.fits.Add(have)
	}
	return in
}

// append gives each call an id before it is sent: when the answer is lost the request is repeated, and the server finds
// calls by their ids. It is one that no other writer gives: the server would take the call for that one's.
func (in *httpInput) append(ctx context.Context, calls []toolyard.Call) (int, error) {
	calls = slices.Clone(calls) // which are the caller's
	for i := range calls {
		calls[i].ID = cmp.Or(calls[i].ID, "call_"+broker.NewID())
	}
	if in.fits != nil {
		fresh, err := in.fits.Fit(calls)
		if err != nil {
			return 0, err
		}
		calls = fresh
	}
	body := struct {
		Calls []toolyard.Call `json:"calls"`
	}{calls}
	var out struct {
		First int `json:"first"`
	}
	err := in.t.ask(ctx, request{method: http.MethodPost, path: batchPath(in.k, "calls"), query: of(in.k.Agent),
		body: body}, &out)
	if err == nil && in.fits != nil {
		in.fits.Add(calls)
	}
	return out.First, err
}

func (in *httpInput) close(ctx context.Context, _ bool) error {
	return in.t.ask(ctx, request{method: http.MethodPost, path: batchPath(in.k, "close"), query: of(in.k.Agent),
		body: struct{}{}}, nil)
}

func (t *overHTTP) view(ctx context.Context, k toolyard.BatchKey) (v toolyard.BatchView, err error) {
	return v, t.ask(ctx, request{method: http.MethodGet, path: batchPath(k), query: of(k.Agent)}, &v)
}

func (t *overHTTP) results(ctx context.Context, k toolyard.BatchKey, _ time.Time,
	yield func(toolyard.Result) bool) error {
	next := 0
	return t.read(ctx, &tap{path: batchPath(k, "results"), query: of(k.Agent), take: func(e sse.Event) error {
		switch e.Name {
		case "result":
			var r toolyard.Result
			if err := json.Unmarshal(e.Data, &r); err != nil {
				return fmt.Errorf("batch %s: result %s cannot be read: %w", k, e.ID, err)
			}
			if r.Index != next || e.ID != strconv.Itoa(next) {
				return fmt.Errorf("batch %s: the result of call %d came where that of call %d is next", k, r.Index,
					next)
			}
			next++
			if !yield(r) {
				return errLeft
			}
		case "completed":
			var end struct {
				Results int `json:"results"`
			}
			if err := json.Unmarshal(e.Data, &end); err != nil {
				return fmt.Errorf("batch %s: its end cannot be read: %w", k, err)
			}
			if end.Results != next {
				return fmt.Errorf("batch %s: it is said to have %d results, and %d came", k, end.Results, next)
			}
			return errEnd
		}
		return nil
	}})
}

func (t *overHTTP) listen(context.Context, toolyard.BatchKey) (*follow.Listening, error) {
	return nil, nil
}

func (t *overHTTP) progress(ctx context.Context, k toolyard.BatchKey, _ time.Time, yield func(Progress) bool) error {
	query := of(k.Agent)
	query.Set("progress", "only")
	return t.read(ctx, &tap{path: batchPath(k, "results"), query: query, take: func(e sse.Event) error {
		switch e.Name {
		case "progress":
			var p Progress
			// one that cannot be read says nothing that stays
			if err := json.Unmarshal(e.Data, &p); err == nil && !yield(p) {
				return errLeft
			}
		case "waiting":
			p := Progress{Index: -1, Waiting: new(Waiting)}
			if err := json.Unmarshal(e.Data, p.Waiting); err == nil && !yield(p) {
				return errLeft
			}
		case "completed":
			return errEnd
		}
		return nil
	}})
}

func (t *overHTTP) follow(ctx context.Context, k toolyard.BatchKey, live bool, see func(logged) error) error {
	query := of(k.Agent)
	query.Set("follow", strconv.FormatBool(live))
	query.Set("end", "true")
	seq := uint64(0)
	return t.read(ctx, &tap{path: batchPath(k, "events"), query: query, take: func(e sse.Event) error {
		switch e.Name {
		case "cloudevent":
			seq++
			stored, err := replay.Decode(e.Data, seq)
			if err != nil {
				return fmt.Errorf("batch %s: event %d cannot be read: %w", k, seq, err)
			}
			return see(logged{record: stored.Record, json: e.Data})
		case "end":
			return errEnd
		}
		return nil
	}})
}

// happening is an event of any batch as the server tells it.
type happening struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Time  time.Time        `json:"time"`
	What  string           `json:"what"`
	Gap   string           `json:"gap"`
	Event json.RawMessage  `json:"event"`
}

func (h happening) event() (Event, error) {
	e := Event{Batch: toolyard.BatchKey{Agent: h.Agent, ID: h.Batch}, Time: h.Time, What: h.What, Gap: h.Gap,
		JSON: h.Event}
	if len(h.Event) == 0 {
		return e, nil
	}
	_, body, err := events.DecodeJSON(h.Event)
	if body, err = events.OrNewer(body, err); err != nil {
		return e, err
	}
	e.Type = string(body.EventType())
	return e, nil
}

func (t *overHTTP) subscribe(ctx context.Context, agent toolyard.Agent) (func(func(Event) bool) error, error) {
	s := &tap{path: "/v1/events", query: of(agent)}
	var err error
	if s.conn, err = t.connect(ctx, s); err != nil {
		return nil, err
	}
	return func(yield func(Event) bool) error {
		tell := func(e Event) error {
			if !yield(e) {
				return errLeft
			}
			return nil
		}
		s.cut = func(err error) error {
			return tell(Event{Time: time.Now(), Gap: "the connection to the server was lost for a while: " +
				err.Error()})
		}
		s.take = func(e sse.Event) error {
			if e.Name != "cloudevent" {
				return nil
			}
			var h happening
			if err := json.Unmarshal(e.Data, &h); err != nil {
				return fmt.Errorf("an event cannot be read: %w", err)
			}
			event, err := h.event()
			if err != nil {
				event.Gap = "an event cannot be read: " + err.Error()
			}
			return tell(event)
		}
		return t.read(ctx, s)
	}, nil
}

func (t *overHTTP) cancel(ctx context.Context, k toolyard.BatchKey, reason string, calls []int) error {
	body := struct {
		Reason string `json:"reason,omitempty"`
		Calls  []int  `json:"calls,omitempty"`
	}{reason, calls}
	return t.ask(ctx, request{method: http.MethodPost, path: batchPath(k, "cancel"), query: of(k.Agent), body: body},
		nil)
}

func (t *overHTTP) batches(ctx context.Context, f Filter) ([]BatchInfo, bool, error) {
	q := of(f.Agent)
	for name, value := range map[string]string{"session": string(f.Session), "status": string(f.Status)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.After > 0 {
		q.Set("after", strconv.FormatUint(f.After, 10))
	}
	limit := f.Limit
	if limit == 0 {
		limit = maxListed
	}
	q.Set("limit", strconv.Itoa(limit))
	var page struct {
		Batches []BatchInfo `json:"batches"`
		Next    uint64      `json:"next"`
	}
	err := t.ask(ctx, request{method: http.MethodGet, path: "/v1/batches", query: q}, &page)
	return page.Batches, page.Next > 0, err
}

// maxListed is how many batches a page has at most.
const maxListed = 1_000
