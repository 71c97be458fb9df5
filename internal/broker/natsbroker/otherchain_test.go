package natsbroker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// pointer are the headers of a message that the server stores only if the last message of another subject has a
// sequence. Who walks the message's chain takes that one for the message before it.
func pointer(to string, seq uint64) nats.Header {
	return nats.Header{"Nats-Expected-Last-Subject-Sequence": {fmt.Sprint(seq)},
		"Nats-Expected-Last-Subject-Sequence-Subject": {to}}
}

// askedFor is what a dispatcher answers to who asks for the last message of a subject.
func askedFor(t *testing.T, nc *nats.Conn, stream, subject string) *nats.Msg {
	t.Helper()
	return answerTo(t, nc, "read", stream, subject)
}

func answerTo(t *testing.T, nc *nats.Conn, operation, stream, subject string) *nats.Msg {
	t.Helper()
	q := nats.NewMsg("ty.ask." + operation)
	what := must.JSON(t, map[string]string{"stream": stream, "subject": subject})
	q.Header.Set("Toolyard-Stored", string(what))
	a, err := nc.RequestMsg(q, 20*time.Second)
	must.OK(t, err)
	return a
}

// TestAFenceLeadsToNoOtherChain: an agent, and a worker, with accounts of their own put fences on chains where they may
// write, behind messages of others, and ask for what stands there. They read nothing of the others.
func TestAFenceLeadsToNoOtherChain(t *testing.T) {
	t.Parallel()
	y, s := guardedArchiveYard(t)
	const secret = "the secret of another agent"
	sub := toolyard.Batch{Agent: "a.b", Calls: []toolyard.Call{{ID: "0", Tool: "x",
		Input: json.RawMessage(`{"v":"` + secret + `"}`)}}}
	sub.Normalize("victim")
	must.OK(t, y.b.Submit(t.Context(), sub))
	k := sub.Key()
	result := results(0)[0]
	result.Output = secret
	finished := y.append(k, batch.ChainItem, 0, 0, events.Finish(events.End{Result: result}))
	submitted := y.place(k)
	eve := access.Principal{Role: access.Agent, Name: "eve"}
	mallory := access.Principal{Role: access.Worker, Name: "mallory"}
	submission, item := "ty.batch."+broker.KeyTokens(k), "ty.event."+broker.KeyTokens(k)+".p.0"
	for name, c := range map[string]struct {
		who             access.Principal
		stream, own, to string
		seq             uint64
	}{
		"an agent, behind a submission": {eve, "TY_BATCH", "ty.batch.eve.x", submission, submitted},
		"an agent, behind a result":     {eve, "TY_EVENT", "ty.event.eve.x._.control", item, finished},
		"a worker, behind a result of another pool": {mallory, "TY_EVENT", "ty.event.eve.x.mallory.0", item,
			finished},
	} {
		t.Run(name, func(t *testing.T) {
			nc := testenv.ConnAs(t, s, c.who)
			forged(t, nc, c.own, events.Ended{}, pointer(c.to, c.seq))
			a := askedFor(t, nc, c.stream, c.own)
			if strings.Contains(string(a.Data), secret) || strings.Contains(fmt.Sprint(a.Header), "victim") {
				t.Errorf("%s has read %v %s", c.who, a.Header, a.Data)
			}
		})
	}
}

// TestAWorkerPutsNoOthersEventsIntoItsChain: a worker with an account of its own writes behind an event of another
// batch. Nobody reads that event as one of the worker's call.
func TestAWorkerPutsNoOthersEventsIntoItsChain(t *testing.T) {
	t.Parallel()
	y, s := guardedArchiveYard(t)
	other, own := y.submit("other"), y.submit("own")
	result := results(0)[0]
	result.Output = "what the other batch's call has returned"
	finished := y.append(other.Key(), batch.ChainItem, 0, 0, events.Finish(events.End{Result: result}))
	w := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "mallory"})
	k := own.Key()
	forged(t, w, "ty.event."+broker.KeyTokens(k)+".mallory.0", events.Claimed{Worker: "mallory.w", Attempt: 1},
		pointer("ty.event."+broker.KeyTokens(other.Key())+".p.0", finished))
	records, err := y.b.Item(t.Context(), k, "mallory", 0, 0)
	if _, unreadable := errors.AsType[*events.UnreadableError](err); !unreadable {
		t.Errorf("the chain has %v, %v; want that it cannot be read", records, err)
	}
}

// TestAFenceOfAnAgentHidesNoCancel: a fence that an agent puts behind an operator's cancel, whatever it says that it
// stands behind, keeps nobody from reading the cancel.
func TestAFenceOfAnAgentHidesNoCancel(t *testing.T) {
	t.Parallel()
	y, s := guardedArchiveYard(t)
	eve := testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: "eve"})
	canceled := func(id string) (toolyard.BatchKey, uint64) {
		k := toolyard.BatchKey{Agent: "eve", ID: toolyard.BatchID(id)}
		return k, y.append(k, batch.ChainControl, 0, 0, events.Canceled{By: "/operator"})
	}
	_, first := canceled("first")
	for name, behind := range map[string]nats.Header{
		"silent":    nil,
		"no-number": {"Nats-Expected-Last-Subject-Sequence": {"x"}},
		"none":      pointer("ty.event.eve.nobody._.control", 0),
		"another":   pointer("ty.event.eve.first._.control", first),
	} {
		t.Run(name, func(t *testing.T) {
			k, seq := canceled(name)
			forged(t, eve, "ty.event.eve."+name+"._.control", events.Ended{}, behind)
			read := batch.State{Key: k}
			if err := y.b.CatchUp(t.Context(), &read, batch.ChainControl, 0); err != nil || read.ControlSeq != seq {
				t.Errorf("the end that is read is %d, %v; want the cancel, %d", read.ControlSeq, err, seq)
			}
		})
	}
}

// TestAWorkerCountsItsOwnItems: a worker with an account of its own is told how many events there are of its pool's
// items, and of nothing else: also where an agent has the name of its pool.
func TestAWorkerCountsItsOwnItems(t *testing.T) {
	t.Parallel()
	y, s := guardedArchiveYard(t)
	sub := toolyard.Batch{Agent: "p", Calls: []toolyard.Call{{ID: "0", Tool: "x"}}}
	sub.Normalize("b")
	must.OK(t, y.b.Submit(t.Context(), sub))
	y.append(sub.Key(), batch.ChainItem, 0, 0, events.Finish(events.End{Result: results(0)[0]}))
	who := access.Principal{Role: access.Worker, Name: "p"}
	if err := testenv.BrokerAs(t, s, who, "/worker/p.w").ItemLost(t.Context(), sub.Key(), "p", 0); err != nil {
		t.Error(err)
	}
	nc := testenv.ConnAs(t, s, who)
	if a := answerTo(t, nc, "count", "TY_EVENT", "ty.event.p.b.p.0"); string(a.Data) != `{"ty.event.p.b.p.0":1}` {
		t.Errorf("of its own item it is told %v %s", a.Header, a.Data)
	}
	for _, other := range []string{"ty.event.p.b.q.0", "ty.event.p.b._.batch", "ty.event.p.b.>"} {
		if a := answerTo(t, nc, "count", "TY_EVENT", other); a.Header.Get("Toolyard-Code") != "403" {
			t.Errorf("of %s it is told %v %s", other, a.Header, a.Data)
		}
	}
}
