package pool

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// loss is a system that is stopped in the middle of a batch, has something of its store damaged, and is started again.
type loss struct {
	*testing.T
	server *testenv.RestartableServer
	gate   chan struct{} // lets one call of "read" or "write" end
	ran    chan toolyard.Agent
	parts  []*part
	key    toolyard.BatchKey
}

func newLoss(t *testing.T) *loss {
	l := &loss{T: t, server: testenv.Restartable(t), gate: make(chan struct{}), ran: make(chan toolyard.Agent, 20)}
	l.begin()
	return l
}

// begin starts a dispatcher and a worker.
func (l *loss) begin() {
	l.parts = []*part{
		startWorker(l.T, l.server.Server, worker.Config{DrainGrace: time.Millisecond, Mode: policy.Default,
			Rules: policy.Rules{Allow: rules(l.T, "write")}, Tools: []tool.Tool{
				gated(l.T, reader("read"), l.gate, l.ran), gated(l.T, writer("write"), l.gate, l.ran),
				gated(l.T, writer("ask"), l.gate, l.ran),
				make1(l.T, reader("free"), says("x")),
			}}),
		startDispatcher(l.T, l.server.Server, dispatcher.Config{MaxDeliveries: 2, QueueWait: 3 * time.Second}),
	}
}

// submit hands a batch in that is known by its id from then on.
func (l *loss) submit(b toolyard.Batch) *client.Batch {
	l.Helper()
	sub, err := startClient(l.T, l.server.Server).Submit(l.Context(), b)
	must.OK(l, err)
	l.key = sub.Key()
	return sub
}

// stop stops everything, the server first: nobody can say goodbye.
func (l *loss) stop() {
	l.Helper()
	l.server.Shutdown()
	for _, p := range l.parts {
		p.end(l.T)
	}
}

// damage damages the events of the batch of one type, or all that there are of it on a stream.
func (l *loss) damage(stream string, kind events.Type) {
	l.Helper()
	testenv.Damage(l.T, l.server.Options.StoreDir, stream, func(subject string, record []byte) bool {
		return strings.Contains(subject, "."+string(l.key.ID)) && (kind == "" || bytes.Contains(record, []byte(kind)))
	})
}

// ends reads the results of the batch to their end, which must come.
func (l *loss) ends() ([]toolyard.Result, error) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 90*time.Second)
	defer cancel()
	var out []toolyard.Result
	for r, err := range startClient(l.T, l.server.Server).Batch(l.key).Results(ctx) {
		if ctx.Err() != nil {
			l.Fatalf("after %d results there is silence", len(out))
		}
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

// letter waits for a dead letter of the batch.
func (l *loss) letter(cause string) {
	l.Helper()
	c := startClient(l.T, l.server.Server)
	testenv.Until(l.T, "there is a dead letter of the batch with its cause", func() bool {
		letters, err := c.DeadLetters(l.Context(), 100)
		must.OK(l, err)
		for _, letter := range letters {
			if letter.Batch == l.key.ID && strings.Contains(letter.Cause, cause) {
				return true
			}
		}
		return false
	})
}

// TestWhatTheStoreHasLost: whatever of a batch cannot be read any more, who waits for its results gets them, or is told
// that they are lost. Nothing that may not run twice does.
func TestWhatTheStoreHasLost(t *testing.T) {
	testenv.OneShard(t)
	for _, c := range []struct {
		name string
		// play brings the batch to where it is when the system is stopped; what was damaged, and what comes of it.
		play func(l *loss)
		lost func(l *loss)
		ends func(l *loss)
	}{
		{"the plan", func(l *loss) {
			l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "write")})
			awaitClaim(l, 1)
		}, func(l *loss) { l.damage("TY_EVENT", events.BatchPlanned) }, internalError},
		{"a claim", func(l *loss) {
			l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "write")})
			awaitClaim(l, 1)
		}, func(l *loss) { l.damage("TY_EVENT", events.CallClaimed) }, func(l *loss) {
			rs, err := l.ends() // a dispatcher finds it, or the worker that gets the call again
			if err != nil || codes(rs) != "ok internal_error" || !strings.Contains(rs[1].Detail, "damaged") {
				l.Errorf("the results are %+v, %v", rs, err)
			}
		}},
		{"a group's start", func(l *loss) {
			l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "write")})
			awaitClaim(l, 1)
		}, func(l *loss) { l.damage("TY_EVENT", events.GroupStarted) }, internalError},
		{"a reply", func(l *loss) {
			l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "write")})
			awaitClaim(l, 1)
		}, func(l *loss) { l.damage("TY_REPLY", "") }, func(l *loss) {
			if rs, err := l.ends(); err != nil || codes(rs) != "ok internal_error" {
				l.isDamaged(err)
			}
			l.letter("damaged")
		}},
		{"the last reply of a batch that is over", func(l *loss) {
			over(l, l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "free")}))
		}, func(l *loss) { l.damage("TY_REPLY", "") }, func(l *loss) {
			_, err := l.ends()
			l.isDamaged(err)
		}},
		{"a submission that nobody has taken", func(l *loss) {
			l.parts[1].end(l.T)
			l.parts = l.parts[:1]
			l.submit(toolyard.Batch{ID: "b", Calls: calls("free")})
		}, func(l *loss) { l.damage("TY_BATCH", events.BatchSubmitted) }, func(l *loss) {
			_, err := l.ends()
			l.isDamaged(err)
		}},
		{"the submission of a batch that waits for a person", func(l *loss) {
			l.submit(toolyard.Batch{ID: "b", Interactive: true, Calls: calls("free", "ask")})
			asked(l.T, testenv.Broker(l.T, l.server.Server, "/test"), l.key.Agent, 1)
			status(l.T, testenv.Broker(l.T, l.server.Server, "/test"), broker.Filter{Agent: l.key.Agent},
				toolyard.StatusWaiting)
		}, func(l *loss) { l.damage("TY_BATCH", events.BatchSubmitted) }, func(l *loss) {
			b := testenv.Broker(l.T, l.server.Server, "/test")
			must.OK(l, approval.Decide(l.Context(), b, l.key, 1,
				events.Decided{By: "test", Decision: events.Approve}))
			internalError(l)
		}},
		{"the submission of a batch that runs", func(l *loss) {
			l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "write")})
			awaitClaim(l, 1)
		}, func(l *loss) { l.damage("TY_BATCH", events.BatchSubmitted) }, func(l *loss) {
			_, err := l.ends()
			l.isDamaged(err)
			// Its ticket stands in the way of who comes next, and must go.
			next := l.submit(toolyard.Batch{ID: "next", Calls: calls("write")})
			go func() { l.gate <- struct{}{} }()
			if got := codes(collect(l.T, l.Context(), next)); got != "ok" {
				l.Errorf("the next batch of the workspace: %s", got)
			}
		}},
		{"a cancel of a batch that nobody has taken", func(l *loss) {
			l.parts[1].end(l.T)
			l.parts = l.parts[:1]
			l.cancel(l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "free")}))
		}, func(l *loss) { l.damage("TY_EVENT", events.BatchCanceled) }, stopped},
		{"a cancel of a batch that runs", func(l *loss) {
			sub := l.submit(toolyard.Batch{ID: "b", Calls: calls("write", "write")})
			awaitClaim(l, 0)
			l.parts[1].end(l.T)
			l.parts = l.parts[:1]
			l.cancel(sub)
		}, func(l *loss) { l.damage("TY_EVENT", events.BatchCanceled); close(l.gate) }, stopped},
		{"the interrupt of a session", func(l *loss) {
			l.parts[1].end(l.T)
			l.parts = l.parts[:1]
			l.submit(toolyard.Batch{ID: "b", Calls: calls("free", "free")})
			b := testenv.Broker(l.T, l.server.Server, "/test")
			if _, err := b.Interrupt(l.Context(), l.key.Agent, toolyard.DefaultSession, "no"); err != nil {
				l.Fatal(err)
			}
		}, func(l *loss) {
			testenv.Damage(l.T, l.server.Options.StoreDir, "KV_ty_session", func(string, []byte) bool { return true })
		}, func(l *loss) {
			_, err := l.ends()
			l.isDamaged(err)
		}},
		{"calls that were appended to a batch that nobody has taken", func(l *loss) {
			l.parts[1].end(l.T)
			l.parts = l.parts[:1]
			c := startClient(l.T, l.server.Server)
			open, err := c.Open(l.Context(), toolyard.Batch{ID: "b", Calls: calls("free")})
			must.OK(l, err)
			l.key = open.Key()
			must.OK(l, open.Append(l.Context(), calls("free")[0]))
			must.OK(l, open.Close(l.Context()))
		}, func(l *loss) { l.damage("TY_EVENT", events.CallsAppended) }, func(l *loss) {
			_, err := l.ends()
			l.isDamaged(err)
		}},
		{"calls that were appended", func(l *loss) {
			c := startClient(l.T, l.server.Server)
			open, err := c.Open(l.Context(), toolyard.Batch{ID: "b", Calls: calls("free")})
			must.OK(l, err)
			l.key = open.Key()
			must.OK(l, open.Append(l.Context(), calls("write")[0]))
			awaitClaim(l, 1)
			must.OK(l, open.Close(l.Context()))
		}, func(l *loss) { l.damage("TY_EVENT", events.CallsAppended) }, func(l *loss) {
			rs, err := l.ends()
			if codes(rs) != "ok internal_error" { // what is not known any more has no result, and that is said
				l.isDamaged(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLoss(t)
			c.play(l)
			l.stop()
			c.lost(l)
			l.server.Start()
			l.begin()
			c.ends(l)
		})
	}
}

// TestAWorkerFindsThatAClaimIsLost: the worker that gets a call again, before any dispatcher has looked at the batch,
// does not take a claim that cannot be read for none.
func TestAWorkerFindsThatAClaimIsLost(t *testing.T) {
	testenv.OneShard(t)
	l := newLoss(t)
	l.submit(toolyard.Batch{ID: "b", Calls: calls("write")})
	awaitClaim(l, 0)
	l.stop()
	l.damage("TY_EVENT", events.CallClaimed)
	l.server.Start()
	var runs atomic.Int32
	startWorker(t, l.server.Server, worker.Config{Tools: []tool.Tool{make1(t, writer("write"),
		func(context.Context, tool.Env) (string, error) { runs.Add(1); return "", nil })}})
	b := testenv.Broker(t, l.server.Server, "/test")
	testenv.Until(t, "the call has ended", func() bool {
		log, err := b.Log(t.Context(), l.key)
		must.OK(t, err)
		return slices.ContainsFunc(log, func(e broker.Logged) bool {
			_, ended := e.Body.(events.Finished)
			return ended
		})
	})
	if n := runs.Load(); n > 0 {
		t.Errorf("its tool has been started %d times more", n)
	}
	startDispatcher(t, l.server.Server, dispatcher.Config{MaxDeliveries: 2, QueueWait: 3 * time.Second})
	rs, err := l.ends()
	if err != nil || codes(rs) != "internal_error" || !strings.Contains(rs[0].Error, "may or may not") {
		t.Errorf("the results are %+v, %v", rs, err)
	}
}

func rules(t *testing.T, text ...string) []policy.Rule {
	t.Helper()
	out, err := policy.ParseRules(text)
	must.OK(t, err)
	return out
}

// awaitClaim waits until a call is claimed.
func awaitClaim(l *loss, index int) {
	l.Helper()
	b := testenv.Broker(l.T, l.server.Server, "/test")
	testenv.Until(l.T, "the call is claimed", func() bool {
		log, err := b.Log(l.Context(), l.key)
		must.OK(l, err)
		for _, e := range log {
			if _, claimed := e.Body.(events.Claimed); claimed && e.Index == index {
				return true
			}
		}
		return false
	})
}

// over waits until a batch is over, and acknowledged.
func over(l *loss, sub *client.Batch) {
	l.Helper()
	collect(l.T, l.Context(), sub)
	allTaken(l.T, l.server.Server, 1)
}

func (l *loss) cancel(b *client.Batch) {
	l.Helper()
	must.OK(l, b.Cancel(l.Context(), "no"))
}

// stopped checks that no call of a batch has gone on that somebody has stopped.
func stopped(l *loss) {
	l.Helper()
	rs, err := l.ends()
	if err != nil || codes(rs) != "internal_error internal_error" {
		l.Errorf("the results are %s, %v", codes(rs), err)
	}
	l.letter("damaged")
}

func internalError(l *loss) {
	l.Helper()
	rs, err := l.ends()
	if err != nil || codes(rs) != "ok internal_error" {
		l.Errorf("the results are %s, %v", codes(rs), err)
	}
	l.letter("damaged")
}

func (l *loss) isDamaged(err error) {
	l.Helper()
	refused, _ := errors.AsType[*client.RefusedError](err)
	if !errors.Is(err, client.ErrDamaged) && (refused == nil || !strings.Contains(refused.Detail, "damaged")) {
		l.Errorf("it ends with %v; want that the store is damaged", err)
	}
}
