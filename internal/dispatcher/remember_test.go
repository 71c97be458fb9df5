package dispatcher

import (
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestAFormerOwnerRemembersNothing: an owner stands still before it writes what its batch has set in the session. The
// next owner does it, and a later batch sets something else there, which stays.
func TestAFormerOwnerRemembersNothing(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("former")
		k := y.submit("write")
		d := y.take(toolyard.WriteExclusive)
		y.Eventually("the plan is known", func() bool { return y.fold(k).Plan != nil })
		time.Sleep(time.Second)
		held := 0
		y.Server.Hold(func(st membroker.Step) bool {
			is := st.Party == "former" && st.Kind == membroker.Operation && strings.Contains(st.What, "ty_session")
			if is {
				held++
			}
			return is
		})
		c := d.Calls[0]
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, d.Item, d.Expected,
			events.Finish(events.End{Result: toolyard.Result{CallID: c.ID, Tool: c.Tool, Output: "done", Worker: "w"},
				Session: &tool.SessionChange{Context: map[string]string{"key": "first"}}})); err != nil {
			y.Fatal(err)
		}
		must.OK(y.T, d.Done())
		y.dispatcher("next")
		if got := y.codes(k); got != "ok" || held == 0 {
			y.Fatalf("the results are %s, and %d requests are held", got, held)
		}
		session := func(change func(*broker.Session)) string {
			s, err := y.b.ChangeSession(y.Context(), k.Agent, toolyard.DefaultSession, change)
			must.OK(y.T, err)
			return s.Context["key"]
		}
		if got := session(func(*broker.Session) {}); got != "first" {
			y.Fatalf("the next owner remembers %q", got)
		}
		session(func(s *broker.Session) { s.Set(map[string]string{"key": "second"}) }) // by a later batch
		y.Server.Hold(nil)
		time.Sleep(time.Minute)
		if got := session(func(*broker.Session) {}); got != "second" {
			y.Errorf("the session has %q", got)
		}
	})
}

// TestASessionWithoutRoom: while the store has no room for the session, a batch that has set something there waits, and
// what it has set is not lost.
func TestASessionWithoutRoom(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submit("write")
		d := y.take(toolyard.WriteExclusive)
		y.Server.Fill("KV_ty_session", true)
		c := d.Calls[0]
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, d.Item, d.Expected,
			events.Finish(events.End{Result: toolyard.Result{CallID: c.ID, Tool: c.Tool, Output: "done", Worker: "w"},
				Session: &tool.SessionChange{Context: map[string]string{"key": "set"}}})); err != nil {
			y.Fatal(err)
		}
		must.OK(y.T, d.Done())
		time.Sleep(time.Minute)
		if y.fold(k).Completed {
			y.Error("the batch is complete before its session has what it has set")
		}
		y.Server.Fill("KV_ty_session", false)
		if got := y.codes(k); got != "ok" {
			y.Errorf("the results are %s", got)
		}
		s, err := y.b.Session(y.Context(), k.Agent, toolyard.DefaultSession)
		if err != nil || s.Context["key"] != "set" {
			y.Errorf("the session has %v, %v", s.Context, err)
		}
	})
}
