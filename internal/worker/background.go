package worker

import (
	"context"
	"strings"
	"sync"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// askBackground has a dispatcher do what a call of a tool of background calls says.
func (w *Worker) askBackground(r *running) func(context.Context, string) (broker.BackgroundAnswer, error) {
	return func(ctx context.Context, hash string) (broker.BackgroundAnswer, error) {
		if err := w.mayAct(r); err != nil {
			return broker.BackgroundAnswer{}, err
		}
		return w.b.Background(ctx, w.cfg.Pool, broker.BackgroundAsk{InputSHA256: hash,
			Call: broker.AskedCall{Agent: r.d.Agent, Batch: r.d.Batch, Index: r.call.Index}})
	}
}

// tail returns how the output of a running background call ends so far.
func (w *Worker) tail(k toolyard.BatchKey, index int) broker.OutputTail {
	w.mu.Lock()
	r := w.running[callKey{k, index}]
	w.mu.Unlock()
	if r == nil {
		return broker.OutputTail{}
	}
	return r.told.get()
}

// tail is the end of an output, at most [broker.MaxTailBytes]. The zero tail of a call that is no background call stays
// empty.
type tail struct {
	keep bool

	mu   sync.Mutex
	text string
	lost int64
}

// add takes a piece that was told, before which lost bytes were left out.
func (t *tail) add(piece string, lost int) {
	if !t.keep {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if lost > 0 { // what came before the gap does not go on behind it
		t.lost += int64(len(t.text) + lost)
		t.text = ""
	}
	t.text += piece
	over := len(t.text) - broker.MaxTailBytes
	if over <= 0 {
		return
	}
	if end := strings.IndexByte(t.text[over:], '\n'); end >= 0 {
		over += end + 1
	}
	t.lost += int64(over)
	t.text = strings.Clone(strings.ToValidUTF8(t.text[over:], ""))
}

func (t *tail) get() broker.OutputTail {
	t.mu.Lock()
	defer t.mu.Unlock()
	return broker.OutputTail{Text: t.text, LostBytes: t.lost}
}
