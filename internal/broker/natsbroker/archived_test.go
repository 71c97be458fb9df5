package natsbroker_test

import (
	"fmt"
	"testing"

	"github.com/toolyard/toolyard/internal/broker/natsbroker"
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
		if err != nil {
			t.Fatal(err)
		}
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
