package brokertest

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// soon is an ack wait that is over soon.
const soon = 500 * time.Millisecond

// queue makes the case's stream a work queue.
func queue(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }

// consumeCases are about pull consumers.
var consumeCases = []Case{
	{"TheDefaultsOfAConsumer", func(e *Env) {
		c, err := e.stream(nil).CreateConsumer(e.ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
		e.must(err)
		cfg := c.CachedInfo().Config
		same(e, "ack wait", cfg.AckWait, 30*time.Second)
		same(e, "max ack pending", cfg.MaxAckPending, 1000)
		same(e, "max waiting", cfg.MaxWaiting, 512)
		same(e, "max deliver", cfg.MaxDeliver, -1)
		same(e, "inactive threshold", cfg.InactiveThreshold, 5*time.Second)
	}},
	{"AnAckTakesAMessageOutOfAQueue", func(e *Env) {
		s := e.stream(queue)
		c := e.consumer(s, nil)
		e.put("a")
		e.put("b")
		e.must(e.one(c, "a", 1).DoubleAck(e.ctx))
		e.until("it is out of the stream", func() bool { return e.state(s).Msgs == 1 })
		e.one(c, "b", 1)
		info := e.info(c)
		same(e, "delivered", info.Delivered.Stream, 2)
		same(e, "floor", info.AckFloor.Stream, 1)
		same(e, "pending acks", info.NumAckPending, 1)
		same(e, "pending", info.NumPending, 0)
	}},
	{"WhatIsNotAcknowledgedComesAgain", func(e *Env) {
		c := e.consumer(e.stream(queue), func(c *jetstream.ConsumerConfig) { c.AckWait = soon })
		e.put("a")
		e.one(c, "a", 1)
		e.one(c, "a", 2)
		e.must(e.one(c, "a", 3).DoubleAck(e.ctx))
		same(e, "pending acks", e.info(c).NumAckPending, 0)
	}},
	{"AcksAreNotFenced", func(e *Env) {
		s := e.stream(queue)
		c := e.consumer(s, func(c *jetstream.ConsumerConfig) { c.AckWait = soon })
		e.put("a")
		old := e.one(c, "a", 1)
		again := e.one(c, "a", 2)
		e.must(old.InProgress())
		e.must(old.DoubleAck(e.ctx)) // though it is another's
		e.until("it is out of the stream", func() bool { return e.state(s).Msgs == 0 })
		e.must(again.DoubleAck(e.ctx)) // though it is gone
	}},
	{"WorkInProgressIsNotDeliveredAgain", func(e *Env) {
		c := e.consumer(e.stream(queue), func(c *jetstream.ConsumerConfig) { c.AckWait = 2 * time.Second })
		e.put("a")
		m := e.one(c, "a", 1)
		for range 6 { // three seconds
			time.Sleep(500 * time.Millisecond)
			if _, err := e.NC.RequestWithContext(e.ctx, m.Reply(), []byte("+WPI")); err != nil {
				e.Error(err)
			}
		}
		e.none(c)
		e.one(c, "a", 2) // when that ceases
	}},
	{"ANakComesAgainAtOnceAndBeforeTheNew", func(e *Env) {
		c := e.consumer(e.stream(queue), nil)
		for _, tail := range []string{"a", "b", "c", "d"} {
			e.put(tail)
		}
		got := e.fetch(c, 3)
		for _, m := range []jetstream.Msg{got[2], got[0]} { // the server answers when it has performed the nak
			if _, err := e.NC.RequestWithContext(e.ctx, m.Reply(), []byte("-NAK")); err != nil {
				e.Error(err)
			}
		}
		e.one(c, "c", 2) // in the order of the naks
		e.one(c, "a", 2)
		e.one(c, "d", 1)
	}},
	{"ANakWithADelayKeepsItsPlace", func(e *Env) {
		c := e.consumer(e.stream(queue), func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 })
		e.put("a")
		e.put("b")
		e.must(e.one(c, "a", 1).NakWithDelay(2 * time.Second))
		e.must(e.NC.Flush())
		e.none(c) // b is not delivered meanwhile
		e.must(e.one(c, "a", 2).DoubleAck(e.ctx))
		e.one(c, "b", 1)
	}},
	{"TooManyWithoutAnAck", func(e *Env) {
		c := e.consumer(e.stream(queue), func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 2 })
		for range 3 {
			e.put("a")
		}
		got := e.fetch(c, 2)
		e.none(c)
		e.must(got[1].DoubleAck(e.ctx))
		e.one(c, "a", 1)
	}},
	{"DeliveredTooOften", func(e *Env) {
		s := e.stream(queue)
		advisories, err := e.NC.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + e.Name + ".>")
		e.must(err)
		e.must(e.NC.Flush())
		c := e.consumer(s, func(c *jetstream.ConsumerConfig) { c.AckWait, c.MaxDeliver = soon, 2 })
		e.put("a")
		e.one(c, "a", 1)
		e.one(c, "a", 2)
		e.until("it is given up", func() bool { e.none(c); return e.info(c).NumAckPending == 0 })
		var advisory struct {
			Stream     string `json:"stream"`
			StreamSeq  uint64 `json:"stream_seq"`
			Deliveries int    `json:"deliveries"`
		}
		e.must(json.Unmarshal(e.next(advisories).Data, &advisory))
		same(e, "stream", advisory.Stream, e.Name)
		same(e, "sequence", advisory.StreamSeq, 1)
		same(e, "deliveries", advisory.Deliveries, 2)
		same(e, "messages", e.state(s).Msgs, 1) // it stays, and nobody gets it
	}},
	{"BackoffNeedsAsManyDeliveries", func(e *Env) {
		_, err := e.stream(nil).CreateConsumer(e.ctx, jetstream.ConsumerConfig{
			Durable: "c", AckPolicy: jetstream.AckExplicitPolicy,
			MaxDeliver: 1, BackOff: []time.Duration{time.Second, time.Minute},
		})
		e.refused(err, 10116, "max deliver is required to be > length of backoff values")
	}},
	{"BackoffTakesTheAckWaitsPlace", func(e *Env) {
		c := e.consumer(e.stream(queue), func(c *jetstream.ConsumerConfig) {
			c.AckWait, c.MaxDeliver, c.BackOff = time.Hour, 5, []time.Duration{soon, 2 * soon}
		})
		same(e, "ack wait", c.CachedInfo().Config.AckWait, soon)
		e.put("a")
		e.one(c, "a", 1)
		e.one(c, "a", 2)
		e.one(c, "a", 3)
	}},
	{"ATerminatedMessage", func(e *Env) {
		s := e.stream(queue)
		c := e.consumer(s, nil)
		advisories, err := e.NC.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED." + e.Name + ".>")
		e.must(err)
		e.must(e.NC.Flush())
		e.put("a")
		e.must(e.one(c, "a", 1).TermWithReason("because"))
		e.until("it is out of the stream", func() bool { return e.state(s).Msgs == 0 })
		same(e, "reason", strings.Contains(string(e.next(advisories).Data), `"reason":"because"`), true)
	}},
	{"ADeletedMessageIsNotDeliveredAgain", func(e *Env) {
		s := e.stream(queue)
		c := e.consumer(s, func(c *jetstream.ConsumerConfig) { c.AckWait = soon })
		seq := e.put("a")
		e.one(c, "a", 1)
		e.must(s.DeleteMsg(e.ctx, seq))
		e.until("nothing is pending", func() bool { return e.info(c).NumAckPending == 0 })
		e.none(c)
		same(e, "delivered", e.info(c).Delivered.Stream, 1)
	}},
	{"ConsumersOfAQueueDoNotOverlap", func(e *Env) {
		s := e.stream(queue)
		make := func(name, filter string, with func(*jetstream.ConsumerConfig)) error {
			cfg := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy,
				FilterSubject: filter}
			if with != nil {
				with(&cfg)
			}
			_, err := s.CreateConsumer(e.ctx, cfg)
			return err
		}
		e.must(make("a", e.subject("a.>"), nil))
		e.must(make("b", e.subject("b.>"), nil))
		e.refused(make("c", e.subject("*.x"), nil), 10100, "filtered consumer not unique on workqueue stream")
		e.refused(make("c", "", nil), 10099, "multiple non-filtered consumers not allowed on workqueue stream")
		fresh := func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy }
		e.refused(make("c", e.subject("c"), fresh),
			10101, "consumer must be deliver all on workqueue stream")
		e.refused(make("c", e.subject("c"), func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }),
			10098, "workqueue stream requires explicit ack")
	}},
	{"MakingAConsumerAgain", func(e *Env) {
		s := e.stream(nil)
		e.consumer(s, nil)
		e.consumer(s, nil)
		_, err := s.CreateConsumer(e.ctx, jetstream.ConsumerConfig{
			Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour,
		})
		e.refused(err, 10148, "consumer already exists")
		_, err = s.UpdateConsumer(e.ctx, jetstream.ConsumerConfig{Durable: "d"})
		e.refused(err, 10149, "consumer does not exist")
		_, err = s.Consumer(e.ctx, "d")
		e.refused(err, 10014, "consumer not found")
	}},
	{"AConsumerGetsItsFilter", func(e *Env) {
		s := e.stream(nil)
		for _, tail := range []string{"a.1", "b.1", "c.1", "a.2"} {
			e.put(tail)
		}
		one := e.consumer(s, func(c *jetstream.ConsumerConfig) { c.FilterSubject = e.subject("a.*") })
		same(e, "pending", one.CachedInfo().NumPending, 2)
		e.one(one, "a.1", 1)
		e.one(one, "a.2", 1)
		two := e.consumer(s, func(c *jetstream.ConsumerConfig) {
			c.Durable, c.FilterSubjects = "d", []string{e.subject("b.*"), e.subject("c.*")}
		})
		e.one(two, "b.1", 1)
		e.one(two, "c.1", 1)
		e.none(two)
	}},
	{"WhereAConsumerBegins", func(e *Env) {
		s := e.stream(nil)
		for _, tail := range []string{"a", "b", "a", "c"} {
			e.put(tail)
		}
		for _, c := range []struct {
			name  string
			with  func(*jetstream.ConsumerConfig)
			tails []string
		}{
			{"last", func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverLastPolicy },
				[]string{"c"}},
			{"each", func(c *jetstream.ConsumerConfig) {
				c.DeliverPolicy, c.FilterSubject = jetstream.DeliverLastPerSubjectPolicy, e.Name+".>"
			}, []string{"b", "a", "c"}},
			{"from", func(c *jetstream.ConsumerConfig) {
				c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, 3
			}, []string{"a", "c"}},
			{"new", func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy }, nil},
		} {
			cons := e.consumer(s, func(cfg *jetstream.ConsumerConfig) { cfg.Durable = c.name; c.with(cfg) })
			same(e, c.name+": pending", cons.CachedInfo().NumPending, uint64(len(c.tails)))
			for _, tail := range c.tails {
				e.one(cons, tail, 1)
			}
			e.none(cons)
		}
	}},
	{"TheRequestThatWaitedLongestIsServed", func(e *Env) {
		e.consumer(e.stream(queue), nil)
		first := e.pull("c", `{"batch":2,"expires":30000000000}`)
		second := e.pull("c", `{"batch":1,"expires":30000000000}`)
		e.must(e.NC.Flush())
		e.put("a")
		e.put("b")
		e.put("c")
		same(e, "first", e.next(first).Subject, e.subject("a"))
		same(e, "second", e.next(second).Subject, e.subject("b")) // one message for each in turn
		same(e, "first again", e.next(first).Subject, e.subject("c"))
	}},
	{"HowARequestEnds", func(e *Env) {
		s := e.stream(queue)
		c := e.consumer(s, nil)
		e.status(e.pull("c", `{"batch":1,"no_wait":true}`), "404", "No Messages")
		m := e.status(e.pull("c", `{"batch":3,"expires":200000000}`), "408", "Request Timeout")
		same(e, "left", m.Header.Get("Nats-Pending-Messages"), "3")
		e.status(e.pull("c", `{"batch":1,"expires":1000000000,"idle_heartbeat":900000000}`),
			"400", "Bad Request - heartbeat value too large")
		e.put("a")
		// A request without a wait goes by the count, which the server brings up to date after it has answered.
		e.until("it is counted", func() bool { return e.info(c).NumPending == 1 })
		e.status(e.pull("c", `{"batch":1,"max_bytes":1,"expires":1000000000}`), "409", "Message Size Exceeds MaxBytes")
		sub := e.pull("c", `{"batch":5,"no_wait":true}`)
		same(e, "message", e.next(sub).Subject, e.subject("a"))
		if e.Replicas > 1 {
			e.status(sub, "408", "Request Timeout")
		} else {
			e.status(sub, "404", "No Messages")
		}
		sub = e.pull("c", `{"batch":1,"expires":30000000000}`)
		e.must(e.NC.Flush())
		e.until("the request is there", func() bool { return e.info(c).NumWaiting == 1 })
		e.must(s.DeleteConsumer(e.ctx, "c"))
		e.status(sub, "409", "Consumer Deleted")
		_, err := e.NC.RequestWithContext(e.ctx, "$JS.API.CONSUMER.MSG.NEXT."+e.Name+".c", nil)
		same(e, "error", errors.Is(err, nats.ErrNoResponders), true)
	}},
	{"ARequestHasAHeartbeat", func(e *Env) {
		e.consumer(e.stream(queue), nil)
		sub := e.pull("c", `{"batch":1,"expires":30000000000,"idle_heartbeat":200000000}`)
		e.status(sub, "100", "Idle Heartbeat")
		e.status(sub, "100", "Idle Heartbeat")
		e.put("a")
		for m := e.next(sub); m.Subject != e.subject("a"); m = e.next(sub) {
			same(e, "status", m.Header.Get("Status"), "100")
		}
	}},
	{"TooManyRequests", func(e *Env) {
		c := e.consumer(e.stream(queue), func(c *jetstream.ConsumerConfig) { c.MaxWaiting = 1 })
		e.pull("c", `{"batch":1,"expires":30000000000}`)
		e.until("it waits", func() bool { return e.info(c).NumWaiting == 1 })
		e.status(e.pull("c", `{"batch":1,"expires":30000000000}`), "409", "Exceeded MaxWaiting")
	}},
	{"ARequestThatNobodyWaitsForGetsNothing", func(e *Env) {
		c := e.consumer(e.stream(queue), nil)
		sub := e.pull("c", `{"batch":1,"expires":30000000000}`)
		e.until("it waits", func() bool { return e.info(c).NumWaiting == 1 })
		e.must(sub.Unsubscribe())
		e.must(e.NC.Flush())
		e.until("it is forgotten", func() bool { return e.info(c).NumWaiting == 0 })
		e.put("a")
		e.one(c, "a", 1) // it was not handed to anybody
	}},
	{"AClientThatIsGoneGetsNothing", func(e *Env) {
		c := e.consumer(e.stream(queue), nil)
		other := e.Connect(e.T, "two")
		sub, err := other.SubscribeSync(other.NewInbox())
		e.must(err)
		request := []byte(`{"batch":1,"expires":30000000000}`)
		e.must(other.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+e.Name+".c", sub.Subject, request))
		e.until("it waits", func() bool { return e.info(c).NumWaiting == 1 })
		other.Close()
		e.until("it is forgotten", func() bool { return e.info(c).NumWaiting == 0 })
		e.put("a")
		e.one(c, "a", 1)
	}},
	{"AnUnusedEphemeralConsumerIsDeleted", func(e *Env) {
		s := e.stream(nil)
		c, err := s.CreateConsumer(e.ctx, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Second, Name: "brief",
		})
		e.must(err)
		e.until("it is gone", func() bool {
			_, err := s.Consumer(e.ctx, c.CachedInfo().Name)
			return errors.Is(err, jetstream.ErrConsumerNotFound)
		})
	}},
	{"APurgeTakesWhatIsPending", func(e *Env) {
		s := e.stream(queue)
		c := e.consumer(s, nil)
		e.put("a")
		e.put("b")
		e.fetch(c, 2)
		e.must(s.Purge(e.ctx))
		e.until("nothing is pending", func() bool { return e.info(c).NumAckPending == 0 })
		e.put("c")
		e.must(e.one(c, "c", 1).DoubleAck(e.ctx))
	}},
	{"AnOrderedConsumerReadsAll", func(e *Env) {
		s := e.stream(nil)
		for range 20 {
			e.put("a")
		}
		c, err := s.OrderedConsumer(e.ctx, jetstream.OrderedConsumerConfig{})
		e.must(err)
		it, err := c.Messages()
		e.must(err)
		for want := uint64(1); want <= 20; want++ {
			m, err := it.Next()
			e.must(err)
			meta, err := m.Metadata()
			e.must(err)
			same(e, "sequence", meta.Sequence.Stream, want)
		}
		it.Stop()
	}},
}
