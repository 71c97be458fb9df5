package brokertest

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// behind expects that the subject ends at a sequence.
func behind(seq uint64) jetstream.PublishOpt { return jetstream.WithExpectLastSequencePerSubject(seq) }

// appendCases are about storing messages.
var appendCases = []Case{
	{"AnAppendBehindTheEndIsStored", func(e *Env) {
		e.stream(nil)
		first := e.put("a", behind(0))
		e.put("b")
		second := e.put("a", behind(first))
		_, err := e.putOdd("a", behind(0))
		e.refused(err, 10071, "wrong last sequence: "+strconv.FormatUint(second, 10))
		_, err = e.putOdd("new", behind(7))
		e.refused(err, 10071, "wrong last sequence: 0")
		e.put("a", behind(second))
	}},
	{"ExpectedOnAnotherSubject", func(e *Env) {
		e.stream(nil)
		a := e.put("x.a")
		b := e.put("x.b", jetstream.WithExpectLastSequenceForSubject(a, e.subject("x.*")))
		_, err := e.putOdd("x.c", jetstream.WithExpectLastSequenceForSubject(a, e.subject("x.*")))
		e.refused(err, 10071, strconv.FormatUint(b, 10))
	}},
	{"ExpectedSequenceOfTheStream", func(e *Env) {
		e.stream(nil)
		e.put("a", jetstream.WithExpectLastSequence(0))
		_, err := e.putOdd("b", jetstream.WithExpectLastSequence(0))
		e.refused(err, 10071, "wrong last sequence: 1")
	}},
	{"ExpectedStream", func(e *Env) {
		e.stream(nil)
		_, err := e.putOdd("a", jetstream.WithExpectStream("OTHER"))
		e.refused(err, 10060, "")
		e.put("a", jetstream.WithExpectStream(e.Name))
	}},
	{"TheEndOfASubjectMovesBackWithDeletions", func(e *Env) {
		s := e.stream(nil)
		first := e.put("a")
		second := e.put("a")
		e.must(s.DeleteMsg(e.ctx, second))
		third := e.put("a", behind(first))
		e.must(s.Purge(e.ctx, jetstream.WithPurgeSubject(e.subject("a"))))
		same(e, "sequence", e.put("a", behind(0)), third+1)
	}},
	{"NoStreamNoAnswer", func(e *Env) {
		_, err := e.putOdd("a")
		if err == nil {
			e.Error("a publish to no stream succeeded")
		}
		_, err = e.NC.RequestWithContext(e.ctx, e.subject("a"), nil)
		same(e, "error", err, error(nats.ErrNoResponders))
		_, err = e.JS.Stream(e.ctx, e.Name)
		e.refused(err, 10059, "stream not found")
	}},
	{"TheSameIDIsStoredOnce", func(e *Env) {
		s := e.stream(nil)
		first := e.put("a", jetstream.WithMsgID("one"))
		ack, err := e.putOdd("b", jetstream.WithMsgID("one")) // on another subject too
		e.must(err)
		same(e, "sequence", ack.Sequence, first)
		same(e, "duplicate", ack.Duplicate, true)
		e.must(s.Purge(e.ctx))
		ack, err = e.putOdd("a", jetstream.WithMsgID("one")) // a purge does not forget it
		e.must(err)
		same(e, "duplicate after a purge", ack.Duplicate, true)
	}},
	{"WhichCheckComesFirstDependsOnReplicas", func(e *Env) {
		e.stream(nil)
		first := e.put("a", behind(0), jetstream.WithMsgID("one"))
		ack, err := e.putOdd("a", behind(0), jetstream.WithMsgID("one"))
		if e.Replicas == 1 {
			e.refused(err, 10071, strconv.FormatUint(first, 10))
			return
		}
		e.must(err)
		same(e, "duplicate", ack.Duplicate, true)
	}},
	{"TheWindowOfIDsIsNotLongerThanTheAge", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) { c.MaxAge = time.Minute })
		same(e, "window", s.CachedInfo().Config.Duplicates, time.Minute)
		_, err := e.JS.CreateStream(e.ctx, jetstream.StreamConfig{
			Name: e.Name + "X", MaxAge: time.Minute, Duplicates: time.Hour, Replicas: e.Replicas,
		})
		e.refused(err, 10052, "duplicates window")
	}},
	{"AFullStreamRefusesTheNew", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, 1 })
		seq := e.put("a")
		_, err := e.putOdd("b")
		e.refused(err, 10077, "maximum messages exceeded")
		e.must(s.DeleteMsg(e.ctx, seq))
		e.put("b")
	}},
	{"BytesAreALimit", func(e *Env) {
		e.stream(func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardNew, 100 })
		_, err := e.JS.Publish(e.ctx, e.subject("a"), make([]byte, 200), jetstream.WithRetryAttempts(0))
		e.refused(err, 10077, "maximum bytes exceeded")
		e.put("a")
	}},
	{"AFullStreamLosesTheOldOnesSilently", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, 2 })
		for range 3 {
			e.put("a")
		}
		st := e.state(s)
		same(e, "messages", st.Msgs, 2)
		same(e, "first", st.FirstSeq, 2)
	}},
	{"TheNewestOfASubjectStays", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.Discard, c.MaxMsgs = 1, jetstream.DiscardNew, 2
		})
		e.put("a")
		e.put("b")
		_, err := e.putOdd("c")
		e.refused(err, 10077, "maximum messages exceeded")
		_, err = e.putOdd("a")
		if e.Replicas > 1 { // with replicas nothing can be changed in a bucket that is full
			e.refused(err, 10077, "maximum messages exceeded")
			return
		}
		e.must(err) // it takes the place of another
		st := e.state(s)
		same(e, "messages", st.Msgs, 2)
		same(e, "last", st.LastSeq, 3)
	}},
	{"AMessageThatIsTooLong", func(e *Env) {
		e.stream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 })
		_, err := e.JS.Publish(e.ctx, e.subject("a"), make([]byte, 11), jetstream.WithRetryAttempts(0))
		e.refused(err, 10054, "message size exceeds maximum allowed")
	}},
	{"ARollupNeedsPermission", func(e *Env) {
		e.stream(nil)
		_, err := e.JS.PublishMsg(e.ctx, &nats.Msg{Subject: e.subject("a"),
			Header: nats.Header{"Nats-Rollup": {"all"}}},
			jetstream.WithRetryAttempts(0))
		e.refused(err, 10111, "rollup not permitted")
	}},
	{"ARollupDeletesTheWholeStream", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) { c.AllowRollup = true })
		e.put("a")
		e.put("b")
		_, err := e.JS.PublishMsg(e.ctx, &nats.Msg{Subject: e.subject("c"),
			Header: nats.Header{"Nats-Rollup": {"all"}}})
		e.must(err)
		same(e, "messages", e.state(s).Msgs, 1)
	}},
	{"ATTLNeedsPermission", func(e *Env) {
		e.stream(nil)
		_, err := e.putOdd("a", jetstream.WithMsgTTL(time.Second))
		e.refused(err, 10166, "per-message TTL is disabled")
	}},
	{"ATTLIsASecondAtLeast", func(e *Env) {
		e.stream(func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true })
		m := &nats.Msg{Subject: e.subject("a"), Header: nats.Header{"Nats-TTL": {"500ms"}}}
		_, err := e.JS.PublishMsg(e.ctx, m, jetstream.WithRetryAttempts(0))
		e.refused(err, 10165, "invalid per-message TTL")
	}},
	{"WhatHasExpiredIsGone", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true })
		e.put("a", jetstream.WithMsgTTL(time.Second))
		e.put("b")
		e.until("one message is left", func() bool { return e.state(s).Msgs == 1 })
		e.put("a", behind(0))
	}},
	{"AMarkTakesThePlaceOfWhatHasExpired", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) {
			c.AllowMsgTTL, c.MaxMsgsPerSubject, c.SubjectDeleteMarkerTTL = true, 1, time.Second
		})
		seq := e.put("a", jetstream.WithMsgTTL(time.Second))
		var m *jetstream.RawStreamMsg
		e.until("the mark stands there", func() (there bool) {
			var err error
			m, err = s.GetLastMsgForSubject(e.ctx, e.subject("a"))
			return err == nil && m.Sequence != seq
		})
		same(e, "reason", m.Header.Get("Nats-Marker-Reason"), "MaxAge")
		same(e, "rollup", m.Header.Get("Nats-Rollup"), "sub")
		e.until("the mark is gone", func() bool { return e.state(s).Msgs == 0 })
	}},
	{"ADeletionLeavesNoMark", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) {
			c.AllowMsgTTL, c.MaxMsgsPerSubject, c.SubjectDeleteMarkerTTL = true, 1, time.Minute
		})
		e.must(s.DeleteMsg(e.ctx, e.put("a")))
		e.put("b")
		e.must(s.Purge(e.ctx, jetstream.WithPurgeSubject(e.subject("b"))))
		same(e, "messages", e.state(s).Msgs, 0)
	}},
	{"LiveCopiesSayWhatCameBefore", func(e *Env) {
		e.stream(func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: e.Name + ".>", Destination: "live." + e.Name + ".>"}
		})
		sub, err := e.NC.SubscribeSync("live." + e.Name + ".>")
		e.must(err)
		e.must(e.NC.Flush())
		first := e.put("a", jetstream.WithMsgID("one"))
		e.put("b")
		if _, err := e.putOdd("a", behind(0)); err == nil {
			e.Error("a conflict was stored")
		}
		e.put("a")
		for _, want := range []struct{ tail, before string }{
			{"a", "0"}, {"b", "0"}, {"a", strconv.FormatUint(first, 10)}, // and none of what was refused
		} {
			m := e.next(sub)
			same(e, "subject", m.Subject, "live."+e.subject(want.tail))
			same(e, "stream", m.Header.Get("Nats-Stream"), e.Name)
			same(e, "stored on", m.Header.Get("Nats-Subject"), e.subject(want.tail))
			same(e, "last sequence", m.Header.Get("Nats-Last-Sequence"), want.before)
			same(e, "data", string(m.Data), want.tail)
			if _, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")); err != nil {
				e.Error(err)
			}
		}
	}},
}
