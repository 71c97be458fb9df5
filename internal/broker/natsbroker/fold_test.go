package natsbroker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// tapped is a connection that calls a function once, before it passes on the first message of a client that contains a
// text.
func tapped(t *testing.T, url, text string, before func()) *nats.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	var work sync.WaitGroup
	var once sync.Once
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				t.Error(errors.Join(err, client.Close()))
				return
			}
			work.Go(func() {
				_, _ = io.Copy(client, server) // until one of them closes
				_ = client.Close()
			})
			work.Go(func() {
				defer server.Close() //nolint:errcheck // the test is over
				buffer := make([]byte, 64<<10)
				for {
					n, err := client.Read(buffer)
					if bytes.Contains(buffer[:n], []byte(text)) {
						once.Do(before)
					}
					if n > 0 {
						if _, err := server.Write(buffer[:n]); err != nil {
							return
						}
					}
					if err != nil {
						return
					}
				}
			})
		}
	})
	nc, err := nats.Connect("nats://" + l.Addr().String())
	must.OK(t, err)
	t.Cleanup(func() {
		nc.Close()
		_ = l.Close()
		work.Wait()
	})
	return nc
}

// TestWhatIsCompletedHasEveryResult: also if the batch ends while it is read, before the first read of any stream.
func TestWhatIsCompletedHasEveryResult(t *testing.T) {
	for _, stream := range []string{"TY_BATCH", "TY_EVENT", "TY_REPLY"} {
		t.Run(stream, func(t *testing.T) {
			s := testenv.Server(t)
			b := testenv.Broker(t, s, "/test")
			sub := toolyard.Batch{Agent: "a", Calls: []toolyard.Call{{Tool: "x"}, {Tool: "x"}}}
			sub.Normalize("b")
			k := sub.Key()
			appended := func(c batch.Chain, index int, expected uint64, body events.Body) uint64 {
				rec, err := b.Append(t.Context(), k, c, "default", index, expected, body)
				if err != nil {
					t.Error(err)
				}
				return rec.Seq
			}
			must.OK(t, b.Submit(t.Context(), sub))
			planned := appended(batch.ChainBatch, 0, 0, events.Planned{
				Calls:  []events.PlannedCall{{Pool: "default"}, {Pool: "default"}},
				Groups: []events.Group{{Safe: true, Calls: []int{0, 1}}}, Deadline: time.Now().Add(time.Hour),
			})
			appended(batch.ChainBatch, 0, planned, events.Started{Group: 0})
			end := func() {
				reply := events.Reply{Completed: true}
				for i := range 2 {
					r := toolyard.Result{Index: i, CallID: fmt.Sprint("c", i)}
					appended(batch.ChainItem, i, 0, events.Finish(events.End{Result: r}))
					reply.Results = append(reply.Results, r)
				}
				appended(batch.ChainReply, 0, 0, reply)
			}
			reader, err := natsbroker.Attach(t.Context(), tapped(t, s.ClientURL(), "DIRECT.GET."+stream, end),
				"/reader")
			must.OK(t, err)
			st, err := reader.Fold(t.Context(), k)
			must.OK(t, err)
			if v := st.View(); v.Status == toolyard.StatusCompleted && len(v.Results) != 2 {
				t.Errorf("it says that it is %s and has %d results of 2", v.Status, len(v.Results))
			}
			if st, err = reader.Fold(t.Context(), k); err != nil || !st.Completed {
				t.Errorf("the batch did not end: %v", err)
			}
		})
	}
}
