package dispatchercmd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// lineFunc calls a function at the first write.
type lineFunc struct {
	bytes.Buffer
	do func()
}

func (l *lineFunc) Write(p []byte) (int, error) {
	if l.do != nil {
		l.do()
		l.do = nil
	}
	return l.Buffer.Write(p)
}

// TestARestoreThatFailsRemovesOnlyWhatItMade: a dispatcher that starts meanwhile makes a system of its own, and what it
// has accepted stays.
func TestARestoreThatFailsRemovesOnlyWhatItMade(t *testing.T) {
	platform := access.Principal{Role: access.Dispatcher}
	from := testenv.Guarded(t)
	testenv.BrokerAs(t, from, platform, "/a")
	dir := filepath.Join(t.TempDir(), "saved")
	s := &std{in: strings.NewReader(""), out: &bytes.Buffer{}, err: os.Stderr}
	must.OK(t, s.save(t.Context(), testenv.ConnAs(t, from, platform), dir, &streamsDone{}))
	to := testenv.Guarded(t)
	nc := testenv.ConnAs(t, to, platform)
	js := testenv.JetStream(t, testenv.ConnAs(t, to, platform))
	s.out = &lineFunc{do: func() { // as a dispatcher does that starts now
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TY_BATCH",
			Subjects: []string{"ty.batch.*.*", "ty.wake.*.*"}}); err != nil {
			t.Error(err)
		}
		if _, err := js.Publish(t.Context(), "ty.batch.a.accepted", []byte("x")); err != nil {
			t.Error(err)
		}
	}}
	b, err := readBackup(dir)
	must.OK(t, err)
	err = s.restore(t.Context(), nc, b, dir, &streamsDone{})
	t.Logf("restore: %v", err)
	if err == nil {
		t.Fatal("it restored over a system")
	}
	st, err := js.Stream(t.Context(), "TY_BATCH")
	if err != nil {
		t.Fatalf("the other's stream, with what was acknowledged, is gone: %v", err)
	}
	if m, err := st.GetLastMsgForSubject(t.Context(), "ty.batch.a.accepted"); err != nil {
		t.Errorf("what was acknowledged is gone: %v, %v", m, err)
	}
}

// TestAnInterruptedRestoreLeavesNothing: also the stream that the server was about to make is gone. It may make it when
// it has the last part, before it is told that this was all.
func TestAnInterruptedRestoreLeavesNothing(t *testing.T) {
	platform := access.Principal{Role: access.Dispatcher}
	from := testenv.Guarded(t)
	testenv.BrokerAs(t, from, platform, "/a")
	dir := filepath.Join(t.TempDir(), "saved")
	s := &std{in: strings.NewReader(""), out: &bytes.Buffer{}, err: os.Stderr}
	must.OK(t, s.save(t.Context(), testenv.ConnAs(t, from, platform), dir, &streamsDone{}))
	b, err := readBackup(dir)
	must.OK(t, err)
	for when, is := range map[string]func(part []byte) bool{
		"at the last part": func(part []byte) bool { return len(part) > 0 },
		"at the end":       func(part []byte) bool { return len(part) == 0 },
	} {
		t.Run(when, func(t *testing.T) {
			to := testenv.Guarded(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			watching := testenv.ConnAs(t, to, platform)
			if _, err := watching.Subscribe("$JS.SNAPSHOT.RESTORE.>", func(m *nats.Msg) {
				if is(m.Data) {
					interrupt()
				}
			}); err != nil {
				t.Fatal(err)
			}
			must.OK(t, watching.Flush())
			err = s.restore(ctx, testenv.ConnAs(t, to, platform), b, dir, &streamsDone{})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("the restore was not interrupted: %v", err)
			}
			err = s.restore(t.Context(), testenv.ConnAs(t, to, platform), b, dir, &streamsDone{})
			if err != nil {
				t.Errorf("the restore cannot be done again: %v", err)
			}
		})
	}
}

// TestAStreamThatIsMadeDuringItsRestore is somebody else's: a restore that finds it does not remove it. The server says
// so in two ways, by when it finds it.
func TestAStreamThatIsMadeDuringItsRestore(t *testing.T) {
	for code, says := range map[jetstream.ErrorCode]string{
		10130: "stream name already in use, cannot restore",
		10062: "restore failed: error adding stream: stream name already in use, cannot restore (10130)",
		10058: "stream name already in use with a different configuration",
	} {
		if err := error(&jetstream.APIError{Code: 500, ErrorCode: code, Description: says}); !natsbroker.IsTaken(err) {
			t.Errorf("whose the stream is cannot be told from %v", err)
		}
	}
	if err := error(&jetstream.APIError{Code: 500, ErrorCode: 10062,
		Description: "restore failed: no space left on device"}); natsbroker.IsTaken(err) {
		t.Errorf("%v is taken for a stream that is there", err)
	}
}

// writeFunc is a writer.
type writeFunc func(p []byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

// TestARestoreThatIsDoneWasNotInterrupted: a signal that comes when all streams are made changes nothing.
func TestARestoreThatIsDoneWasNotInterrupted(t *testing.T) {
	platform := access.Principal{Role: access.Dispatcher}
	from := testenv.Guarded(t)
	testenv.BrokerAs(t, from, platform, "/a")
	dir := filepath.Join(t.TempDir(), "saved")
	s := &std{in: strings.NewReader(""), out: &bytes.Buffer{}, err: os.Stderr}
	must.OK(t, s.save(t.Context(), testenv.ConnAs(t, from, platform), dir, &streamsDone{}))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	root := Command(nil, writeFunc(func(p []byte) (int, error) {
		if bytes.HasPrefix(p, []byte("TY_BATCH: ")) { // the last one
			interrupt()
		}
		return len(p), nil
	}), os.Stderr)
	root.SetArgs([]string{"restore", "--data", testenv.StoreDir(t), dir})
	if err := root.ExecuteContext(ctx); err != nil || ctx.Err() == nil {
		t.Errorf("a restore that is done ends with %v", err)
	}
}

// TestShardsThatAreAddedDuringABackup: the map of shards is saved last, and names shards whose streams were made when
// the others had been saved. That is no whole backup.
func TestShardsThatAreAddedDuringABackup(t *testing.T) {
	testenv.OneShard(t)
	server := testenv.Server(t)
	b := testenv.Broker(t, server, "/a")
	raise := func() {
		_, _, err := natsbroker.Raise(t.Context(), testenv.Conn(t, server), broker.Settings{Shards: 2}, 0,
			func(natsbroker.Raising) {
				if _, _, err := b.Renew(t.Context()); err != nil {
					t.Error(err)
				}
			})
		if err != nil {
			t.Error(err)
		}
	}
	s := &std{in: strings.NewReader(""), out: &lineFunc{do: raise}, err: os.Stderr}
	dir := filepath.Join(t.TempDir(), "saved")
	err := s.save(t.Context(), testenv.Conn(t, server), dir, &streamsDone{})
	if err == nil || !strings.Contains(err.Error(), "shards") {
		t.Errorf("the backup ends with %v", err)
	}
	if _, err := readBackup(dir); err == nil {
		t.Error("what was saved counts as whole")
	}
	whole := filepath.Join(t.TempDir(), "whole")
	if err := s.save(t.Context(), testenv.Conn(t, server), whole, &streamsDone{}); err != nil {
		t.Errorf("when all shards are there: %v", err)
	}
}

// withWorker starts a dispatcher and a worker for one workspace on the store of an embedded server.
func withWorker(t *testing.T, store, workspace string) *node {
	t.Helper()
	var o serveFlags
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.add(f)
	err := f.Parse([]string{"--with-worker", "--workspace", "default=" + workspace})
	must.OK(t, err)
	decided, err := o.decide(&o.worker)
	must.OK(t, err)
	cfg := o.nodeConfig(&decided)
	cfg.store, cfg.listen, cfg.observed = store, "127.0.0.1:0", cli.NewObserved()
	if cfg.worker, err = o.workerConfig(&decided, testenv.Log(t)); err != nil {
		t.Fatal(err)
	}
	n, err := startNode(t.Context(), testenv.Log(t), cfg)
	must.OK(t, err)
	t.Cleanup(n.close)
	return n
}

// TestACallThatIsDecidedDuringABackup: of a batch that nobody runs, since it waits for a person, the backup has no
// decision yet and its list of what waits has the call no more. It is restored as one that waits, and is listed again.
func TestACallThatIsDecidedDuringABackup(t *testing.T) {
	testenv.OneShard(t)
	workspace, dir := t.TempDir(), filepath.Join(t.TempDir(), "saved")
	n := withWorker(t, testenv.StoreDir(t), workspace)
	ask := func(n *node) (*client.Client, func() []client.Approval) {
		c, err := client.Connect(t.Context(), n.nc, client.Options{})
		must.OK(t, err)
		return c, func() []client.Approval {
			list, err := c.Approvals(t.Context(), "")
			must.OK(t, err)
			return list
		}
	}
	c, waiting := ask(n)
	b, err := c.Submit(t.Context(), toolyard.Batch{ID: "waits", Interactive: true, Calls: []toolyard.Call{{ID: "c",
		Tool: "write_file", Input: []byte(`{"file_path":"a","content":"a"}`)}}})
	must.OK(t, err)
	js := testenv.JetStream(t, n.nc)
	testenv.Until(t, "nobody has the batch any more", func() bool {
		took, err := js.Consumer(t.Context(), "TY_BATCH", "dispatchers")
		must.OK(t, err)
		i := took.CachedInfo()
		return len(waiting()) == 1 && i.NumAckPending == 0 && i.NumPending == 0
	})
	said := ""
	s := &std{in: strings.NewReader(""), err: os.Stderr, out: writeFunc(func(p []byte) (int, error) {
		if said += string(p); bytes.HasPrefix(p, []byte("TY_EVENT: ")) {
			a := waiting()[0]
			if err := c.Decide(t.Context(), a.ID, client.Decision{Verdict: client.Allow, By: "ann",
				InputSHA256: a.InputSHA256}); err != nil {
				t.Error(err)
			}
			testenv.Until(t, "the batch is over", func() bool {
				view, err := b.View(t.Context())
				return err == nil && view.Status == toolyard.StatusCompleted && len(waiting()) == 0
			})
		}
		return len(p), nil
	})}
	if err := s.save(t.Context(), n.nc, dir, &streamsDone{}); err != nil {
		t.Fatal(err, said)
	}
	n.close()
	data := testenv.StoreDir(t)
	root := Command(nil, &bytes.Buffer{}, os.Stderr)
	root.SetArgs([]string{"restore", "--data", data, dir})
	must.OK(t, root.ExecuteContext(t.Context()))
	c, waiting = ask(withWorker(t, data, workspace))
	view, err := c.Batch(toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: "waits"}).View(t.Context())
	if err != nil || view.Status == toolyard.StatusCompleted {
		t.Fatalf("the batch is restored as %s, %v", view.Status, err)
	}
	testenv.Until(t, "the call is on the list again", func() bool { return len(waiting()) == 1 })
}
