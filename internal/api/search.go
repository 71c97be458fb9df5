package api

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
)

// Batches by what stands in their logs, and not in the index. A search looks at a bounded part of the list at a time,
// and says how far it got.

const (
	// maxSearched is how many batches one request of a search looks at in the index, and maxSearchedLogs how many of
	// their logs it reads. searchReads is how many it reads at a time.
	maxSearched     = 2_000
	maxSearchedLogs = 200
	searchReads     = 4
	// maxSearchedCalls is how many calls these logs have together. maxFoldedCalls is how many the logs have that are
	// read at a time, for all requests.
	maxSearchedCalls = 50_000
	maxFoldedCalls   = 2 * toolyard.MaxCallsPerBatch
	// maxDigests is how many batches are remembered: those that are over as they are, and the others for lookPerCall
	// for each of their calls.
	maxDigests  = 10_000
	lookPerCall = time.Millisecond
)

type searchInput struct {
	Listed
	Tool  string    `query:"tool" doc:"Only batches with a call of this tool."`
	Code  string    `query:"code" doc:"Only batches with a result of this code; error: of any error."`
	Text  string    `query:"text" doc:"Only batches whose id, agent, session or workspace contains this."`
	Since time.Time `query:"since" doc:"Only batches that were submitted at this time or later."`
	Until time.Time `query:"until" doc:"Only batches that were submitted before this time."`
	After uint64    `query:"after" doc:"Go on behind this place: the next of the page before. 0 begins with the newest."`
	Limit int       `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"How many batches a page has at most."`
}

// Digest is a batch with what stands in its log.
type Digest struct {
	client.BatchInfo
	Tools  []string        `json:"tools" doc:"The tools of its calls, each once."`
	Codes  []toolyard.Code `json:"codes" doc:"The codes of its errors, each once."`
	Failed int             `json:"failed" doc:"How many of its results are errors."`
	Opaque bool            `json:"opaque,omitempty" doc:"Its log cannot be read: tools and codes are missing."`
}

// Found is a part of what a search finds.
type Found struct {
	Batches []Digest `json:"batches" doc:"The newest first."`
	Next    uint64   `json:"next,omitempty" doc:"The after of the next page; left out when nothing follows. A page may have fewer batches than limit, or none, and others follow."`
	Looked  int      `json:"looked" doc:"How many batches were looked at for this page."`
}

func (in *searchInput) fits(b *client.BatchInfo) bool {
	text := strings.ToLower(in.Text)
	return (in.Until.IsZero() || b.Submitted.Before(in.Until)) && (text == "" || slices.ContainsFunc([]string{
		string(b.ID), string(b.Agent), string(b.Session), string(b.Workspace)},
		func(s string) bool { return strings.Contains(strings.ToLower(s), text) }))
}

func (in *searchInput) fitsLog(d *Digest) bool {
	if in.Tool == "" && in.Code == "" {
		return true
	}
	return !d.Opaque && (in.Tool == "" || slices.Contains(d.Tools, in.Tool)) &&
		(in.Code == "" || in.Code == "error" && len(d.Codes) > 0 || slices.Contains(d.Codes, toolyard.Code(in.Code)))
}

func (s *Server) search(ctx context.Context, x *exchange, in *searchInput) (*struct{ Body Found }, error) {
	f, err := in.filter(x.who)
	if err != nil {
		return nil, err
	}
	leave, err := enter(s.looks, x.who)
	if err != nil {
		return nil, err
	}
	defer leave()
	out, logs, calls := Found{Batches: []Digest{}, Next: in.After}, 0, 0
	for {
		f.After, f.Limit = out.Next, in.Limit
		page, more, err := s.cfg.Client.Batches(ctx, f)
		if err != nil {
			return nil, err
		}
		var fit []client.BatchInfo
		full := false
		for i := range page {
			if !in.Since.IsZero() && page[i].Submitted.Before(in.Since) { // and so are all behind it
				page, more = page[:i], false
				break
			}
			if !in.fits(&page[i]) {
				continue
			}
			if calls+page[i].Calls > maxSearchedCalls { // the next request goes on here
				page, full = page[:i], true
				break
			}
			calls += page[i].Calls
			fit = append(fit, page[i])
		}
		digests, err := s.digest(ctx, fit)
		if err != nil {
			return nil, err
		}
		logs += len(fit)
		for n := range page {
			out.Looked, out.Next = out.Looked+1, page[n].Cursor
			if len(digests) == 0 || digests[0].Cursor != page[n].Cursor { // they have the page's order
				continue
			}
			d := digests[0]
			if digests = digests[1:]; !in.fitsLog(&d) {
				continue
			}
			if out.Batches = append(out.Batches, d); len(out.Batches) == in.Limit {
				if n == len(page)-1 && !more && !full {
					out.Next = 0
				}
				return &struct{ Body Found }{out}, nil
			}
		}
		if !full && (!more || len(page) == 0) {
			out.Next = 0
			return &struct{ Body Found }{out}, nil
		}
		if full || out.Looked >= maxSearched || logs >= maxSearchedLogs {
			return &struct{ Body Found }{out}, nil
		}
	}
}

// digest looks into batches.
func (s *Server) digest(ctx context.Context, list []client.BatchInfo) ([]Digest, error) {
	out := make([]Digest, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(searchReads)
	for i, b := range list {
		g.Go(func() error {
			out[i] = s.digests.of(b, time.Now())
			if out[i].Tools != nil {
				return nil
			}
			room := int64(min(max(b.Calls, 1), maxFoldedCalls))
			if err := s.folding.Acquire(ctx, room); err != nil {
				return err
			}
			defer s.folding.Release(room)
			over, err := s.lookInto(ctx, &out[i])
			if err != nil { // it is damaged, too new, or has just expired: the others can be shown
				out[i].Opaque = true
				return ctx.Err()
			}
			s.digests.put(out[i], over, time.Now())
			return nil
		})
	}
	return out, g.Wait()
}

// lookInto fills a digest with what stands in the log of its batch. Of a batch that is over the replies say all, in few
// messages: to read one that its server does not have in memory takes as long as to read the whole block around it.
func (s *Server) lookInto(ctx context.Context, d *Digest) (over bool, err error) {
	d.Tools, d.Codes = []string{}, []toolyard.Code{}
	tools, codes, failed := map[string]bool{}, map[toolyard.Code]bool{}, 0
	add := func(tool string, r *toolyard.Result) {
		tools[tool] = true
		if r != nil && r.IsError {
			codes[r.Code] = true
			failed++
		}
	}
	k := toolyard.BatchKey{Agent: d.Agent, ID: d.ID}
	if over = d.Status == toolyard.StatusCompleted || d.Status == toolyard.StatusCanceled; over {
		err = s.cfg.Reader.Results(ctx, k, func(r *toolyard.Result) { add(r.Tool, r) })
	} else {
		var st batch.State
		st, err = s.cfg.Reader.State(ctx, k)
		for n := range st.Calls {
			add(st.Plan.Calls[n].Tool, st.Calls[n].Result)
		}
		over = st.Completed
	}
	if err != nil {
		return false, err
	}
	d.Tools, d.Codes, d.Failed = sorted(tools), sorted(codes), failed
	return over, nil
}

func sorted[T ~string](set map[T]bool) []T {
	out := make([]T, 0, len(set))
	for v := range set {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}

// digests remembers batches. One that is over does not change.
type digests struct {
	mu   sync.Mutex
	each map[toolyard.BatchKey]remembered
}

type remembered struct {
	Digest
	// until is when the batch is looked into again; zero: never.
	until time.Time
}

// of is what is remembered of a batch. Without Tools, nothing is.
func (ds *digests) of(b client.BatchInfo, now time.Time) Digest {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d, ok := ds.each[toolyard.BatchKey{Agent: b.Agent, ID: b.ID}]
	if !ok || d.Cursor != b.Cursor || !d.until.IsZero() && !now.Before(d.until) {
		d = remembered{}
	}
	d.BatchInfo = b
	return d.Digest
}

func (ds *digests) put(d Digest, over bool, now time.Time) {
	r := remembered{Digest: d}
	if !over {
		r.until = now.Add(time.Duration(d.Calls) * lookPerCall)
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.each == nil {
		ds.each = map[toolyard.BatchKey]remembered{}
	}
	for k := range ds.each { // any of them: it is read again when it is asked for
		if len(ds.each) < maxDigests {
			break
		}
		delete(ds.each, k)
	}
	ds.each[toolyard.BatchKey{Agent: d.Agent, ID: d.ID}] = r
}
