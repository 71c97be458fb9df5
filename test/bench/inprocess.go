package main

import (
	"context"
	"sync"
)

// inprocess is the bound on everything: goroutines behind a channel, with nothing stored and nothing encoded.
type inprocess struct {
	c       config
	jobs    chan call
	g       *gatherer
	stop    context.CancelFunc
	workers sync.WaitGroup
}

func newInprocess(ctx context.Context, c config) (peer, error) {
	ctx, stop := context.WithCancel(ctx)
	p := &inprocess{c: c, jobs: make(chan call, c.workers), g: newGatherer(), stop: stop}
	for range c.workers {
		p.workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case a := <-p.jobs:
					p.g.put(a.Batch, a.Index, noop(a))
				}
			}
		})
	}
	return p, nil
}

func (p *inprocess) runBatch(ctx context.Context, batch string, k int) ([]string, error) {
	w := p.g.expect(batch, k)
	for i := range k {
		select {
		case p.jobs <- p.c.call(batch, i):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w.wait(ctx)
}

func (p *inprocess) close() error {
	p.stop()
	p.workers.Wait()
	return nil
}
