package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// call is the input of the tool. Every peer carries it as JSON.
type call struct {
	Batch string `json:"batch"`
	Index int    `json:"index"`
	K     int    `json:"k,omitempty"`
	Args  string `json:"args"`
}

func (c config) call(batch string, i int) call {
	return call{Batch: batch, Index: i, Args: strings.Repeat("a", c.payload)}
}

// noop is the tool that every peer runs: it does nothing.
func noop(a call) string { return result(a.Batch, a.Index) }

// result is about 200 bytes that name the call.
func result(batch string, i int) string { return fmt.Sprintf("ok:%s:%d:%s", batch, i, filler) }

var filler = strings.Repeat("r", 170)

// gatherer collects results that arrive in any order from any goroutine.
type gatherer struct {
	mu      sync.Mutex
	pending map[string]*gathering
}

type gathering struct {
	got  []string
	left int
	done chan struct{}
}

func newGatherer() *gatherer { return &gatherer{pending: map[string]*gathering{}} }

func (g *gatherer) expect(batch string, k int) *gathering {
	w := &gathering{got: make([]string, k), left: k, done: make(chan struct{})}
	g.mu.Lock()
	g.pending[batch] = w
	g.mu.Unlock()
	return w
}

// put stores a result. A second result of the same call is dropped.
func (g *gatherer) put(batch string, i int, r string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.pending[batch]
	if w == nil || i < 0 || i >= len(w.got) || w.got[i] != "" {
		return
	}
	w.got[i] = r
	if w.left--; w.left == 0 {
		delete(g.pending, batch)
		close(w.done)
	}
}

func (w *gathering) wait(ctx context.Context) ([]string, error) {
	select {
	case <-w.done:
		return w.got, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for results: %w", context.Cause(ctx))
	}
}

// each calls f(0..k-1), n at a time, and returns the first error.
func each(k, n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(n)
	for i := range k {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}
