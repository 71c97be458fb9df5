package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// bullmqPeer runs batches through npm/bullmq.mjs: a submitter and a worker in a Node process each. A batch goes there
// as a line of JSON, and so do its results come back; the two pipes cost it a little. In mode bulk the submitter adds
// all calls at once and waits for the event of each. In mode flow the batch is a job whose children are the calls.
type bullmqPeer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	gone chan struct{} // closed when the process says no more; readErr is why
	mu   sync.Mutex    // for in and wait
	wait map[string]chan bullmqReply

	readErr error
}

type bullmqReply struct {
	Ready   bool     `json:"ready"`
	Batch   string   `json:"batch"`
	Results []string `json:"results"`
	Err     string   `json:"err"`
}

const (
	maxBullMQLine  = 16 << 20
	bullMQEndsIn   = 10 * time.Second
	bullMQReadysIn = 30 * time.Second
)

func newBullMQ(ctx context.Context, c config) (peer, error) {
	p := &bullmqPeer{wait: map[string]chan bullmqReply{}, gone: make(chan struct{})}
	p.cmd = exec.Command("node", c.script)
	p.cmd.Env = append(os.Environ(), "BENCH_REDIS="+c.server, "BENCH_MODE="+c.mode,
		fmt.Sprint("BENCH_WORKERS=", c.workers), fmt.Sprint("BENCH_PAYLOAD=", c.payload), "BENCH_FILLER="+filler)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go p.read(out, ready)
	select {
	case <-ready:
		return p, nil
	case <-p.gone:
		err = errors.Join(fmt.Errorf("%s ended before it was ready", c.script), p.readErr)
	case <-time.After(bullMQReadysIn):
		err = fmt.Errorf("%s is not ready within %s", c.script, bullMQReadysIn)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, p.close())
}

func (p *bullmqPeer) read(out io.Reader, ready chan<- struct{}) {
	defer close(p.gone)
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, maxBullMQLine)
	for sc.Scan() {
		var r bullmqReply
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			p.readErr = fmt.Errorf("%q: %w", sc.Text(), err)
			return
		}
		if r.Ready {
			close(ready)
			continue
		}
		p.mu.Lock()
		waiter := p.wait[r.Batch]
		delete(p.wait, r.Batch)
		p.mu.Unlock()
		if waiter != nil {
			waiter <- r
		}
	}
	p.readErr = sc.Err()
}

func (p *bullmqPeer) runBatch(ctx context.Context, batch string, k int) ([]string, error) {
	mine := make(chan bullmqReply, 1)
	p.mu.Lock()
	p.wait[batch] = mine
	_, err := fmt.Fprintf(p.in, "{\"batch\":%q,\"k\":%d}\n", batch, k)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r := <-mine:
		if r.Err != "" {
			return nil, errors.New(r.Err)
		}
		return r.Results, nil
	case <-p.gone:
		return nil, errors.Join(errors.New("the Node process ended"), p.readErr)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close closes the program's input. It ends then, and its worker with it.
func (p *bullmqPeer) close() error {
	err := p.in.Close()
	kill := time.AfterFunc(bullMQEndsIn, func() {
		// When this fails the process is gone already.
		_ = p.cmd.Process.Kill()
	})
	defer kill.Stop()
	<-p.gone
	return errors.Join(err, p.cmd.Wait())
}
