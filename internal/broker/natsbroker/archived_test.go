package natsbroker_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAnArchivedLogIsReadOnce: who reads the logs of one object asks the server where each log is, and once for the
// object.
func TestAnArchivedLogIsReadOnce(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		const batches = 8
		for n := range batches {
			archivedShapes["of two groups"](y, y.submit(fmt.Sprint("b", n)))
		}
		y.acknowledge(batches)
		if r, err := y.round(y.archiver(y.b, always)); err != nil || r.Batches != batches || r.Objects != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		nc := y.conn("reader")
		reader, err := natsbroker.Attach(y.Context(), nc, "/reader")
		must.OK(t, err)
		before := nc.Stats().OutMsgs
		for n := range batches {
			read := 0
			for tail := reader.Tail(keyOf(fmt.Sprint("b", n))); ; read++ {
				if _, ok, err := tail.Next(y.Context()); err != nil {
					t.Fatal(err)
				} else if !ok {
					break
				}
			}
			if read != 10 {
				t.Errorf("batch %d has %d messages", n, read)
			}
		}
		// the fence and the record of each batch, and where the stream of objects is
		if got := nc.Stats().OutMsgs - before; got != 2*batches+2 {
			t.Errorf("%d requests for %d logs", got, batches)
		}
	})
}

// TestABatchWhoseLastCallIsNotAcknowledged: a batch that is over, and of which the work queue still has a call, is
// looked at again a second later, and from then on once a minute.
func TestABatchWhoseLastCallIsNotAcknowledged(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		queue := func(id string) uint64 {
			y.Helper()
			archivedShapes["of two groups"](y, y.submit(id))
			k := keyOf(id)
			q := y.b.QueueAll(y.Context(), 0, []batch.Queue{{
				Route: batch.Route{Pool: toolyard.DefaultPool, Class: toolyard.ReadOnly},
				Request: events.Requested{Agent: k.Agent, Batch: k.ID,
					Calls: []events.RequestedCall{{Input: json.RawMessage(`{}`)}}}}})[0]
			if q.Err != nil {
				y.Fatal(q.Err)
			}
			return q.Seq
		}
		soon, late := queue("soon"), queue("late")
		y.acknowledge(2)
		a := y.archiver(y.b, always)
		moved := func(behind time.Duration, want int) {
			y.Helper()
			time.Sleep(behind)
			if r, err := a.Round(y.Context()); err != nil || r.Batches != want {
				y.Errorf("%s later: %+v, %v; want %d", behind, r, err, want)
			}
		}
		acknowledged := func(seq uint64) {
			y.Helper()
			must.OK(y, y.b.Unqueue(y.Context(), seq))
		}
		moved(archiveAfter, 0)
		acknowledged(soon)
		moved(2*time.Second, 1)
		acknowledged(late)
		moved(30*time.Second, 0)
		moved(time.Hour, 1)
	})
}

// TestARecordThatCannotBeRead: a batch whose record of the archive cannot be read stays where it is, and the others are
// archived.
func TestARecordThatCannotBeRead(t *testing.T) {
	k := keyOf("b1")
	for name, spoil := range map[string]func(y *archiveYard){
		"no event": func(y *archiveYard) {
			m := nats.NewMsg("ty.event." + broker.KeyTokens(k) + "." + broker.NoPool + "." + string(batch.ChainBatch))
			m.Header.Set("ce-type", string(events.BatchArchived))
			if _, err := y.js.PublishMsg(y.Context(), m); err != nil {
				y.Fatal(err)
			}
		},
		"of another kind": func(y *archiveYard) {
			s, err := y.b.Fold(y.Context(), k)
			must.OK(y, err)
			y.append(k, batch.ChainBatch, 0, s.BatchSeq, events.Ended{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArchiveYard(t, func(y *archiveYard) {
				const batches = 3
				for n := range batches {
					archivedShapes["refused"](y, y.submit(fmt.Sprint("b", n)))
				}
				y.acknowledge(batches)
				spoil(y)
				a := y.archiver(y.b, always)
				if r, err := y.round(a); err != nil || r.Batches != batches-1 || len(r.Unreadable) != 1 {
					t.Errorf("%+v, %v", r, err)
				}
				if r, err := y.round(a); err != nil || r.Batches != 0 || len(r.Unreadable) != 0 {
					t.Errorf("the next round: %+v, %v", r, err)
				}
				if len(y.left(k)) == 0 {
					t.Error("the batch is deleted")
				}
			})
		})
	}
}

// TestTheListOfArchivedBatchesIsNotKept: who reads a long list of archived batches has none of it in memory.
func TestTheListOfArchivedBatchesIsNotKept(t *testing.T) {
	inArchiveYard(t, func(y *archiveYard) {
		y.archiver(y.b, always) // makes the archive
		const batches, most = 5_000, 256 << 10
		nc := y.conn("operator")
		for n := range batches {
			forged(t, nc, fmt.Sprintf("ty.batch.a.%0128d", n), events.Archived{Object: "0", Sum: "0", Before: 1,
				Content: "0"}, nil)
		}
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		read, held := 0, int64(0)
		for _, err := range y.b.Kept(y.Context(), "", time.Time{}, time.Time{}) {
			must.OK(t, err)
			if read++; read == batches {
				held = heap()
			}
		}
		if held -= heap(); held > most || read != batches {
			t.Errorf("behind %d batches the list has %d bytes in memory", read, held)
		}
	})
}

// TestBatchesThatAreArchivedWhileTheyAreListed: each is listed once.
func TestBatchesThatAreArchivedWhileTheyAreListed(t *testing.T) {
	const batches = 5
	for at := 1; at <= batches; at++ {
		inArchiveYard(t, func(y *archiveYard) {
			var want, got []toolyard.BatchKey
			for n := range batches {
				sub := y.submit(fmt.Sprint("b", n))
				archivedShapes["refused"](y, sub)
				want = append(want, sub.Key())
			}
			y.acknowledge(batches)
			a := y.archiver(y.b, always)
			for k, err := range y.b.Kept(y.Context(), "", time.Time{}, time.Time{}) {
				must.OK(t, err)
				if got = append(got, k.Key); len(got) == at {
					if r, err := y.round(a); err != nil || r.Batches != batches {
						t.Fatalf("%+v, %v", r, err)
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("archived behind %d: listed are %v, want %v", at, got, want)
			}
		})
	}
}
