package natsbroker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestKept compares what is listed with what was stored, at random times, of random agents, with wakes and holes
// between. The newest of them are the same, from the other end.
func TestKept(t *testing.T) {
	for range 8 {
		seed := rand.Uint64()
		bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
			e.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			b := e.Broker("test")
			js, err := jetstream.New(e.Conn("operator"))
			must.OK(e.T, err)
			stream, err := js.Stream(e.Context(), "TY_BATCH")
			must.OK(e.T, err)
			agents := []toolyard.Agent{"a", "a.b", "*"} // the names of the last two are escaped
			var all []broker.Kept
			for i := range r.IntN(60) {
				time.Sleep(time.Duration(r.IntN(300)) * time.Second)
				sub := toolyard.Batch{Agent: agents[r.IntN(len(agents))], Calls: []toolyard.Call{{Tool: "t"}}}
				sub.Normalize(toolyard.BatchID(fmt.Sprint("b", i)))
				must.OK(e.T, b.Submit(e.Context(), sub))
				info, err := stream.Info(e.Context())
				must.OK(e.T, err)
				if r.IntN(5) == 0 {
					must.OK(e.T, stream.DeleteMsg(e.Context(), info.State.LastSeq))
				} else {
					all = append(all, broker.Kept{Key: sub.Key(), Place: info.State.LastSeq,
						Time: info.State.LastTime})
				}
				if r.IntN(4) == 0 {
					wake := nats.NewMsg("ty.wake." + broker.KeyTokens(sub.Key()))
					if _, err := js.PublishMsg(e.Context(), wake); err != nil {
						e.Fatal(err)
					}
				}
			}
			moment := func() time.Time { // a submission's, or near one, or none
				switch n := r.IntN(5); {
				case n == 0 || len(all) == 0:
					return time.Time{}
				default:
					return all[r.IntN(len(all))].Time.Add(time.Duration(n-2) * 40 * time.Second)
				}
			}
			for range 40 {
				agent, since, until := append(agents, "")[r.IntN(4)], moment(), moment()
				if r.IntN(2) == 0 {
					until = time.Time{}
				}
				var want, got []broker.Kept
				for _, k := range all {
					if (agent == "" || k.Key.Agent == agent) && !k.Time.Before(since) &&
						(until.IsZero() || k.Time.Before(until)) {
						want = append(want, k)
					}
				}
				for k, err := range b.Kept(e.Context(), agent, since, until) {
					must.OK(e.T, err)
					got = append(got, k)
				}
				same := func(a, b broker.Kept) bool {
					return a.Key == b.Key && a.Place == b.Place && a.Time.Equal(b.Time)
				}
				if !slices.EqualFunc(want, got, same) {
					e.Fatalf("of agent %q from %v to %v there are\n%v\nand listed are\n%v", agent, since, until, want,
						got)
				}
				most := 1 + r.IntN(8)
				newest, cut, err := b.Newest(e.Context(), agent, since, until, most)
				must.OK(e.T, err)
				slices.Reverse(want)
				if first := want[:min(most, len(want))]; !slices.EqualFunc(first, newest, same) ||
					cut != (len(want) > most) {
					e.Fatalf("of agent %q from %v to %v the newest %d are\n%v\nand listed are\n%v, cut %t", agent,
						since, until, most, first, newest, cut)
				}
			}
		})
	}
}
