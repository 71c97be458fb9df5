package membroker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// work has some workers take messages out of a queue while the server and the ways to it fail, and returns the steps of
// the run.
func work(t *testing.T, seed uint64) (steps []string) {
	const workers, messages = 3, 30
	Bubble(t, func(t *testing.T) {
		s := start(t, Options{Settle: synctest.Wait, Seed: seed, Trace: func(st Step) {
			steps = append(steps, fmt.Sprintf("%s %s.%d %s", st.Kind, st.Party, st.Conn, st.What))
		}})
		js, err := jetstream.New(connect(t, s, "owner"))
		must.OK(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		st, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "S", Subjects: []string{"s.>"}, Retention: jetstream.WorkQueuePolicy,
		})
		must.OK(t, err)
		if _, err := st.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		}); err != nil {
			t.Fatal(err)
		}
		var done sync.Map
		var all sync.WaitGroup
		working, end := context.WithCancel(ctx)
		for w := range workers {
			nc := connect(t, s, fmt.Sprint("worker", w))
			all.Go(func() {
				if err := serve(working, nc, &done); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() { // each fault at its time
			for i, fault := range []func(){
				func() { s.Cut("worker0") }, func() { s.Deafen("worker1") }, func() { s.Heal("worker0") },
				func() { s.LoseAnswers("worker2", 3) }, s.Kill, s.Start, func() { s.Heal("worker1") },
				func() { s.Mute("worker2") }, func() { s.DelayAnswers("owner", time.Second) },
				func() { s.Heal("worker2") },
			} {
				time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
				fault()
			}
		})
		for i := range messages {
			for {
				_, err := js.Publish(ctx, fmt.Sprint("s.", i), nil, jetstream.WithExpectLastSequencePerSubject(0))
				if err == nil || refused(err, 10071) {
					break
				}
				time.Sleep(300 * time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond)
		}
		for left := true; left; time.Sleep(time.Second) {
			info, err := st.Info(ctx)
			left = err != nil || info.State.Msgs > 0
			if ctx.Err() != nil {
				t.Fatal("messages are left")
			}
		}
		end()
		all.Wait()
		for i := range messages {
			if _, ok := done.Load(fmt.Sprint("s.", i)); !ok {
				t.Errorf("nobody has done %d", i)
			}
		}
		time.Sleep(time.Minute) // until all that waits has ended
	})
	return steps
}

// serve takes messages until ctx ends, by one goroutine and one request at a time: two goroutines of a party that want
// something at the same moment are ordered by Go's scheduler, and no seed.
func serve(ctx context.Context, nc *nats.Conn, done *sync.Map) error {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		request := []byte(`{"batch":1,"expires":1000000000}`)
		if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.c", sub.Subject, request); err != nil {
			return err
		}
		m, err := sub.NextMsg(1500 * time.Millisecond)
		if err != nil || m.Reply == "" {
			continue
		}
		time.Sleep(50 * time.Millisecond)
		done.Store(m.Subject, true)
		if _, err := nc.Request(m.Reply, []byte("+ACK"), time.Second); err != nil {
			continue // it comes again
		}
	}
	return nil
}

func TestARunWithFaultsDependsOnItsSeedAlone(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		first, again := work(t, seed), work(t, seed)
		for i := range min(len(first), len(again)) {
			if first[i] != again[i] {
				t.Fatalf("seed %d: step %d was %q and then %q, after\n%v", seed, i, first[i], again[i],
					first[max(0, i-10):i])
			}
		}
		if !slices.Equal(first, again) {
			t.Fatalf("seed %d: one run has %d steps, the other %d", seed, len(first), len(again))
		}
		t.Logf("seed %d: %d steps", seed, len(first))
	}
}
