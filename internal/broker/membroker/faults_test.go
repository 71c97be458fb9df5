package membroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// scene is a server with a stream, a consumer and two parties.
type scene struct {
	*testing.T
	s        *Server
	nc, nc2  *nats.Conn
	js, js2  jetstream.JetStream
	st       jetstream.Stream
	consumer jetstream.Consumer // as party one sees it
	other    jetstream.Consumer // as party two sees it
}

const ackWait = 2 * time.Second

// play runs a test on a scene.
func play(t *testing.T, with func(*jetstream.StreamConfig), run func(*scene)) {
	Bubble(t, func(t *testing.T) {
		sc := &scene{T: t, s: start(t, Options{Settle: synctest.Wait, Seed: 1, Clustered: true})}
		sc.nc, sc.nc2 = connect(t, sc.s, "one"), connect(t, sc.s, "two")
		var err error
		sc.js, err = jetstream.New(sc.nc)
		sc.must(err)
		sc.js2, err = jetstream.New(sc.nc2)
		sc.must(err)
		cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: jetstream.WorkQueuePolicy}
		if with != nil {
			with(&cfg)
		}
		sc.st, err = sc.js.CreateStream(t.Context(), cfg)
		sc.must(err)
		sc.consumer, err = sc.st.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
			Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		})
		sc.must(err)
		sc.other, err = sc.js2.Consumer(t.Context(), "S", "c")
		sc.must(err)
		run(sc)
		sc.nc.Close()
		sc.nc2.Close()
		time.Sleep(time.Minute) // until all that waits has ended
	})
}

func (sc *scene) must(err error) {
	sc.Helper()
	must.OK(sc, err)
}

// put publishes, within a second.
func (sc *scene) put(js jetstream.JetStream, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(sc.Context(), time.Second)
	defer cancel()
	return js.Publish(ctx, "s.a", []byte("x"), append(opts, jetstream.WithRetryAttempts(0))...)
}

// take takes a message, and checks which delivery it is.
func (sc *scene) take(c jetstream.Consumer, delivery uint64) jetstream.Msg {
	sc.Helper()
	m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	sc.must(err)
	meta, err := m.Metadata()
	sc.must(err)
	if meta.NumDelivered != delivery {
		sc.Errorf("it was delivered %d times, not %d", meta.NumDelivered, delivery)
	}
	return m
}

// last is the stream's last sequence, as party two sees it.
func (sc *scene) last() uint64 {
	sc.Helper()
	st, err := sc.js2.Stream(sc.Context(), "S")
	sc.must(err)
	return st.CachedInfo().State.LastSeq
}

func (sc *scene) want(what string, got, want any) {
	sc.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		sc.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func refused(err error, code jetstream.ErrorCode) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == code
}

func TestFaults(t *testing.T) {
	for name, run := range map[string]func(*scene){
		"a party that is cut comes back when it is healed": func(sc *scene) {
			sc.s.Cut("one")
			time.Sleep(time.Second)
			sc.want("status", sc.nc.Status(), nats.RECONNECTING)
			sc.s.Heal("one")
			time.Sleep(time.Second)
			sc.want("status", sc.nc.Status(), nats.CONNECTED)
			_, err := sc.put(sc.js)
			sc.must(err)
		},
		"a dropped connection is restored": func(sc *scene) {
			sc.s.Drop("one")
			time.Sleep(time.Second)
			sc.want("reconnects", sc.nc.Stats().Reconnects, 1)
		},
		"a lost answer is not that of something lost": func(sc *scene) {
			sc.s.LoseAnswers("one", 1)
			_, err := sc.put(sc.js, jetstream.WithExpectLastSequencePerSubject(0))
			sc.want("error", errors.Is(err, context.DeadlineExceeded), true)
			sc.want("last", sc.last(), 1)
			_, err = sc.put(sc.js, jetstream.WithExpectLastSequencePerSubject(0))
			sc.want("conflict", refused(err, 10071), true)
		},
		"a late answer comes": func(sc *scene) {
			sc.s.DelayAnswers("one", 700*time.Millisecond)
			began := time.Now()
			_, err := sc.put(sc.js)
			sc.must(err)
			sc.want("time", time.Since(began), 700*time.Millisecond)
		},
		"what a deaf party was handed is delivered again": func(sc *scene) {
			sub, err := sc.nc.SubscribeSync("in")
			sc.must(err)
			sc.must(sc.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.c", "in",
				[]byte(`{"batch":1,"expires":60000000000}`)))
			sc.must(sc.nc.Flush())
			sc.s.Deafen("one")
			_, err = sc.put(sc.js2)
			sc.must(err)
			began := time.Now()
			sc.take(sc.other, 2)
			sc.want("wait", time.Since(began), ackWait)
			sc.s.Heal("one")
			_, err = sub.NextMsg(time.Second) // it was held
			sc.must(err)
		},
		"what a mute party says arrives when it is healed": func(sc *scene) {
			sc.s.Mute("one")
			_, err := sc.put(sc.js)
			sc.want("error", errors.Is(err, context.DeadlineExceeded), true)
			sc.want("last", sc.last(), 0)
			sc.s.Heal("one")
			time.Sleep(time.Second)
			sc.want("last", sc.last(), 1)
		},
		"a killed server forgets the last deliveries": func(sc *scene) {
			_, err := sc.put(sc.js)
			sc.must(err)
			sc.take(sc.consumer, 1)
			sc.s.Kill()
			sc.s.Start()
			time.Sleep(time.Second) // until the parties are back
			sc.take(sc.other, 1)    // as if for the first time
		},
		"and no older ones": func(sc *scene) {
			_, err := sc.put(sc.js)
			sc.must(err)
			sc.take(sc.consumer, 1)
			time.Sleep(writeEvery)
			sc.s.Kill()
			sc.s.Start()
			time.Sleep(time.Second)
			sc.take(sc.other, 2)
		},
		"a stopped server forgets none": func(sc *scene) {
			_, err := sc.put(sc.js)
			sc.must(err)
			sc.take(sc.consumer, 1)
			sc.s.Stop()
			sc.s.Start()
			time.Sleep(time.Second)
			sc.take(sc.other, 2)
		},
		"a restart forgets the ids of what is gone": func(sc *scene) {
			_, err := sc.put(sc.js, jetstream.WithMsgID("gone"))
			sc.must(err)
			sc.must(sc.take(sc.consumer, 1).DoubleAck(sc.Context()))
			_, err = sc.put(sc.js, jetstream.WithMsgID("there"))
			sc.must(err)
			sc.s.Stop()
			sc.s.Start()
			time.Sleep(time.Second)
			for id, duplicate := range map[string]bool{"gone": false, "there": true} {
				ack, err := sc.put(sc.js, jetstream.WithMsgID(id))
				sc.must(err)
				sc.want(id, ack.Duplicate, duplicate)
			}
		},
		"a stream without a leader": func(sc *scene) {
			sc.s.LoseLeader("S")
			_, err := sc.put(sc.js)
			sc.want("publish", errors.Is(err, jetstream.ErrNoStreamResponse), true)
			_, err = sc.js.Stream(sc.Context(), "S")
			sc.want("look", refused(err, 10008), true)
			sc.s.ElectLeader("S")
			_, err = sc.put(sc.js)
			sc.must(err)
			sc.take(sc.consumer, 1)
		},
		"a cluster without a leader": func(sc *scene) {
			sc.s.LoseLeader("")
			_, err := sc.js.CreateStream(sc.Context(), jetstream.StreamConfig{Name: "T"})
			sc.want("create", refused(err, 10008), true)
			sc.s.ElectLeader("")
			_, err = sc.js.CreateStream(sc.Context(), jetstream.StreamConfig{Name: "T"})
			sc.must(err)
		},
		"no room": func(sc *scene) {
			sc.s.Stall("", true)
			_, err := sc.put(sc.js)
			sc.want("a full disk", errors.Is(err, context.DeadlineExceeded), true)
			sc.s.Stall("", false)
			sc.s.Fill("S", true)
			_, err = sc.put(sc.js)
			sc.want("a full stream", refused(err, 10077), true)
			sc.s.Fill("S", false)
			sc.s.Exhaust(true)
			_, err = sc.put(sc.js)
			sc.want("no resources", refused(err, 10023), true)
			sc.s.Exhaust(false)
			ack, err := sc.put(sc.js)
			sc.must(err)
			sc.want("sequence", ack.Sequence, 1)
		},
		"acks that expire": func(sc *scene) {
			_, err := sc.put(sc.js)
			sc.must(err)
			sc.take(sc.consumer, 1)
			sc.s.ExpireAcks("S", "c")
			began := time.Now()
			sc.take(sc.other, 2)
			sc.want("wait", time.Since(began), time.Duration(0))
		},
		"a lost tail": func(sc *scene) {
			for range 3 {
				_, err := sc.put(sc.js)
				sc.must(err)
			}
			for range 3 {
				sc.take(sc.consumer, 1)
			}
			time.Sleep(time.Second)
			sc.s.Kill()
			sc.s.LoseTail("S", 2)
			sc.s.Start()
			time.Sleep(time.Second)
			ack, err := sc.put(sc.js)
			sc.must(err)
			sc.want("sequence", ack.Sequence, 2)
			sc.take(sc.consumer, 2) // what is left of the former ones
			sc.take(sc.consumer, 1)
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, nil, run) })
	}
}

func TestReplicasForgetNoDeliveries(t *testing.T) {
	play(t, func(c *jetstream.StreamConfig) { c.Replicas = 3 }, func(sc *scene) {
		_, err := sc.put(sc.js)
		sc.must(err)
		sc.take(sc.consumer, 1)
		sc.s.Kill()
		sc.s.Start()
		time.Sleep(time.Second)
		sc.take(sc.other, 2)
	})
}

func TestDirectReadsLieBehind(t *testing.T) {
	play(t, func(c *jetstream.StreamConfig) { c.AllowDirect, c.Replicas = true, 3 }, func(sc *scene) {
		for range 3 {
			_, err := sc.put(sc.js)
			sc.must(err)
		}
		sc.must(sc.st.DeleteMsg(sc.Context(), 2))
		for lag, want := range []uint64{3, 3, 2, 1} { // the second last change was that of message 3
			sc.s.Lag("S", lag)
			m, err := sc.st.GetLastMsgForSubject(sc.Context(), "s.a")
			sc.must(err)
			sc.want(fmt.Sprint("last, ", lag, " changes ago"), m.Sequence, want)
		}
		sc.s.Lag("S", 1)
		_, err := sc.st.GetMsg(sc.Context(), 2) // it is not deleted yet
		sc.must(err)
	})
}

func TestADeposedLeaderLiesBehind(t *testing.T) {
	play(t, func(*jetstream.StreamConfig) {}, func(sc *scene) {
		for range 3 {
			_, err := sc.put(sc.js)
			sc.must(err)
		}
		sc.must(sc.st.DeleteMsg(sc.Context(), 2))
		for ago, want := range []uint64{3, 3, 2, 1, 3} {
			sc.s.Depose("S", ago%4) // and in the end it is deposed no more
			m, err := sc.st.GetLastMsgForSubject(sc.Context(), "s.a")
			sc.must(err)
			sc.want(fmt.Sprint("last, ", ago%4, " changes ago"), m.Sequence, want)
		}
		for ago, want := range []error{jetstream.ErrMsgNotFound, nil, nil, jetstream.ErrMsgNotFound} {
			sc.s.Depose("S", ago)
			if _, err := sc.st.GetMsg(sc.Context(), 2); !errors.Is(err, want) {
				t.Errorf("message 2, %d changes ago: %v", ago, err)
			}
		}
	})
}

// TestAClosedStoreReadsAsEmpty: its server turns down an append behind a message that is there, and has no message to
// read, until there is another leader. Nothing else is answered, or stored.
func TestAClosedStoreReadsAsEmpty(t *testing.T) {
	for _, direct := range []bool{false, true} {
		play(t, func(c *jetstream.StreamConfig) { c.AllowDirect = direct }, func(sc *scene) {
			_, err := sc.put(sc.js)
			sc.must(err)
			sc.s.CloseStore("S")
			if _, err := sc.st.GetLastMsgForSubject(sc.Context(), "s.a"); !errors.Is(err, jetstream.ErrMsgNotFound) {
				t.Errorf("direct %t: the last message: %v", direct, err)
			}
			if _, err := sc.st.GetMsg(sc.Context(), 1); !errors.Is(err, jetstream.ErrMsgNotFound) {
				t.Errorf("direct %t: message 1: %v", direct, err)
			}
			_, err = sc.js.Publish(sc.Context(), "s.a", nil, jetstream.WithExpectLastSequencePerSubject(1))
			if err == nil || !strings.Contains(err.Error(), "wrong last sequence: 0") {
				t.Errorf("direct %t: an append: %v", direct, err)
			}
			ctx, cancel := context.WithTimeout(sc.Context(), time.Second)
			defer cancel()
			_, err = sc.js.Publish(ctx, "s.b", nil, jetstream.WithExpectLastSequencePerSubject(0))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("direct %t: a first message: %v", direct, err)
			}
			if _, err := sc.st.Info(sc.Context()); err == nil {
				t.Errorf("direct %t: the stream says how it is", direct)
			}
			sc.s.ElectLeader("S")
			m, err := sc.st.GetLastMsgForSubject(sc.Context(), "s.a")
			sc.must(err)
			sc.want("the last message", m.Sequence, 1)
		})
	}
}

// TestHold: what is held back happens when it is held no more, and others go on meanwhile.
func TestHold(t *testing.T) {
	Bubble(t, func(t *testing.T) {
		s := start(t, Options{Settle: synctest.Wait, Seed: 1})
		one, two := connect(t, s, "one"), connect(t, s, "two")
		heard, err := two.SubscribeSync("*")
		if err == nil {
			err = two.Flush()
		}
		s.Hold(func(st Step) bool { return st.Kind == Operation && st.What == "PUB held" })
		for _, subject := range []string{"first", "held", "behind"} {
			err = errors.Join(err, one.Publish(subject, nil))
		}
		err = errors.Join(err, two.Publish("other", nil))
		must.OK(t, err)
		time.Sleep(time.Second)
		next := func(n int) (got []string) {
			for range n {
				m, err := heard.NextMsg(time.Second)
				must.OK(t, err)
				got = append(got, m.Subject)
			}
			return got
		}
		before := next(2)
		slices.Sort(before)
		if n, _, err := heard.Pending(); err != nil || n > 0 || !slices.Equal(before, []string{"first", "other"}) {
			t.Errorf("while one is held %q are heard, and %d more: %v", before, n, err)
		}
		s.Hold(nil)
		if got := next(2); !slices.Equal(got, []string{"held", "behind"}) {
			t.Errorf("after that %q are heard", got)
		}
	})
}

// TestLens: what one party sends and gets passes its lens, and what others do does not.
func TestLens(t *testing.T) {
	Bubble(t, func(t *testing.T) {
		s := start(t, Options{Settle: synctest.Wait, Seed: 1,
			Lens: func(party string, sent bool, _ string, hdr, data []byte) ([]byte, []byte) {
				if party != "one" {
					return hdr, data
				}
				return hdr, fmt.Appendf(nil, "%s (sent: %v)", data, sent)
			}})
		one, two := connect(t, s, "one"), connect(t, s, "two")
		defer one.Close()
		defer two.Close()
		hears := func(nc *nats.Conn) *nats.Subscription {
			sub, err := nc.SubscribeSync("s")
			if err == nil {
				err = nc.Flush()
			}
			must.OK(t, err)
			return sub
		}
		atOne, atTwo := hears(one), hears(two)
		for _, from := range []*nats.Conn{one, two} {
			must.OK(t, from.Publish("s", []byte("x")))
			must.OK(t, from.Flush())
		}
		for _, c := range []struct {
			sub  *nats.Subscription
			want []string
		}{
			{atOne, []string{"x (sent: true) (sent: false)", "x (sent: false)"}},
			{atTwo, []string{"x (sent: true)", "x"}},
		} {
			for _, want := range c.want {
				m, err := c.sub.NextMsg(time.Second)
				must.OK(t, err)
				if string(m.Data) != want {
					t.Errorf("got %q, want %q", m.Data, want)
				}
			}
		}
	})
}
