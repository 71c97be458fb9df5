package brokertest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// readCases are about what is read, and taken out, of a stream.
var readCases = []Case{
	{"ReadThroughTheLeader", func(e *Env) {
		s := e.stream(nil)
		first := e.put("x.a", jetstream.WithMsgID("id"))
		e.put("y")
		last := e.put("x.b")
		m, err := s.GetMsg(e.ctx, first)
		e.must(err)
		same(e, "subject", m.Subject, e.subject("x.a"))
		same(e, "header", m.Header.Get("Nats-Msg-Id"), "id")
		same(e, "data", string(m.Data), "x.a")
		m, err = s.GetMsg(e.ctx, first+1, jetstream.WithGetMsgSubject(e.subject("x.>")))
		e.must(err)
		same(e, "next on a subject", m.Sequence, last)
		m, err = s.GetLastMsgForSubject(e.ctx, e.subject("x.*"))
		e.must(err)
		same(e, "last on a filter", m.Sequence, last)
		_, err = s.GetMsg(e.ctx, last+1)
		same(e, "error", errors.Is(err, jetstream.ErrMsgNotFound), true)
		_, err = s.GetLastMsgForSubject(e.ctx, e.subject("none"))
		same(e, "error", errors.Is(err, jetstream.ErrMsgNotFound), true)
	}},
	{"DirectReads", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) { c.AllowDirect = true })
		for i := range 5 {
			e.put(fmt.Sprint("x.", i%2))
		}
		e.until("every replica has all", func() bool {
			m, err := s.GetLastMsgForSubject(e.ctx, e.subject("x.0"))
			return err == nil && m.Sequence == 5
		})
		m, err := s.GetMsg(e.ctx, 2)
		e.must(err)
		same(e, "subject", m.Subject, e.subject("x.1"))
		m, err = s.GetMsg(e.ctx, 2, jetstream.WithGetMsgSubject(e.subject("x.0")))
		e.must(err)
		same(e, "next on a subject", m.Sequence, 3)
		_, err = s.GetMsg(e.ctx, 99)
		same(e, "error", errors.Is(err, jetstream.ErrMsgNotFound), true)

		sub := e.direct(`{"seq":2,"next_by_subj":"` + e.subject("x.>") + `","batch":2}`)
		for _, want := range []struct{ seq, left, before string }{{"2", "3", "0"}, {"3", "2", "2"}} {
			m := e.next(sub)
			same(e, "sequence", m.Header.Get("Nats-Sequence"), want.seq)
			same(e, "left", m.Header.Get("Nats-Num-Pending"), want.left)
			same(e, "before", m.Header.Get("Nats-Last-Sequence"), want.before)
		}
		same(e, "left", e.status(sub, "204", "EOB").Header.Get("Nats-Num-Pending"), "2")

		sub = e.direct(`{"multi_last":["` + e.subject("x.>") + `"]}`)
		same(e, "the last of one", e.next(sub).Header.Get("Nats-Sequence"), "4")
		same(e, "the last of the other", e.next(sub).Header.Get("Nats-Sequence"), "5")
		same(e, "up to", e.status(sub, "204", "EOB").Header.Get("Nats-UpTo-Sequence"), "5")
		e.status(e.direct(`{"multi_last":["none"]}`), "404", "No Results")
		e.status(e.direct(`{}`), "408", "Empty Request")
	}},
	{"NoDirectReadsWithoutPermission", func(e *Env) {
		e.stream(nil)
		_, err := e.NC.RequestWithContext(e.ctx, "$JS.API.DIRECT.GET."+e.Name, []byte(`{"seq":1}`))
		same(e, "error", err, error(nats.ErrNoResponders))
	}},
	{"HowManyStandOnEachSubject", func(e *Env) {
		s := e.stream(nil)
		for _, tail := range []string{"x.a", "x.b", "x.a", "y"} {
			e.put(tail)
		}
		info, err := s.Info(e.ctx, jetstream.WithSubjectFilter(e.subject("x.>")))
		e.must(err)
		same(e, "subjects", len(info.State.Subjects), 2)
		same(e, "on one", info.State.Subjects[e.subject("x.a")], 2)
		info, err = s.Info(e.ctx, jetstream.WithSubjectFilter(e.subject("none")))
		e.must(err)
		same(e, "subjects", len(info.State.Subjects), 0)
	}},
	{"APurgeUpToASequence", func(e *Env) {
		s := e.stream(nil)
		e.put("a")
		e.put("b")
		last := e.put("a")
		e.must(s.Purge(e.ctx, jetstream.WithPurgeSubject(e.subject("a")), jetstream.WithPurgeSequence(last)))
		st := e.state(s)
		same(e, "messages", st.Msgs, 2)
		same(e, "first", st.FirstSeq, 2)
		e.must(s.Purge(e.ctx, jetstream.WithPurgeSubject(e.subject("a")), jetstream.WithPurgeSequence(last)))
		same(e, "messages", e.state(s).Msgs, 2)
	}},
	{"APurgeOfManySubjectsUpToASequence", func(e *Env) {
		s := e.stream(nil)
		first := e.put("x.a", behind(0))
		e.put("y.a")
		b := e.put("x.b", behind(0))
		fence := e.put("x.a", behind(first))
		late := e.put("x.b", behind(b))
		e.must(s.Purge(e.ctx, jetstream.WithPurgeSubject(e.subject("x.>")), jetstream.WithPurgeSequence(fence)))
		same(e, "messages", e.state(s).Msgs, 3)
		for subject, end := range map[string]uint64{"x.a": fence, "x.b": late} { // each chain still has its end
			_, err := e.putOdd(subject, behind(0))
			e.refused(err, 10071, "wrong last sequence: "+strconv.FormatUint(end, 10))
		}
	}},
	{"APurgeThatKeeps", func(e *Env) {
		s := e.stream(nil)
		for range 3 {
			e.put("a")
		}
		e.put("b")
		e.must(s.Purge(e.ctx, jetstream.WithPurgeSubject(e.subject("a")), jetstream.WithPurgeKeep(1)))
		st := e.state(s)
		same(e, "messages", st.Msgs, 2)
		same(e, "first", st.FirstSeq, 3)
	}},
	{"AnEmptyStreamGoesOnBehindWhatItHad", func(e *Env) {
		s := e.stream(nil)
		st := e.state(s)
		same(e, "first", st.FirstSeq, 0)
		e.put("a")
		e.must(s.Purge(e.ctx))
		st = e.state(s)
		same(e, "first", st.FirstSeq, 2)
		same(e, "last", st.LastSeq, 1)
		same(e, "sequence", e.put("a"), 2)
	}},
	{"ADeletedMessage", func(e *Env) {
		s := e.stream(nil)
		seq := e.put("a")
		e.must(s.DeleteMsg(e.ctx, seq))
		err := s.DeleteMsg(e.ctx, seq)
		same(e, "again", errors.Is(err, jetstream.ErrMsgNotFound) ||
			errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful), true)
	}},
	{"DeletionsMayBeDenied", func(e *Env) {
		s := e.stream(func(c *jetstream.StreamConfig) { c.DenyDelete, c.DenyPurge = true, true })
		err := s.DeleteMsg(e.ctx, e.put("a"))
		same(e, "error", errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful), true)
		e.refused(s.Purge(e.ctx), 10110, "stream purge not permitted")
	}},
	{"MakingAStreamAgain", func(e *Env) {
		s := e.stream(nil)
		e.stream2(s.CachedInfo().Config)
		other := s.CachedInfo().Config
		other.MaxMsgs = 7
		_, err := e.JS.CreateStream(e.ctx, other)
		e.refused(err, 10058, "stream name already in use")
		other.Name = e.Name + "X"
		_, err = e.JS.CreateStream(e.ctx, other)
		e.refused(err, 10065, "subjects overlap with an existing stream")
	}},
	{"AStreamThatIsChanged", func(e *Env) {
		s := e.stream(nil)
		for range 3 {
			e.put("a")
		}
		cfg := s.CachedInfo().Config
		cfg.MaxMsgs = 1
		changed, err := e.JS.UpdateStream(e.ctx, cfg)
		e.must(err)
		same(e, "limit", changed.CachedInfo().Config.MaxMsgs, 1)
		e.until("the limit holds", func() bool { return e.state(s).Msgs == 1 })
		cfg.Retention = jetstream.WorkQueuePolicy
		_, err = e.JS.UpdateStream(e.ctx, cfg)
		e.refused(err, 10052, "retention policy")
	}},
	{"StreamsByName", func(e *Env) {
		e.stream(nil)
		name, err := e.JS.StreamNameBySubject(e.ctx, e.subject("x"))
		e.must(err)
		same(e, "name", name, e.Name)
		var names []string
		for n := range e.JS.StreamNames(e.ctx).Name() {
			names = append(names, n)
		}
		same(e, "is listed", slices.Contains(names, e.Name), true)
	}},
}

// stream2 makes a stream that is there.
func (e *Env) stream2(cfg jetstream.StreamConfig) {
	e.Helper()
	_, err := e.JS.CreateStream(e.ctx, cfg)
	e.must(err)
}

// direct makes a direct get, and returns where answers come.
func (e *Env) direct(request string) *nats.Subscription {
	e.Helper()
	inbox := e.NC.NewInbox()
	sub, err := e.NC.SubscribeSync(inbox)
	e.must(err)
	e.must(e.NC.PublishRequest("$JS.API.DIRECT.GET."+e.Name, inbox, []byte(request)))
	return sub
}
