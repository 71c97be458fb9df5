package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// Reply is one reply of a batch: results in the order of the calls.
type Reply struct {
	Results   []toolyard.Result
	Completed bool
	// JSON encodes the results, once for all followers.
	JSON func() ([][]byte, error)

	seq     uint64
	refused *events.Refused
}

// resultOverhead is about how many bytes a result takes beside its texts.
const resultOverhead = 1 << 10

func readReply(r batch.Record) (out Reply, size int, err error) {
	out.seq = r.Seq
	switch body := r.Body.(type) {
	case events.Refused:
		out.refused = &body
	case events.Reply:
		out.Results, out.Completed = body.Results, body.Completed
		out.JSON = sync.OnceValues(func() ([][]byte, error) {
			data := make([][]byte, len(body.Results))
			for i, res := range body.Results {
				if data[i], err = json.Marshal(res); err != nil {
					return nil, err
				}
			}
			return data, nil
		})
		for i := range body.Results {
			res := &body.Results[i]
			size += resultOverhead + 2*(len(res.Output)+len(res.Error)) // as texts, and in JSON
			for n := range res.Content {
				size += 2 * (len(res.Content[n].Text) + len(res.Content[n].Data))
			}
		}
	default:
		return out, 0, errors.New("an event stands where replies do: " + string(r.Body.EventType()))
	}
	return out, size, nil
}

// Replies yields the replies of a batch from the first on, to the last. It ends with a [*RefusedError] when the batch
// was refused. slow says whether the follower is a slow one; nil: it never is.
func (r *Reader) Replies(ctx context.Context, k toolyard.BatchKey, slow func() bool) iter.Seq2[Reply, error] {
	return r.allReplies(ctx, k, slow, false)
}

// NewReplies is [Reader.Replies] of a batch that this program handed in: stored is when it learned that the batch is
// stored. When that was a moment ago, live copies are waited for before what is stored is read.
func (r *Reader) NewReplies(ctx context.Context, k toolyard.BatchKey, stored time.Time) iter.Seq2[Reply, error] {
	return r.allReplies(ctx, k, nil, time.Since(stored) < moment)
}

func (r *Reader) allReplies(ctx context.Context, k toolyard.BatchKey, slow func() bool, isNew bool) iter.Seq2[Reply,
	error] {
	return func(yield func(Reply, error) bool) {
		err := r.replies(ctx, k, slow, isNew, func(p Reply) bool { return yield(p, nil) })
		if err != nil {
			yield(Reply{}, err)
		}
	}
}

func (r *Reader) replies(ctx context.Context, k toolyard.BatchKey, slow func() bool, isNew bool,
	yield func(Reply) bool) error {
	seen, next := uint64(0), 0
	take := func(p Reply) (done bool, err error) {
		if p.seq <= seen {
			return false, nil
		}
		seen = p.seq
		for _, res := range p.Results {
			if res.Index != next {
				return true, fmt.Errorf("batch %s: the result of call %d came where that of call %d is next", k,
					res.Index, next)
			}
			next++
		}
		if p.refused != nil {
			return true, &RefusedError{*p.refused}
		}
		return !yield(p) || p.Completed, nil
	}
	if !r.shared { // the topic is this follower's own, and begins with what is stored
		if over, err := r.liveReplies(ctx, k, slow, seen, isNew, take); over || err != nil {
			return err
		}
	}
	for {
		records, err := again(ctx, r, func() ([]batch.Record, error) {
			done, err := r.Turn(ctx, k.Agent)
			if err != nil {
				return nil, err
			}
			defer done()
			return r.RepliesFrom(ctx, k, seen, maxPieceReplies)
		})
		if err != nil {
			return err
		}
		for _, rec := range records {
			p, _, err := readReply(rec)
			if err != nil {
				return err
			}
			if done, err := take(p); done || err != nil {
				return err
			}
		}
		if len(records) > 0 {
			continue
		}
		over, err := r.liveReplies(ctx, k, slow, seen, false, take)
		if over || err != nil {
			return err
		}
	}
}

// Results gives all results of a batch that is over, and fails if it is not, or is no longer kept. It reads nothing but
// the replies.
func (r *Reader) Results(ctx context.Context, k toolyard.BatchKey, each func(*toolyard.Result)) error {
	for after := uint64(0); ; {
		records, err := r.RepliesFrom(ctx, k, after, maxPieceReplies)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return fmt.Errorf("batch %s has no last reply: %w", k, broker.ErrNoBatch)
		}
		for _, rec := range records {
			p, _, err := readReply(rec)
			if err != nil {
				return err
			}
			for i := range p.Results {
				each(&p.Results[i])
			}
			if after = p.seq; broker.Over(rec) {
				return nil
			}
		}
	}
}

// liveReplies takes replies from the topic of a batch. over is false when some are missing before what the topic has.
func (r *Reader) liveReplies(ctx context.Context, k toolyard.BatchKey, slow func() bool, seen uint64, isNew bool,
	take func(Reply) (bool, error)) (over bool, err error) {
	f, leave, ok := r.answered.join(k, Reply{seq: seen}, func(base Reply) bool { return base.seq <= seen },
		func(ctx context.Context, t *topic[Reply]) error { return r.readReplies(ctx, k, t, isNew) })
	if !ok {
		return false, nil
	}
	defer leave()
	return f.each(ctx, slow, func(all []Reply) (over bool, err error) {
		for _, p := range all {
			if over, err := take(p); over || err != nil {
				return true, err
			}
		}
		return false, nil
	})
}

// readReplies fills a topic with the replies of a batch.
func (r *Reader) readReplies(ctx context.Context, k toolyard.BatchKey, t *topic[Reply], isNew bool) error {
	seen := t.base.seq
	f, err := again(ctx, r, func() (broker.ReplyFollower, error) {
		return r.hub.ReplyFollower(ctx, k, t.base.seq, isNew)
	})
	if err != nil {
		return err
	}
	defer f.Stop()
	return fill(ctx, r, k, f, &seen, func(rec batch.Record) (over bool, err error) {
		out, size, err := readReply(rec)
		if err != nil {
			return false, err
		}
		t.put(out, size)
		seen = out.seq
		return out.Completed || out.refused != nil, nil
	})
}
