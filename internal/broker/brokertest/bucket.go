package brokertest

import (
	"bytes"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bucket makes a key-value bucket.
func (e *Env) bucket(with func(*jetstream.KeyValueConfig)) jetstream.KeyValue {
	e.Helper()
	cfg := jetstream.KeyValueConfig{Bucket: e.Name, Replicas: e.Replicas}
	if with != nil {
		with(&cfg)
	}
	kv, err := e.JS.CreateKeyValue(e.ctx, cfg)
	e.must(err)
	return kv
}

// bucketCases are about buckets, objects, and what has no stream.
var bucketCases = []Case{
	{"KeysAreComparedAndSet", func(e *Env) {
		kv := e.bucket(nil)
		rev, err := kv.Create(e.ctx, "k", []byte("1"))
		e.must(err)
		_, err = kv.Create(e.ctx, "k", []byte("2"))
		same(e, "a second create", errors.Is(err, jetstream.ErrKeyExists), true)
		next, err := kv.Update(e.ctx, "k", []byte("2"), rev)
		e.must(err)
		_, err = kv.Update(e.ctx, "k", []byte("3"), rev)
		e.refused(err, 10071, "wrong last sequence")
		e.must(kv.Delete(e.ctx, "k", jetstream.LastRevision(next)))
		_, err = kv.Get(e.ctx, "k")
		same(e, "a deleted key", errors.Is(err, jetstream.ErrKeyNotFound), true)
		_, err = kv.Create(e.ctx, "k", []byte("4")) // behind the mark
		e.must(err)
		e.must(kv.Purge(e.ctx, "k"))
		_, err = kv.Create(e.ctx, "k", []byte("5"))
		e.must(err)
	}},
	{"AWatchTellsWhatIsThereAndWhatComes", func(e *Env) {
		kv := e.bucket(nil)
		for _, k := range []string{"a", "b"} {
			_, err := kv.Put(e.ctx, k, []byte(k))
			e.must(err)
		}
		e.must(kv.Delete(e.ctx, "b"))
		w, err := kv.WatchAll(e.ctx)
		e.must(err)
		saw := func(key string, op jetstream.KeyValueOp) {
			e.Helper()
			select {
			case got := <-w.Updates():
				if got == nil {
					same(e, "key", "", key)
					return
				}
				same(e, "key", got.Key(), key)
				same(e, "operation", got.Operation(), op)
			case <-e.ctx.Done():
				e.Fatalf("nothing is told of %q", key)
			}
		}
		saw("a", jetstream.KeyValuePut)
		saw("b", jetstream.KeyValueDelete)
		saw("", 0) // that was all
		_, err = kv.Put(e.ctx, "c", nil)
		e.must(err)
		saw("c", jetstream.KeyValuePut)
		e.must(kv.Purge(e.ctx, "a"))
		saw("a", jetstream.KeyValuePurge)
		e.must(w.Stop())
	}},
	{"AWatchOfAnEmptyBucketIsCaughtUp", func(e *Env) {
		w, err := e.bucket(nil).Watch(e.ctx, "x.>")
		e.must(err)
		select {
		case got := <-w.Updates():
			same(e, "is nothing", got == nil, true)
		case <-e.ctx.Done():
			e.Error("the watch does not catch up")
		}
		e.must(w.Stop())
	}},
	{"AKeyWithATTL", func(e *Env) {
		kv := e.bucket(func(c *jetstream.KeyValueConfig) { c.LimitMarkerTTL = time.Second })
		w, err := kv.WatchAll(e.ctx, jetstream.UpdatesOnly())
		e.must(err)
		_, err = kv.Create(e.ctx, "k", []byte("1"), jetstream.KeyTTL(time.Second))
		e.must(err)
		same(e, "operation", (<-w.Updates()).Operation(), jetstream.KeyValuePut)
		select {
		case got := <-w.Updates():
			same(e, "operation", got.Operation(), jetstream.KeyValuePurge)
		case <-e.ctx.Done():
			e.Error("nothing is told of the expiry")
		}
		_, err = kv.Get(e.ctx, "k")
		same(e, "error", errors.Is(err, jetstream.ErrKeyNotFound), true)
		e.must(w.Stop())
	}},
	{"ABucketIsAStream", func(e *Env) {
		e.bucket(nil)
		s, err := e.JS.Stream(e.ctx, "KV_"+e.Name)
		e.must(err)
		cfg := s.CachedInfo().Config
		same(e, "rollup", cfg.AllowRollup, true)
		same(e, "deny delete", cfg.DenyDelete, true)
		same(e, "direct", cfg.AllowDirect, true)
		same(e, "history", cfg.MaxMsgsPerSubject, 1)
		same(e, "discard", cfg.Discard, jetstream.DiscardNew)
		same(e, "window", cfg.Duplicates, 2*time.Minute)
		_, err = e.JS.KeyValue(e.ctx, e.Name+"X")
		same(e, "error", errors.Is(err, jetstream.ErrBucketNotFound), true)
	}},
	{"Objects", func(e *Env) {
		o, err := e.JS.CreateObjectStore(e.ctx, jetstream.ObjectStoreConfig{Bucket: e.Name, Replicas: e.Replicas})
		e.must(err)
		content := bytes.Repeat([]byte("0123456789"), 40_000) // several chunks
		_, err = o.PutBytes(e.ctx, "x", content)
		e.must(err)
		got, err := o.GetBytes(e.ctx, "x")
		e.must(err)
		same(e, "content", bytes.Equal(got, content), true)
		_, err = o.GetInfo(e.ctx, "y")
		same(e, "error", errors.Is(err, jetstream.ErrObjectNotFound), true)
		e.must(o.Delete(e.ctx, "x"))
		_, err = o.GetBytes(e.ctx, "x")
		same(e, "error", errors.Is(err, jetstream.ErrObjectNotFound), true)
	}},
	{"OneOfAGroupIsAsked", func(e *Env) {
		answers := make(chan string, 10)
		for _, party := range []string{"two", "three"} {
			nc := e.Connect(e.T, party)
			_, err := nc.QueueSubscribe(e.subject("ask"), "group", func(m *nats.Msg) {
				answers <- party
				_ = m.Respond([]byte(party))
			})
			e.must(err)
			e.must(nc.Flush())
		}
		e.until("the server knows of them", func() bool {
			_, err := e.NC.RequestWithContext(e.ctx, e.subject("ask"), nil)
			return err == nil
		})
		for len(answers) > 0 {
			<-answers
		}
		m, err := e.NC.RequestWithContext(e.ctx, e.subject("ask"), nil)
		e.must(err)
		same(e, "who", string(m.Data), <-answers)
		same(e, "others", len(answers), 0)
	}},
	{"WhatIsUnsubscribedIsNotHeard", func(e *Env) {
		sub, err := e.NC.SubscribeSync(e.subject("*"))
		e.must(err)
		e.must(sub.AutoUnsubscribe(2))
		for range 3 {
			e.must(e.NC.Publish(e.subject("a"), nil))
		}
		e.next(sub)
		e.next(sub)
		_, err = sub.NextMsg(time.Second)
		same(e, "error", errors.Is(err, nats.ErrMaxMessages) || errors.Is(err, nats.ErrBadSubscription), true)
	}},
	{"AMessageThatIsTooLongForTheServer", func(e *Env) {
		err := e.NC.Publish(e.subject("a"), make([]byte, e.NC.MaxPayload()+1))
		same(e, "error", errors.Is(err, nats.ErrMaxPayload), true)
	}},
	{"WhatOneSendsComesInItsOrder", func(e *Env) {
		other := e.Connect(e.T, "two")
		sub, err := other.SubscribeSync(e.subject(">"))
		e.must(err)
		e.must(other.Flush())
		e.until("the server knows of it", func() bool { // also another server of the cluster
			e.must(e.NC.Publish(e.subject("try"), nil))
			_, err := sub.NextMsg(100 * time.Millisecond)
			return err == nil
		})
		const many = 100
		for i := range many {
			e.must(e.NC.Publish(e.subject("n"), []byte{byte(i)}))
		}
		for want := 0; want < many; {
			if m := e.next(sub); m.Subject == e.subject("n") {
				same(e, "number", int(m.Data[0]), want)
				want++
			}
		}
	}},
}
