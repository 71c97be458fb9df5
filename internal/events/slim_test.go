package events

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestSlimFormsLoseNothing: what is stored in a slim form is read as it was, and shown in the body's own form.
func TestSlimFormsLoseNothing(t *testing.T) {
	m := Meta{ID: "e-1", Source: "/worker/w-1", Time: time.Unix(1, 0).UTC(), Version: 10}
	for seed := range uint64(2_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, b := range []Body{randomFinished(r), randomPlanned(r)} {
			stored, err := Store(b)
			must.OK(t, err)
			_, got, err := (&Envelope{Meta: m, Type: b.EventType()}).Body(stored.Data)
			if d := cmp.Diff(b, got); err != nil || d != "" {
				t.Fatalf("seed %d: %v, -want +got of %s:\n%s", seed, err, stored.Data, d)
			}
			e, err := Encode(m, got)
			must.OK(t, err)
			if want, err := json.Marshal(b); err != nil || string(e.Data()) != string(want) {
				t.Fatalf("seed %d: it is shown as %s, want %s, %v", seed, e.Data(), want, err)
			}
			if _, got, err = Decode(e); err != nil || !cmp.Equal(b, got) {
				t.Fatalf("seed %d: its own form is read as %+v, %v", seed, got, err)
			}
		}
	}
}

func randomFinished(r *rand.Rand) Finished {
	ends := make([]End, 1+r.IntN(3))
	for i := range ends {
		ends[i].Result = randomResult(r)
		if r.IntN(4) == 0 {
			ends[i].Session = &tool.SessionChange{Loads: []string{"x"}}
		}
	}
	f := Finish(ends...)
	if len(f.More) == 0 {
		f.More = nil
	}
	return f
}

// some is one of some values.
func some[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func randomResult(r *rand.Rand) toolyard.Result {
	res := toolyard.Result{
		Index: r.IntN(3), CallID: some(r, "", "c"), Tool: some(r, "", "t"), IsError: r.IntN(2) == 0,
		Code: some(r, "", toolyard.Timeout), Output: some(r, "", "out <&>"), Error: some(r, "", "error"),
		Detail: some(r, "", "detail"), Retryable: r.IntN(2) == 0, RetryAfterMS: some[int64](r, 0, 7),
		Class: some(r, "", toolyard.ReadOnly, toolyard.Unsafe), WasConcurrent: r.IntN(2) == 0,
		DurationMS: some(r, 0, 1.5), ExecuteMS: some(r, 0, 0.001), QueueMS: some(r, 0, 1e-9),
		ApprovalWaitMS: some(r, 0, 12345.678), Attempts: r.IntN(3), Worker: some(r, "", "w"), Truncated: r.IntN(2) == 0,
		Blob: some(r, "", "b"), Isolation: some(r, "", "none"),
		Cache: some(r, "", toolyard.CacheHit),
	}
	switch r.IntN(40) { // what is found is left to the general reader, and must not be in most
	case 0:
		res.Origin = &toolyard.Origin{Source: "x", Found: []toolyard.Finding{{Scanner: "s", Kind: "k", Count: 2}}}
	case 1, 2:
		res.Origin = &toolyard.Origin{Source: "a\"b"}
	case 3, 4:
		res.Origin = &toolyard.Origin{Source: "x:443", Fence: "n"}
	}
	if r.IntN(2) == 0 {
		res.Structured, res.Content = json.RawMessage(`{"a":1}`), []toolyard.Content{{Type: "text", Text: "x"}}
	}
	phases := slices.Clone(toolyard.Phases)
	switch r.IntN(4) {
	case 0:
		return res
	case 1:
		phases = nil
	case 2:
		phases = append(phases[:r.IntN(12)], some(r, phases...), "unknown", some(r, phases...))
	}
	res.Phases = []toolyard.Fact{}
	for _, p := range phases {
		res.Phases = append(res.Phases, toolyard.Fact{
			Phase: p, Outcome: some(r, toolyard.OutcomeOK, toolyard.OutcomeOK, toolyard.OutcomeNoted, ""),
			Code: some(r, "", "", toolyard.Timeout), Detail: some(r, "", "", "detail"),
			MS: some(r, 0, 0.001, 17.25, 1e-7, -1, 1e300, 0.1+0.2),
		})
	}
	return res
}

func randomPlanned(r *rand.Rand) Planned {
	p := Planned{Owner: "d", Surface: "s"}
	if r.IntN(3) == 0 {
		p.Start = &Started{Group: 0, Items: []Item{{0, 1}}}
	}
	for range r.IntN(5) {
		c := PlannedCall{
			ID: some(r, "a", "b"), Tool: some(r, "read", "write"), Pool: "p", Declaration: some(r, "", "d"),
			Judgement:   tool.Judgement{Class: some(r, toolyard.ReadOnly, toolyard.Unsafe)},
			InputSHA256: some(r, "0", "1"),
			TimeoutMS:   some[int64](r, 0, 1),
		}
		if r.IntN(4) == 0 {
			c.Mended = &Mended{Input: json.RawMessage(`{}`), What: "x"}
		}
		p.Calls = append(p.Calls, c)
	}
	return p
}

// TestSlimFormsAreRead: a slim form that contradicts itself is refused.
func TestSlimFormsAreRead(t *testing.T) {
	for _, c := range []struct {
		is   Type
		data string
	}{
		{BatchPlanned, `{"calls":[{"id":"a","kind":1}],"kinds":[{"tool":"t"}]}`},
		{BatchPlanned, `{"calls":[{"id":"a","kind":-1}],"kinds":[{"tool":"t"}]}`},
		{CallFinished, `{"ends":[{"phases":[1,2,3,4,5,6,7,8,9,10,11,12,13]}]}`},
		{CallFinished, `{"ends":[{"phases":["x"]}]}`},
		{CallFinished, `{"ends":[{"phases":[1.5]}]}`},
		{CallFinished, `{"ends":{}}`},
	} {
		if _, b, err := (&Envelope{Type: c.is}).Body([]byte(c.data)); err == nil {
			t.Errorf("%s was read as %+v", c.data, b)
		}
	}
}

// BenchmarkFinished is the end of a small call, stored and read.
func BenchmarkFinished(b *testing.B) {
	res := toolyard.Result{CallID: "c1", Tool: "read_file", Output: "200 bytes", Class: toolyard.ReadOnly, Attempts: 1,
		Worker: "worker-1", DurationMS: 0.5, ExecuteMS: 0.1, QueueMS: 0.7}
	for _, p := range toolyard.Phases {
		res.Phases = append(res.Phases, toolyard.Fact{Phase: p, Outcome: toolyard.OutcomeOK, MS: 0.012})
	}
	b.ReportAllocs()
	var stored Stored
	for b.Loop() {
		var err error
		if stored, err = Store(Finish(End{Result: res})); err == nil {
			_, _, err = (&Envelope{Type: CallFinished}).Body(stored.Data)
		}
		must.OK(b, err)
	}
	b.ReportMetric(float64(len(stored.Data)), "bytes")
}

// TestOwnForms: what is read field by field, the general reader reads alike, also when bytes of it are changed.
func TestOwnForms(t *testing.T) {
	own := map[Type]int{}
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var b Body = randomFinished(r)
		switch r.IntN(4) {
		case 0:
			b = randomSubmitted(r)
		case 3:
			b = randomRequested(r)
		case 1:
			reply := Reply{Completed: r.IntN(2) == 0, Results: []toolyard.Result{}}
			for range r.IntN(3) {
				reply.Results = append(reply.Results, randomResult(r))
			}
			b = reply
		}
		stored, err := Store(b)
		must.OK(t, err)
		for range r.IntN(3) {
			at := r.IntN(len(stored.Data))
			switch r.IntN(3) {
			case 0:
				stored.Data[at] = some(r, []byte("\"\\{}[],:0123456789.-+eEtfn \x00\xff")...)
			case 1:
				stored.Data = slices.Delete(stored.Data, at, min(at+1+r.IntN(9), len(stored.Data)))
			case 2:
				stored.Data = slices.Insert(stored.Data, at, stored.Data[at:min(at+1+r.IntN(9), len(stored.Data))]...)
			}
			if len(stored.Data) == 0 {
				break
			}
		}
		got, ok := readOwn(stored.Type, stored.Data)
		if !ok {
			continue
		}
		own[stored.Type]++
		want, err := readGeneral(stored.Type, stored.Data)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Fatalf("seed %d: %s\n%v, -want +got:\n%s", seed, stored.Data, err, d)
		}
	}
	for _, is := range []Type{BatchSubmitted, CallFinished, Results, CallsRequested} {
		if own[is] < 300 { // enough to compare; what is random has odd values that the general reader reads
			t.Errorf("only %d of type %s were read field by field", own[is], is)
		}
	}
}

// randomSubmitted is seldom one that is left to the general reader.
func randomSubmitted(r *rand.Rand) Submitted {
	s := Submitted{toolyard.Batch{
		ID: some[toolyard.BatchID](r, "", "b", "ü"), Agent: some[toolyard.Agent](r, "", "a"),
		Session: some[toolyard.Session](r, "", "s"), Workspace: some[toolyard.Workspace](r, "", "w"),
		Interactive: r.IntN(2) == 0, Open: r.IntN(2) == 0, Calls: []toolyard.Call{},
	}}
	for range r.IntN(4) {
		call := toolyard.Call{ID: some(r, "", "c", `"<\n>"`), Tool: some(r, "", "t"), Incomplete: r.IntN(3) == 0}
		call.Input = json.RawMessage(some(r, `{}`, `{"a":[1,{"b":"},{]\\\""}]}`, `null`, `"\\"`, `[]`, `-1.5e3`, `true`,
			`{"a":1,"a":2}`))
		if r.IntN(20) == 0 {
			call.Echo = toolyard.Echo(`{"x":1}`)
		}
		s.Calls = append(s.Calls, call)
	}
	if r.IntN(2) == 0 {
		s.Options = toolyard.Options{
			Partition: some(r, "", toolyard.Sequential), MaxConcurrency: r.IntN(3),
			OnError:   some(r, "", toolyard.Continue),
			TimeoutMS: some[int64](r, 0, -1, 1<<40), CallTimeoutMS: some[int64](r, 0, 7), Supersede: r.IntN(2) == 0,
			Repair: r.IntN(2) == 0, DryRun: r.IntN(2) == 0, Snapshot: r.IntN(2) == 0, Overlay: r.IntN(2) == 0,
			Undo:     r.IntN(2) == 0,
			Priority: some(r, "", toolyard.Bulk),
		}
		if r.IntN(20) == 0 {
			s.Options.Deny, s.Options.Tags = []string{"x"}, []toolyard.Tag{"t"}
		}
	}
	return s
}

// randomRequested is seldom one that is left to the general reader.
func randomRequested(r *rand.Rand) Requested {
	at := time.Unix(1_700_000_000, int64(r.IntN(1e9))).UTC()
	req := Requested{
		Agent: some[toolyard.Agent](r, "", "a"), Batch: some[toolyard.BatchID](r, "b", "ü"),
		Session: some[toolyard.Session](r, "", "s"), Workspace: some[toolyard.Workspace](r, "", "w"),
		Interactive: r.IntN(2) == 0, Group: r.IntN(3), Ticket: some[uint64](r, 0, 7, math.MaxUint64),
		Generation: some[uint64](r, 0, 7), WasConcurrent: r.IntN(2) == 0, Item: r.IntN(3),
		Expected: some[uint64](r, 0, 9),
		Calls:    []RequestedCall{}, Width: r.IntN(11), Snapshot: r.IntN(2) == 0, CallTimeoutMS: some[int64](r, 0, 7),
		Fence: r.IntN(2) == 0, MaxAttempts: r.IntN(4), RemainingMS: some[int64](r, 0, -1, 1<<40),
		QueuedAt: some(r, time.Time{}, at, at.In(time.FixedZone("", 3600))), Surface: some(r, "", "0f"),
	}
	for range r.IntN(4) {
		call := RequestedCall{
			Index: r.IntN(9), ID: some(r, "", "c", `"<\n>"`), Tool: some(r, "", "t"), Declaration: some(r, "", "d"),
			Input: json.RawMessage(some(r, `{}`, `{"a":[1,{"b":"},{]\\\""}]}`, `null`, `"\\"`)),
			Judgement: tool.Judgement{Class: some(r, "", toolyard.Unsafe), ReadOnly: r.IntN(2) == 0,
				Destructive: r.IntN(2) == 0, Idempotent: r.IntN(2) == 0, Why: some(r, "", "why")},
			Claim: r.IntN(2) == 0, Attempt: r.IntN(4), Unstarted: r.IntN(3), Again: r.IntN(2) == 0,
			As: some(r, "", "as"), Mended: some(r, "", "m"), Waited: some(r, "", "w"),
		}
		if r.IntN(20) == 0 {
			call.Approved, call.Echo = &Approved{}, toolyard.Echo(`{"x":1}`)
		}
		req.Calls = append(req.Calls, call)
	}
	if r.IntN(20) == 0 {
		req.Deny, req.Tags, req.Context = []string{"x"}, []toolyard.Tag{"t"}, map[string]string{"k": "v"}
	}
	return req
}

// TestOwnWriter: what is written field by field is what encoding/json writes.
func TestOwnWriter(t *testing.T) {
	own := 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 2))
		plain := func() toolyard.Result {
			res := randomResult(r)
			res.Output = some(r, "", "out", "a \"b\" <&> \u2028", "\x00\x1f\x7fü\xff", "\\")
			if r.IntN(4) > 0 {
				res.Structured, res.Content = nil, nil
			}
			return res
		}
		finished := randomFinished(r)
		for e := range finished.Ends() {
			e.Result = plain()
		}
		reply := Reply{Completed: r.IntN(2) == 0, Results: []toolyard.Result{}}
		for range r.IntN(3) {
			reply.Results = append(reply.Results, plain())
		}
		if r.IntN(20) == 0 {
			reply.Notice = &toolyard.Notice{Reason: "x"}
		}
		slim, _ := finished.slim()
		for _, c := range []struct {
			b    Body
			form any
		}{{finished, slim}, {reply, reply}, {Reply{}, Reply{}}} {
			got, ok := writeOwn(c.b)
			if !ok {
				continue
			}
			own++
			want, err := json.Marshal(c.form)
			if err != nil || string(got) != string(want) {
				t.Fatalf("seed %d, %v:\n got %s\nwant %s", seed, err, got, want)
			}
		}
	}
	if own < 2_000 {
		t.Errorf("only %d were written field by field", own)
	}
}
