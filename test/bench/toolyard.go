package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/tool"
	"github.com/toolyard/toolyard/worker"
)

// toolyardPeer runs batches through Toolyard: the packages client and worker in this process, on a connection each, and
// `dispatcher serve --nats` as a process of its own. The dispatcher's CPU counts with this process's, since it is a
// child of it. With several servers each has a dispatcher, a worker and a client of its own. These dispatchers and
// workers serve a part of the shards, if there are that many.
//
//	free   READ_ONLY, uses no workspace: no ticket and no claim, so it is nearest to js5
//	read   READ_ONLY in the workspace, as read_file is: a shared ticket
//	write  WRITE_EXCLUSIVE: a group for each call, with a ticket and a claim
type toolyardPeer struct {
	c      config
	sides  []*side
	agents chan agentOf
}

// side is what uses one server.
type side struct {
	c          config
	server     string
	shards     []int // that its dispatcher and worker serve; none: all
	conns      []*nats.Conn
	client     *client.Client
	dispatcher *exec.Cmd
	printed    chan struct{} // closed when the dispatcher prints no more
	stop       context.CancelFunc
	worked     chan error // what the worker ended with
}

// agentOf is an agent, and the side where it submits.
type agentOf struct {
	name toolyard.Agent
	side *side
}

const (
	toolyardReadyIn = 20 * time.Second
	toolyardEndsIn  = 15 * time.Second
	// toolyardTries is how often the first batch is tried. The dispatcher hears of the worker's tools a little after
	// the worker is ready.
	toolyardTries = 200
	toolyardRetry = 20 * time.Millisecond
	// toolyardGood is how many batches for each shard must succeed first, one after the other.
	toolyardGood = 4
)

func newToolyard(ctx context.Context, c config) (peer, error) {
	p := &toolyardPeer{c: c, agents: make(chan agentOf, c.inflight)}
	servers := strings.Split(c.server, ",")
	for _, server := range servers {
		p.sides = append(p.sides, &side{c: c, server: server})
	}
	for i := range c.inflight {
		p.agents <- agentOf{toolyard.Agent(fmt.Sprint("agent-", i)), p.sides[i%len(p.sides)]}
	}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (s *side) connect(name string) (*nats.Conn, error) {
	nc, err := nats.Connect(s.server, nats.Name("bench "+name))
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, nc)
	return nc, nil
}

// divide gives each side a part of the shards: those that its server leads, if the streams have replicas.
func (p *toolyardPeer) divide(ctx context.Context) error {
	homes := map[int]string{}
	if p.c.replicas > 1 {
		var err error
		if homes, err = p.spread(ctx); err != nil {
			return err
		}
	}
	for i, s := range p.sides {
		nc, err := s.connect("look")
		if err != nil {
			return err
		}
		for n := range p.c.shards {
			if home, ok := homes[n]; ok && home == nc.ConnectedServerName() || !ok && n%len(p.sides) == i {
				s.shards = append(s.shards, n)
			}
		}
	}
	return nil
}

// spread makes the streams, spreads their leaders, and says which server leads all of which shard.
func (p *toolyardPeer) spread(ctx context.Context) (homes map[int]string, err error) {
	maker := &side{c: p.c, server: p.sides[0].server}
	if err := maker.startDispatcher(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, maker.close()) }()
	cmd := exec.CommandContext(ctx, p.c.dispatcher, "spread", "--nats", maker.server)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("spread the leaders: %w", err)
	}
	nc, err := maker.connect("look")
	if err != nil {
		return nil, err
	}
	b, err := natsbroker.Attach(ctx, nc, "/bench")
	if err != nil {
		return nil, err
	}
	all, err := b.Leaders(ctx)
	return shard.Homes(all), err
}

func (p *toolyardPeer) start(ctx context.Context) error {
	if len(p.sides) > 1 && p.c.shards >= len(p.sides) {
		if err := p.divide(ctx); err != nil {
			return err
		}
	}
	for _, s := range p.sides {
		if err := s.startDispatcher(ctx); err != nil {
			return err
		}
	}
	for _, s := range p.sides {
		if err := s.startWorker(ctx); err != nil {
			return err
		}
		nc, err := s.connect("client")
		if err != nil {
			return err
		}
		if s.client, err = client.Connect(ctx, nc, client.Options{}); err != nil {
			return err
		}
	}
	// Each agent's batches may be of any shard, so each way is tried.
	var err error
	for i, good := 0, 0; i < toolyardTries && good < toolyardGood*p.c.shards; i++ {
		if _, err = p.runBatch(ctx, fmt.Sprintf("setup%xn%d", time.Now().UnixNano(), i), 1); err == nil {
			good++
			continue
		}
		good = 0
		select {
		case <-time.After(toolyardRetry):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
	return err
}

// startDispatcher returns when the dispatcher has printed its first line: it is ready then.
func (s *side) startDispatcher(ctx context.Context) error {
	args := []string{"serve", "--nats", s.server, "--replicas", fmt.Sprint(s.c.replicas), "--shards",
		fmt.Sprint(s.c.shards), "--store-compression", s.c.compress, "--listen", "127.0.0.1:0"}
	if s.shards != nil {
		args = append(args, "--serve-shards", strings.Trim(strings.ReplaceAll(fmt.Sprint(s.shards), " ", ","), "[]"))
	}
	cmd := exec.Command(s.c.dispatcher, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.dispatcher, s.printed = cmd, make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(s.printed)
		for first, sc := true, bufio.NewScanner(out); sc.Scan(); first = false {
			if first {
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
		return nil
	case <-s.printed:
		return errors.New("the dispatcher ended before it was ready")
	case <-time.After(toolyardReadyIn):
		return fmt.Errorf("the dispatcher is not ready within %s", toolyardReadyIn)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *side) startWorker(ctx context.Context) error {
	nc, err := s.connect("worker")
	if err != nil {
		return err
	}
	t, err := s.tool()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.Background())
	ready, worked := make(chan struct{}), make(chan error, 1)
	s.stop, s.worked = stop, worked
	go func() {
		worked <- worker.Run(running, nc, worker.Options{
			Pool: "bench", Tools: []tool.Tool{t}, Shards: s.shards, ReadSlots: s.c.workers, WriteSlots: s.c.workers,
			DrainGrace: time.Second, Mode: worker.Bypass, Ready: func(string) { close(ready) },
			Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
	}()
	select {
	case <-ready:
		return nil
	case err := <-worked:
		worked <- err // for close
		return errors.New("the worker ended before it was ready")
	case <-time.After(toolyardReadyIn):
		return fmt.Errorf("the worker is not ready within %s", toolyardReadyIn)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tool is the one that the mode names.
func (s *side) tool() (tool.Tool, error) {
	no := false
	d := tool.Declaration{
		Name: s.c.mode, Description: "Does nothing, and names its call.", RequiresPermission: &no, Destructive: &no,
		Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {"batch": {"type": "string"}, "index": {"type": "integer"}, "args": {"type": "string"}},
			"required": ["batch", "index", "args"]
		}`),
	}
	switch s.c.mode {
	case "free":
		d.UsesWorkspace = &no
	case "write":
		d.Class, d.ReadOnly = tool.ClassRule{Static: toolyard.WriteExclusive}, false
	}
	return tool.Raw(tool.Tool{Declaration: d, Run: func(
		_ context.Context, _ tool.Env, input json.RawMessage,
	) (tool.Output, error) {
		var a call
		if err := json.Unmarshal(input, &a); err != nil {
			return tool.Output{}, err
		}
		return tool.Output{Text: noop(a)}, nil
	}})
}

func (p *toolyardPeer) runBatch(ctx context.Context, batch string, k int) ([]string, error) {
	agent := <-p.agents
	defer func() { p.agents <- agent }()
	b := toolyard.Batch{Agent: agent.name, ID: toolyard.BatchID(batch), Calls: make([]toolyard.Call, k)}
	for i := range k {
		input, err := json.Marshal(p.c.call(batch, i))
		if err != nil {
			return nil, err
		}
		b.Calls[i] = toolyard.Call{ID: fmt.Sprint("c", i), Tool: p.c.mode, Input: input}
	}
	s, err := agent.side.client.Submit(ctx, b)
	if err != nil {
		return nil, err
	}
	got := make([]string, 0, k)
	for r, err := range s.Results(ctx) {
		if err != nil {
			return nil, err
		}
		if r.IsError || r.Index != len(got) || r.CallID != fmt.Sprint("c", r.Index) {
			return nil, fmt.Errorf("result %d is of call %d (%s), code %q: %s", len(got), r.Index, r.CallID, r.Code,
				r.Error)
		}
		got = append(got, r.Output)
	}
	return got, nil
}

func (p *toolyardPeer) process() int { return p.sides[0].dispatcher.Process.Pid }

// openingAtOnce is how many batches are opened at a time.
const openingAtOnce = 32

// open opens batches, and returns when each has a plan: it is idle then.
func (p *toolyardPeer) open(ctx context.Context, n int) error {
	opening, ctx := errgroup.WithContext(ctx)
	opening.SetLimit(openingAtOnce)
	for i := range n {
		opening.Go(func() error {
			s, err := p.sides[0].client.Open(ctx, toolyard.Batch{Agent: toolyard.Agent(fmt.Sprint("idle-", i)),
				ID: "open"})
			if err != nil {
				return err
			}
			for e, err := range s.Watch(ctx) {
				if err != nil {
					return err
				}
				if e.Type == string(events.BatchPlanned) {
					break
				}
			}
			return nil
		})
	}
	return opening.Wait()
}

func (p *toolyardPeer) stored(ctx context.Context) (storedSum, error) {
	return storedIn(ctx, p.sides[0].conns[0])
}

func (p *toolyardPeer) close() (err error) {
	for _, s := range p.sides {
		err = errors.Join(err, s.close())
	}
	return err
}

func (s *side) close() (err error) {
	if s.stop != nil {
		s.stop()
		err = <-s.worked
	}
	if s.dispatcher != nil {
		err = errors.Join(err, s.endDispatcher())
	}
	for _, nc := range s.conns {
		nc.Close()
	}
	return err
}

func (s *side) endDispatcher() error {
	err := s.dispatcher.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	kill := time.AfterFunc(toolyardEndsIn, func() {
		// When this fails the process is gone already.
		_ = s.dispatcher.Process.Kill()
	})
	defer kill.Stop()
	<-s.printed // Wait closes the pipe
	return errors.Join(err, s.dispatcher.Wait())
}
