package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

func standing(id string) ticket.Holder {
	return ticket.Holder{Agent: "a", Batch: toolyard.BatchID(id)}
}

// join makes the change by which a holder joins exclusively, leave the one by which it leaves.
func join(h ticket.Holder) func(ticket.Queue) (ticket.Queue, error) {
	return func(q ticket.Queue) (ticket.Queue, error) {
		next, _, err := q.Join(h, ticket.Exclusive)
		return next, err
	}
}

func leave(h ticket.Holder) func(ticket.Queue) (ticket.Queue, error) {
	return func(q ticket.Queue) (ticket.Queue, error) { return q.Leave(h), nil }
}

// change changes a queue as it was last seen, and sees it.
func change(t *testing.T, b *natsbroker.Broker, known *broker.TicketQueue, f func(ticket.Queue) (ticket.Queue, error)) {
	t.Helper()
	q, err := b.ChangeTickets(t.Context(), *known, f)
	must.OK(t, err)
	*known = q
}

// comeAndGo joins and leaves, and returns the number.
func comeAndGo(t *testing.T, b *natsbroker.Broker, known *broker.TicketQueue) uint64 {
	t.Helper()
	h := standing("one")
	change(t, b, known, join(h))
	own, ok := known.Granted(h, ticket.Exclusive)
	if !ok {
		t.Fatalf("alone in the queue, and not granted: %+v", known)
	}
	change(t, b, known, leave(h))
	return own.N
}

func lockBucket(t *testing.T, nc *nats.Conn) (jetstream.KeyValue, jetstream.Stream) {
	t.Helper()
	js := testenv.JetStream(t, nc)
	kv, err := js.KeyValue(t.Context(), "ty_ticket")
	must.OK(t, err)
	s := testenv.Stream(t, js, "KV_ty_ticket")
	return kv, s
}

func stateOf(t *testing.T, s jetstream.Stream) jetstream.StreamState {
	t.Helper()
	info, err := s.Info(t.Context())
	must.OK(t, err)
	return info.State
}

// TestNumbersGrowOverDeletedKeys: whoever deletes the key of a workspace, and whatever the next holder has seen of it,
// the numbers keep growing.
func TestNumbersGrowOverDeletedKeys(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	kv, _ := lockBucket(t, testenv.Conn(t, s))
	const w = "w.1"
	key := broker.Escape(w)
	for name, remove := range map[string]func(broker.TicketQueue) error{
		"not at all":                    func(broker.TicketQueue) error { return nil },
		"by a dispatcher":               func(q broker.TicketQueue) error { return b.DeleteTickets(t.Context(), q) },
		"by an operator, with a marker": func(broker.TicketQueue) error { return kv.Delete(t.Context(), key) },
		"by an operator, with a purge":  func(broker.TicketQueue) error { return kv.Purge(t.Context(), key) },
		"by an operator, who empties": func(broker.TicketQueue) error {
			_, err := kv.PutString(t.Context(), key, "")
			return err
		},
		"by both, one after the other": func(broker.TicketQueue) error { return deleteTwice(t, b, kv, w) },
	} {
		for _, seen := range []string{"the queue", "nothing", "that it is not there"} {
			t.Run("deleted "+name+", the next has seen "+seen, func(t *testing.T) {
				var last uint64
				known := broker.TicketQueue{Workspace: w}
				for range 4 {
					n := comeAndGo(t, b, &known)
					if n <= last {
						t.Fatalf("number %d was given out after %d", n, last)
					}
					last = n
					must.OK(t, remove(known))
					switch seen {
					case "nothing":
						known = broker.TicketQueue{Workspace: w}
					case "that it is not there":
						q, err := b.Tickets(t.Context(), w)
						must.OK(t, err)
						known = q
					}
				}
			})
		}
	}
}

// deleteTwice leaves an operator's marker, and deletes that.
func deleteTwice(t *testing.T, b *natsbroker.Broker, kv jetstream.KeyValue, w toolyard.Workspace) error {
	if err := kv.Delete(t.Context(), broker.Escape(string(w))); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var marker broker.TicketQueue
	err := b.WatchTickets(ctx, func(q broker.TicketQueue, err error) {
		if marker = q; err != nil || q.Workspace == w {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return b.DeleteTickets(t.Context(), marker)
}

// TestNumbersGrowOverAKilledServer: the bucket is empty, and the server restarts on the files that a kill leaves.
func TestNumbersGrowOverAKilledServer(t *testing.T) {
	dir, quiet := testenv.StoreDir(t), slog.New(slog.NewTextHandler(io.Discard, nil))
	var last uint64
	for life := range 3 {
		s, err := natsd.Start(t.Context(), natsd.Options{StoreDir: dir, Listen: "127.0.0.1:0", Open: true,
			Logger: quiet})
		must.OK(t, err)
		b := testenv.Broker(t, s, "/test")
		_, stream := lockBucket(t, testenv.Conn(t, s))
		for n := range 40 {
			known := broker.TicketQueue{Workspace: toolyard.Workspace(fmt.Sprint(n % 4))}
			if n := comeAndGo(t, b, &known); n <= last {
				t.Errorf("life %d: number %d was given out after %d", life, n, last)
			} else {
				last = n
			}
			must.OK(t, b.DeleteTickets(t.Context(), known))
		}
		if state := stateOf(t, stream); state.Msgs != 0 || state.Bytes != 0 {
			t.Errorf("life %d: deleted keys have left %d messages with %d bytes", life, state.Msgs, state.Bytes)
		}
		killed := t.TempDir()
		must.OK(t, os.CopyFS(killed, os.DirFS(dir)))
		s.Shutdown()
		dir = killed
	}
}

// TestADeletionSparesWhatIsNewer, however late it comes.
func TestADeletionSparesWhatIsNewer(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	known := broker.TicketQueue{Workspace: "w"}
	comeAndGo(t, b, &known)
	empty := known
	change(t, b, &known, join(standing("two")))
	stands := func(what string) {
		t.Helper()
		must.OK(t, b.DeleteTickets(t.Context(), empty))
		q, err := b.Tickets(t.Context(), "w")
		must.OK(t, err)
		if _, ok := q.Granted(standing("two"), ticket.Exclusive); !ok || q.Revision != known.Revision {
			t.Fatalf("%s: the queue is %+v, want %+v", what, q, known)
		}
	}
	stands("somebody has joined since")
	if err := b.DeleteTickets(t.Context(), known); err == nil {
		t.Error("a queue with a ticket was deleted")
	}
	change(t, b, &known, leave(standing("two")))
	must.OK(t, b.DeleteTickets(t.Context(), known))
	change(t, b, &known, join(standing("two")))
	stands("it was deleted and made anew since")
	if err := b.DeleteTickets(t.Context(), broker.TicketQueue{Workspace: "w"}); err != nil {
		t.Errorf("a key that was never seen: %v", err)
	}
	stands("somebody deletes a key that he has never seen")
}

// TestAFullBucketOfTickets: a waiting batch can leave, and deleting needs no room and makes some.
func TestAFullBucketOfTickets(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Open(t, testenv.Conn(t, s), broker.Settings{MaxStoreBytes: 64 << 20}, "/test")
	_, stream := lockBucket(t, testenv.Conn(t, s))
	held := broker.TicketQueue{Workspace: "held"}
	change(t, b, &held, join(standing("holder")))
	var idle []broker.TicketQueue
	for {
		known := broker.TicketQueue{Workspace: toolyard.Workspace(fmt.Sprintf("workspace-%d", len(idle)))}
		q, err := b.ChangeTickets(t.Context(), known, leave(standing("nobody")))
		if errors.Is(err, broker.ErrFull) {
			break
		}
		must.OK(t, err)
		idle = append(idle, q)
	}
	full := stateOf(t, stream)
	t.Logf("the bucket is full with %d keys, %d bytes", full.Msgs, full.Bytes)
	fill, err := b.Fill(t.Context())
	if err != nil || fill.Stream != "ty_ticket" || fill.Percent < 99 || fill.Refusals > 1 {
		t.Errorf("the store is full: %+v, %v", fill, err)
	}
	fresh := broker.TicketQueue{Workspace: "fresh"}
	if _, err := b.ChangeTickets(t.Context(), fresh, join(standing("late"))); !errors.Is(err, broker.ErrFull) {
		t.Errorf("joining where there is no room: %v, want ErrFull", err)
	}
	change(t, b, &held, leave(standing("holder")))
	for _, q := range append(idle, held) {
		must.OK(t, b.DeleteTickets(t.Context(), q))
	}
	if empty := stateOf(t, stream); empty.Msgs != 0 || empty.Bytes != 0 {
		t.Errorf("all keys are deleted, and have left %d messages with %d bytes", empty.Msgs, empty.Bytes)
	}
	change(t, b, &fresh, join(standing("late")))
}

// TestWatchingOverDeletions: deleted keys do not affect a later watch.
func TestWatchingOverDeletions(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := make(chan broker.TicketQueue, 10_000)
	watching := make(chan error, 1)
	go func() {
		watching <- b.WatchTickets(ctx, func(q broker.TicketQueue, err error) {
			if err != nil {
				t.Error(err)
			}
			seen <- q
		})
	}()
	others := testenv.Broker(t, s, "/others")
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for round := range 50 {
				known := broker.TicketQueue{Workspace: toolyard.Workspace(fmt.Sprintf("%d-%d", n, round))}
				comeAndGo(t, others, &known)
				if err := others.DeleteTickets(ctx, known); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	last := broker.TicketQueue{Workspace: "last"}
	change(t, others, &last, join(standing("last")))
	for {
		select {
		case q := <-seen:
			if q.Revision > last.Revision {
				t.Fatalf("revision %d was seen, and the last one is %d", q.Revision, last.Revision)
			}
			if q.Revision == last.Revision {
				cancel()
				<-watching
				return
			}
		case <-ctx.Done():
			t.Fatal("the last change was not seen")
		}
	}
}

// TestTicketsWhileKeysAreDeleted lets brokers take turns with workspaces, and delete every empty queue: no two holders
// conflict, and the tokens of each workspace grow.
func TestTicketsWhileKeysAreDeleted(t *testing.T) {
	s := testenv.Server(t)
	passAround(t, 4, 40, func(n int) *natsbroker.Broker { return testenv.Broker(t, s, fmt.Sprintf("/holder/%d", n)) })
}

// passAround has holders come to one workspace, each for some rounds.
func passAround(t *testing.T, holders, rounds int, open func(n int) *natsbroker.Broker) {
	const w = "w.s > *"
	var inside sync.Mutex // TryLock tells of two holders
	var tokens []uint64
	deleted := 0
	var wg sync.WaitGroup
	for n := range holders {
		b := open(n)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 1))
			known := broker.TicketQueue{Workspace: w}
			for round := range rounds {
				if r.IntN(3) == 0 { // who has seen nothing begins with a read
					known = broker.TicketQueue{Workspace: w}
				}
				h := ticket.Holder{Agent: "a", Batch: toolyard.BatchID(fmt.Sprint(n)), Group: round}
				q, err := b.ChangeTickets(t.Context(), known, join(h))
				for granted := false; err == nil && !granted; {
					if _, granted = q.Granted(h, ticket.Exclusive); !granted {
						q, err = b.Tickets(t.Context(), w)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !inside.TryLock() {
					t.Error("two exclusive tickets are granted together")
					return
				}
				own, _ := q.Find(h, ticket.Exclusive)
				tokens = append(tokens, own.N)
				inside.Unlock()
				if q, err = b.ChangeTickets(t.Context(), q, leave(h)); err != nil {
					t.Error(err)
					return
				}
				if known = q; len(q.Tickets) > 0 {
					continue
				}
				if err := b.DeleteTickets(t.Context(), q); err != nil {
					t.Error(err)
				}
				inside.Lock()
				deleted++
				inside.Unlock()
			}
		})
	}
	wg.Wait()
	if len(tokens) != holders*rounds {
		t.Errorf("%d tokens, want %d", len(tokens), holders*rounds)
	}
	if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
		t.Errorf("the tokens do not grow: %v", tokens)
	}
	t.Logf("%d tokens, up to %d; %d times an empty queue was to be deleted", len(tokens), tokens[len(tokens)-1],
		deleted)
}

// TestAllTickets: every workspace with tickets is listed, with the numbers that its holders have; empty queues are not.
func TestAllTickets(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	queues := map[toolyard.Workspace]broker.TicketQueue{}
	for _, w := range []toolyard.Workspace{"b/ä", "a", "empty"} {
		q := broker.TicketQueue{Workspace: w}
		change(t, b, &q, join(standing("1")))
		change(t, b, &q, join(standing("2")))
		if w == "empty" {
			change(t, b, &q, leave(standing("1")))
			change(t, b, &q, leave(standing("2")))
		}
		queues[w] = q
	}
	all, err := b.AllTickets(t.Context(), 10)
	if err != nil || len(all) != 2 || all[0].Workspace != "a" || all[1].Workspace != "b/ä" {
		t.Fatalf("the queues are %+v, %v", all, err)
	}
	for _, q := range all {
		if !reflect.DeepEqual(q.Tickets, queues[q.Workspace].Tickets) {
			t.Errorf("the queue of %s is %+v, and was stored as %+v", q.Workspace, q.Tickets,
				queues[q.Workspace].Tickets)
		}
	}
	if some, err := b.AllTickets(t.Context(), 1); err != nil || len(some) != 1 {
		t.Errorf("one of them is %+v, %v", some, err)
	}
}
