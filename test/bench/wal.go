package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
)

// wal is the bound on what one machine can store: one process appends the calls of a batch to a file and syncs it, runs
// them, appends the results and syncs again. Batches that are under way together share a sync. Nothing that survives a
// power cut of its only machine is faster on the same disk.
type wal struct {
	c    config
	f    *os.File
	mu   sync.Mutex
	next *commit
	kick chan struct{}
	quit chan struct{}
	done chan struct{}
}

// commit is what the next sync writes. done is closed behind it.
type commit struct {
	data []byte
	err  error
	done chan struct{}
}

func newCommit() *commit { return &commit{done: make(chan struct{})} }

func newWAL(_ context.Context, c config) (peer, error) {
	f, err := os.CreateTemp(c.dir, "wal-*")
	if err != nil {
		return nil, err
	}
	p := &wal{c: c, f: f, next: newCommit(), kick: make(chan struct{}, 1), quit: make(chan struct{}),
		done: make(chan struct{})}
	go p.commits()
	return p, nil
}

func (p *wal) commits() {
	defer close(p.done)
	for {
		select {
		case <-p.kick:
		case <-p.quit:
			return
		}
		p.mu.Lock()
		now := p.next
		p.next = newCommit()
		p.mu.Unlock()
		if _, now.err = p.f.Write(now.data); now.err == nil {
			now.err = p.f.Sync()
		}
		close(now.done)
	}
}

// append returns when data is on the disk.
func (p *wal) append(data []byte) error {
	p.mu.Lock()
	mine := p.next
	mine.data = append(mine.data, data...)
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default: // the next commit has been asked for
	}
	<-mine.done
	return mine.err
}

func (p *wal) runBatch(_ context.Context, batch string, k int) ([]string, error) {
	calls := make([]call, k)
	for i := range k {
		calls[i] = p.c.call(batch, i)
	}
	if err := p.store(calls); err != nil {
		return nil, err
	}
	results := make([]string, k)
	for i, a := range calls {
		results[i] = noop(a)
	}
	return results, p.store(results)
}

func (p *wal) store(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return p.append(data)
}

func (p *wal) close() error {
	close(p.quit)
	<-p.done
	return errors.Join(p.f.Close(), os.Remove(p.f.Name()))
}
