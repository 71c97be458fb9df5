//go:build unix

package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// system is a whole Toolyard in processes.
type system struct {
	t    testing.TB
	id   string
	seed uint64
	rand *rand.Rand
	dir  string
	// stores is the directory of the servers' stores.
	stores string
	url    string // where everybody connects
	// spread are the URLs that the agents' connections take in turn, where that is not url.
	spread []string
	// reached is where others than the server see the store, when that is not where it is.
	reached string
	// bin is where the commands are that processes are started from.
	bin func() (string, error)
	// settings are the system's; what is zero has its default.
	settings broker.Settings
	// The harness's own connection, to look at what is left with.
	nc *nats.Conn
	b  *natsbroker.Broker
	js jetstream.JetStream
	c  *client.Client

	mu        sync.Mutex
	processes []*process
	workers   map[string]*process // by worker id
	loads     []*load
	faultEnd  time.Time
	// diskFull says that the disk under the store was full: what was acknowledged then may stay in the work queue until
	// it ages.
	diskFull bool
	over     bool
}

func newSystem(t testing.TB, id string, seed uint64) *system {
	t.Helper()
	dir, err := os.MkdirTemp("", "toolyard-faults-"+id+"-")
	must.OK(t, err)
	stores, err := os.MkdirTemp(testenv.Stores(), "toolyard-faults-"+id+"-")
	must.OK(t, err)
	s := &system{
		t: t, id: id, seed: seed, rand: random(id, seed), dir: dir, stores: stores, bin: bin,
		workers: map[string]*process{}, settings: broker.Settings{MaxStoreBytes: 1 << 30},
	}
	t.Cleanup(s.end)
	return s
}

// end ends all processes, and keeps what is needed to understand a failure. Called again, it does nothing.
func (s *system) end() {
	if s.over {
		return
	}
	s.over = true
	if s.t.Failed() {
		if err := s.keep(); err != nil {
			s.t.Logf("the history could not be written whole: %v", err)
		}
	}
	if s.nc != nil {
		s.nc.Close()
	}
	for _, p := range s.processes {
		p.signal(syscall.SIGKILL)
		<-p.done
	}
	if s.t.Failed() {
		s.t.Logf("cell %s, seed %d: the history is in %s\nrepeat it with: go test ./test/faults -run '%s$' -seed %d",
			s.id, s.seed, filepath.Join(s.dir, "history.jsonl"), strings.SplitN(s.t.Name(), "/", 2)[0], s.seed)
		return
	}
	if err := errors.Join(os.RemoveAll(s.dir), os.RemoveAll(s.stores)); err != nil {
		s.t.Error(err)
	}
}

func (s *system) ledger() string { return filepath.Join(s.dir, "ledger.jsonl") }

// context ends with the test, or when something takes far too long.
func (s *system) context() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	s.t.Cleanup(cancel)
	return ctx
}

// store is the directory of the server's store; data is that directory as all other processes see it.
func (s *system) store() string { return filepath.Join(s.stores, "store") }
func (s *system) data() string  { return cmp.Or(s.reached, s.store()) }

// dial makes a connection.
func (s *system) dial() *nats.Conn {
	s.t.Helper()
	creds := func(*nats.Options) error { return nil } // a server of its own asks for none
	if path := filepath.Join(s.data(), "creds", "dispatcher.creds"); exists(path) {
		creds = nats.UserCredentials(path)
	}
	url := s.url
	if len(s.spread) > 0 {
		url = s.spread[0]
		s.spread = append(slices.Clone(s.spread[1:]), url)
	}
	nc, err := nats.Connect(url, creds, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // that servers are lost is the plan
	must.OK(s.t, err)
	return nc
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// client makes an agent's connection.
func (s *system) client() *client.Client {
	s.t.Helper()
	nc := s.dial()
	s.t.Cleanup(nc.Close)
	c, err := client.Connect(s.context(), nc, client.Options{})
	must.OK(s.t, err)
	return c
}

// node starts a NATS server that is alone; on the address of an earlier one if listen names it.
func (s *system) node(listen string) *process {
	s.t.Helper()
	p := s.spawn("nats", "nats", "", "natsnode", "--store", s.store(), "--listen", listen)
	s.url = p.said("nats")
	return p
}

// open makes the streams, with the system's settings. A cluster that has just begun may take several tries.
func (s *system) open() {
	s.t.Helper()
	s.nc = s.dial()
	var last error
	s.until(openWait, "the streams are made", func() bool {
		ctx, cancel := context.WithTimeout(s.context(), 8*time.Second)
		defer cancel()
		if s.b, last = natsbroker.Open(ctx, s.nc, s.settings, "/test/faults"); last == nil {
			s.c, last = client.Connect(ctx, s.nc, client.Options{})
		}
		if last != nil {
			s.t.Log("the streams are not made yet: ", last)
		}
		return last == nil
	})
	s.settings = s.b.Settings()
	s.js = testenv.JetStream(s.t, s.nc)
}

// basic starts a NATS server that is alone, and makes the streams.
func (s *system) basic() *process {
	s.t.Helper()
	p := s.node(s.freePorts(1)[0])
	s.open()
	return p
}

// worker starts a worker with the tools of the tests.
func (s *system) worker(name, failpoints string, args ...string) *process {
	s.t.Helper()
	return s.workerAt(s.url, name, failpoints, args...)
}

func (s *system) workerAt(url, name, failpoints string, args ...string) *process {
	s.t.Helper()
	return s.noted(s.spawn(name, "id", failpoints, "ledgerworker",
		append([]string{"--nats", url, "--ledger", s.ledger()}, args...)...))
}

// serves starts the command worker.
func (s *system) serves(name, failpoints string, args ...string) *process {
	s.t.Helper()
	return s.noted(s.spawn(name, "pool", failpoints, "worker", append([]string{"serve", "--nats", s.url}, args...)...))
}

// noted keeps a worker by its id, for what its calls are judged by.
func (s *system) noted(p *process) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers[p.said("id")] = p
	return p
}

// workspace makes a directory for workers of the command, and returns it.
func (s *system) workspace() string {
	s.t.Helper()
	dir := filepath.Join(s.dir, "workspace")
	must.OK(s.t, os.Mkdir(dir, 0o755))
	return dir
}

// dispatcher starts a dispatcher. Workers are there first, so that it knows their tools.
func (s *system) dispatcher(name, failpoints string, args ...string) *process {
	s.t.Helper()
	return s.dispatcherAt(s.url, name, failpoints, args...)
}

func (s *system) dispatcherAt(url, name, failpoints string, args ...string) *process {
	s.t.Helper()
	return s.spawn(name, "nats", failpoints, "dispatcher",
		append([]string{"serve", "--nats", url, "--listen", "127.0.0.1:0", "--log-level", "info"}, args...)...)
}

// together does several things at once, and waits for all.
func (s *system) together(do ...func()) {
	var wg sync.WaitGroup
	for _, f := range do {
		wg.Go(f) // a failure ends the goroutine with the test marked as failed
	}
	wg.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// faultOver notes that the last fault has ended.
func (s *system) faultOver() { s.faultEnd = time.Now() }

// atRest checks that nothing is left to do: no call queued, no message unacknowledged, nobody in line for a workspace
// (Q11).
func (s *system) atRest() {
	s.t.Helper()
	var left string
	var err error
	limit := 10*time.Second + 3*max(s.settings.CallAckWait, s.settings.BatchAckWait)
	for end := time.Now().Add(limit); ; time.Sleep(10 * look) {
		left, err = s.left()
		if err == nil && left == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Errorf("Q11: %s after the last result something is left: %s", limit, errors.Join(err, errors.New(left)))
			return
		}
	}
}

func (s *system) left() (string, error) {
	ctx, cancel := context.WithTimeout(s.context(), 5*time.Second)
	defer cancel()
	var left []string
	names := []string{"TY_CALL", "TY_BATCH"}
	for n := 1; n < s.b.Settings().ShardCount(); n++ {
		names = append(names, fmt.Sprintf("TY%d_CALL", n), fmt.Sprintf("TY%d_BATCH", n))
	}
	for _, name := range names {
		stream, err := s.js.Stream(ctx, name)
		if err != nil {
			return "", err
		}
		if n := stream.CachedInfo().State.Msgs; strings.HasSuffix(name, "_CALL") && n > 0 && !s.diskFull {
			left = append(left, fmt.Sprintf("%d messages on %s", n, name))
		}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			if c.NumAckPending > 0 || c.NumPending > 0 {
				left = append(left, fmt.Sprintf("consumer %s has %d messages unacknowledged and %d to come", c.Name,
					c.NumAckPending, c.NumPending))
			}
		}
		if err := consumers.Err(); err != nil {
			return "", err
		}
	}
	for _, w := range workspaces {
		q, err := s.b.Tickets(ctx, w)
		if err != nil {
			return "", err
		}
		if len(q.Tickets) > 0 {
			left = append(left, fmt.Sprintf("%d tickets of workspace %s: %+v", len(q.Tickets), w, q.Tickets))
		}
	}
	return strings.Join(left, "; "), nil
}

// alive checks that every process lives whose end was not part of the plan, and that none has panicked.
func (s *system) alive(r rules) {
	s.t.Helper()
	bad := []string{"panic: ", "goroutine 1 [", "DATA RACE"}
	if !r.givesUp {
		bad = append(bad, "the batch cannot go on")
	}
	for _, p := range s.processes {
		if p.ended() && !p.planned {
			s.t.Errorf("%s has ended with %s:\n%s", p.name, p.cmd.ProcessState, p.tail())
		}
		text := p.logged()
		for _, bad := range bad {
			if strings.Contains(text, bad) {
				s.t.Errorf("%s has logged %q:\n%s", p.name, bad, p.tail())
			}
		}
	}
}

// judge reads all that is left of the run and holds it against the invariants.
func (s *system) judge(r rules) {
	s.t.Helper()
	s.alive(r)
	s.atRest()
	h, err := s.history()
	must.OK(s.t, err)
	for _, v := range check(h, r) {
		s.t.Error(v)
	}
}

// keep writes the history of a run that failed.
func (s *system) keep() error {
	if s.c == nil {
		return nil
	}
	h, err := s.history()
	return errors.Join(err, h.Write(filepath.Join(s.dir, "history.jsonl")), s.keepStream("TY_BATCH"),
		s.keepStream("TY_CALL"), s.keepStream("TY_EVENT"))
}

// keepStream writes a stream down message by message, for a history that no reader can make sense of, and how far its
// consumers are.
func (s *system) keepStream(name string) error {
	f, err := os.Create(filepath.Join(s.dir, name+".jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), faultWait)
	defer cancel()
	stream, err := s.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(f)
	if err := lines.Encode(stream.CachedInfo()); err != nil {
		return err
	}
	consumers := stream.ListConsumers(ctx)
	for c := range consumers.Info() {
		if err := lines.Encode(c); err != nil {
			return err
		}
	}
	if err := consumers.Err(); err != nil {
		return err
	}
	for at := stream.CachedInfo().State.FirstSeq; at <= stream.CachedInfo().State.LastSeq; at++ {
		m, err := stream.GetMsg(ctx, at)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err == nil {
			err = lines.Encode(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// raw is a value as JSON.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the harness's own values
	}
	return b
}
