package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// few makes questions of few values, so that equal ones come often, and of values that run into each other where
// nothing stands between them.
func few(r *rand.Rand) Question {
	text := func() string { return []string{"", "a", "aa", "b"}[r.IntN(4)] }
	list := func() (out []string) {
		for range r.IntN(3) {
			out = append(out, text())
		}
		return out
	}
	q := Question{Declaration: text(), Input: text(), Workspace: toolyard.Workspace(text()),
		Agent: toolyard.Agent(text()), Scope: []tool.CacheScope{"", tool.CacheAgent, tool.CacheWorkspace}[r.IntN(3)],
		Turn: Turn{Generation: uint64(r.IntN(3)), Deny: list(), Ask: list()}}
	for range r.IntN(3) {
		if q.Context == nil {
			q.Context = map[string]string{}
		}
		q.Context[text()] = text()
	}
	return q
}

// same says it without a key: all is equal, but for the agent where the scope is the workspace.
func same(a, b Question) bool {
	if a.Scope == tool.CacheWorkspace && b.Scope == tool.CacheWorkspace {
		a.Agent, b.Agent = "", ""
	}
	lists := func(q *Question) string {
		text, err := json.Marshal([]any{len(q.Deny), q.Deny, len(q.Ask), q.Ask})
		if err != nil {
			panic(err)
		}
		return strings.ReplaceAll(string(text), "null", "[]")
	}
	inLists := lists(&a) == lists(&b) && maps.Equal(a.Context, b.Context)
	a.Deny, a.Ask, a.Context, b.Deny, b.Ask, b.Context = nil, nil, nil, nil, nil, nil
	return inLists && reflect.DeepEqual(a, b)
}

// TestKeys: two questions have the same key exactly if they are the same, also where each differs from the other in one
// place only.
func TestKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	equal := 0
	for range 20_000 {
		a := few(r)
		b := a
		from := reflect.ValueOf(few(r))
		if at := r.IntN(from.NumField() + 1); at < from.NumField() { // one field of another one
			reflect.ValueOf(&b).Elem().Field(at).Set(from.Field(at))
		}
		if same(a, b) {
			equal++
		}
		if (a.Key() == b.Key()) != same(a, b) {
			t.Fatalf("%+v and %+v: the same key is %t", a, b, a.Key() == b.Key())
		}
	}
	if equal < 1_000 || equal > 19_000 {
		t.Errorf("%d of 20,000 pairs are equal: that shows little", equal)
	}
}

// FuzzKey: whatever texts a question has, moving a part of one to its neighbour gives another key.
func FuzzKey(f *testing.F) {
	f.Add("decl", "input", "ws", "agent", "deny", "ask", uint64(7))
	f.Add("", "a", "", "a", "\x00", "", uint64(0))
	f.Fuzz(func(t *testing.T, declaration, input, ws, agent, deny, ask string, generation uint64) {
		q := Question{Declaration: declaration, Input: input, Workspace: toolyard.Workspace(ws),
			Agent: toolyard.Agent(agent), Turn: Turn{Generation: generation, Deny: []string{deny}, Ask: []string{ask}}}
		key := q.Key()
		if again := q; again.Key() != key {
			t.Fatal("a key is not the same twice")
		}
		for what, other := range map[string]func(*Question){
			"generation":  func(q *Question) { q.Generation++ },
			"agent":       func(q *Question) { q.Agent += "x" },
			"workspace":   func(q *Question) { q.Workspace = "x" + q.Workspace },
			"declaration": func(q *Question) { q.Declaration += "x" },
			"rules":       func(q *Question) { q.Deny, q.Ask = nil, []string{deny, ask} },
			"split":       func(q *Question) { q.Deny = []string{deny, ""} },
			"scope":       func(q *Question) { q.Scope = tool.CacheWorkspace },
			"context":     func(q *Question) { q.Context = map[string]string{"": ""} },
			"moved": func(q *Question) {
				if q.Input == "" {
					q.Input = "x"
					return
				}
				q.Declaration, q.Input = q.Declaration+q.Input[:1], q.Input[1:]
			},
		} {
			changed := q
			if other(&changed); changed.Key() == key {
				t.Errorf("%s: another question has the same key", what)
			}
		}
	})
}

func cached() tool.Declaration {
	return tool.Declaration{Name: "read", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
		Cache: &tool.Cache{TTLMS: 1000}}
}

// TestRefuses: all that stands against it is said, and nothing else does.
func TestRefuses(t *testing.T) {
	no, yes := false, true
	for want, change := range map[string]func(*tool.Declaration, *tool.Judgement, *uint64){
		"":                  func(*tool.Declaration, *tool.Judgement, *uint64) {},
		"declares no cache": func(d *tool.Declaration, _ *tool.Judgement, _ *uint64) { d.Cache = nil },
		"does not use the workspace": func(d *tool.Declaration, _ *tool.Judgement, _ *uint64) {
			d.UsesWorkspace = &no
		},
		"is UNSAFE": func(_ *tool.Declaration, j *tool.Judgement, _ *uint64) { j.Class = toolyard.Unsafe },
		"is WRITE_EXCLUSIVE": func(_ *tool.Declaration, j *tool.Judgement, _ *uint64) {
			j.Class = toolyard.WriteExclusive
		},
		"may change something": func(_ *tool.Declaration, j *tool.Judgement, _ *uint64) { j.ReadOnly = false },
		"may not run twice":    func(_ *tool.Declaration, j *tool.Judgement, _ *uint64) { j.Idempotent = false },
		"since when":           func(_ *tool.Declaration, _ *tool.Judgement, g *uint64) { *g = 0 },
	} {
		d, generation := cached(), uint64(5)
		j, _ := d.StaticJudgement()
		change(&d, &j, &generation)
		if why := Refuses(&d, j, generation); !strings.Contains(why, want) || (want == "") != (why == "") {
			t.Errorf("%q, want %q", why, want)
		}
	}
	d := cached()
	d.Destructive = &yes
	j, _ := d.StaticJudgement()
	if Refuses(&d, j, 1) == "" {
		t.Error("a destructive read is cached")
	}
}

// TestKeeps: what is not kept.
func TestKeeps(t *testing.T) {
	d := cached()
	for what, out := range map[string]tool.Output{
		"session": {Session: &tool.SessionChange{}},
		"long":    {Text: strings.Repeat("x", MaxEntryBytes)},
		"a part":  {Content: []toolyard.Content{{Data: make([]byte, MaxEntryBytes)}}},
	} {
		if Keeps(&d, &out) == "" {
			t.Errorf("%s: it is kept", what)
		}
	}
	if why := Keeps(&d, &tool.Output{Text: "x"}); why != "" {
		t.Error(why)
	}
	d.Cache.TTLMS = 0
	if Keeps(&d, &tool.Output{}) == "" {
		t.Error("it is kept for no time")
	}
}

// TestEntries plays random requests beside a list that keeps everything: what is answered was put last under that key,
// by the same code, and not longer ago than its TTL; and nothing is missing that is still good.
func TestEntries(t *testing.T) {
	codes := []*tool.Tool{{}, {}}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var e Entries
		last := map[Key]Entry{}
		now := time.Unix(1, 0)
		hits := 0
		for range 300 {
			now = now.Add(time.Duration(r.IntN(50)) * time.Millisecond)
			k := Key{byte(r.IntN(6))}
			code := codes[r.IntN(2)]
			if r.IntN(2) == 0 {
				entry := Entry{Output: tool.Output{Text: fmt.Sprint(r.Uint64())}, Began: now.Add(-5 * time.Millisecond),
					TTL: time.Duration(r.IntN(400)) * time.Millisecond, Code: code}
				if e.Put(k, entry, now) {
					last[k] = entry
				} else if entry.TTL > 5*time.Millisecond {
					t.Fatalf("seed %d: a good entry is not kept", seed)
				}
				continue
			}
			got, ok := e.Get(k, code, now)
			want, known := last[k]
			good := known && want.Code == code && now.Sub(want.Began) < want.TTL
			if ok != good || ok && got.Output.Text != want.Output.Text {
				t.Fatalf("seed %d: it answers %t, want %t", seed, ok, good)
			}
			if ok {
				hits++
			} else {
				delete(last, k) // it is dropped
			}
		}
		if hits == 0 {
			t.Fatalf("seed %d shows nothing", seed)
		}
	}
}

// TestBounds: neither number nor bytes grow past the limits, and what was asked for last stays.
func TestBounds(t *testing.T) {
	now := time.Unix(1, 0)
	key := func(n int) (k Key) { copy(k[:], fmt.Sprint(n)); return k }
	for what, text := range map[string]string{"short": "x", "long": strings.Repeat("x", MaxEntryBytes-64)} {
		var e Entries
		entry := Entry{Output: tool.Output{Text: text}, Began: now, TTL: time.Hour}
		e.Put(key(0), entry, now)
		for n := 1; n < MaxEntries+10; n++ {
			if !e.Put(key(n), entry, now) {
				t.Fatalf("%s: entry %d is not kept", what, n)
			}
			if _, ok := e.Get(key(0), nil, now); !ok {
				t.Fatalf("%s: the one that is asked for was dropped at %d", what, n)
			}
			if e.Len() > MaxEntries || e.Bytes() > MaxBytes {
				t.Fatalf("%s: %d entries, %d bytes", what, e.Len(), e.Bytes())
			}
		}
		if e.Len() != MaxEntries && e.Bytes()+MaxEntryBytes <= MaxBytes {
			t.Errorf("%s: only %d entries with %d bytes are kept", what, e.Len(), e.Bytes())
		}
	}
	var e Entries
	long := tool.Output{Text: strings.Repeat("x", MaxEntryBytes)}
	if e.Put(key(0), Entry{Output: long, Began: now, TTL: time.Hour}, now) {
		t.Error("what is too long is kept")
	}
	if e.Put(key(0), Entry{Began: now.Add(time.Second), TTL: time.Hour}, now) {
		t.Error("what began later than now is kept")
	}
}

// TestCopies: what one reader changes, another does not see.
func TestCopies(t *testing.T) {
	out := tool.Output{Structured: json.RawMessage(`1`), Content: []toolyard.Content{{Data: []byte("a"),
		Schema: json.RawMessage(`2`)}}}
	other := Copy(out)
	other.Structured[0], other.Content[0].Data[0], other.Content[0].Schema[0] = 'x', 'x', 'x'
	other.Content[0].Text = "x"
	if out.Structured[0] != '1' || out.Content[0].Data[0] != 'a' || out.Content[0].Schema[0] != '2' ||
		out.Content[0].Text != "" {
		t.Errorf("it shares with its copy: %+v", out)
	}
}

// TestWhoMayDeclareACache: of all declarations those are taken with a cache whose calls may use it, as far as that is
// known without the input.
func TestWhoMayDeclareACache(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	flag := func() *bool { return []*bool{nil, new(bool), new(true)}[r.IntN(3)] }
	taken := 0
	for range 5_000 {
		d := tool.Declaration{Name: "x", Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`),
			ReadOnly: r.IntN(3) > 0, Idempotent: flag(), UsesWorkspace: flag(), RequiresUserInteraction: r.IntN(4) == 0,
			Class: tool.ClassRule{Static: append(toolyard.Classes, "")[r.IntN(len(toolyard.Classes)+1)]},
			Cache: &tool.Cache{TTLMS: []int64{-1, 0, 1, 3_600_000, 3_600_001}[r.IntN(5)], Coalesce: r.IntN(2) == 0,
				Scope: []tool.CacheScope{"", tool.CacheAgent, tool.CacheWorkspace, "pool"}[r.IntN(4)]}}
		_, err := tool.Raw(tool.Tool{Declaration: d,
			Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { return tool.Output{}, nil }})
		j, _ := d.StaticJudgement()
		c := d.Cache
		want := Refuses(&d, j, 1) == "" && !d.RequiresUserInteraction && c.Scope != "pool" && c.TTLMS >= 0 &&
			c.TTLMS <= 3_600_000 && (c.TTLMS > 0 || c.Coalesce)
		if (err == nil) != want {
			t.Fatalf("%+v with %+v: %v", d, *c, err)
		}
		if err == nil {
			taken++
		} else if !strings.Contains(err.Error(), "Cache") {
			t.Errorf("the error does not name the cache: %v", err)
		}
	}
	if taken < 50 {
		t.Errorf("only %d are taken", taken)
	}
}

// TestText: what people read of a call.
func TestText(t *testing.T) {
	d := cached()
	d.Cache.Scope, d.Cache.Coalesce = tool.CacheWorkspace, true
	j, _ := d.StaticJudgement()
	if got := Text(&d, j); got != "an output answers equal calls of all agents for 1s; equal calls of all agents that "+
		"run at the same time share one execution" {
		t.Error(got)
	}
	j.Class = toolyard.Unsafe
	if got := Text(&d, j); got != "no, the call is UNSAFE" {
		t.Error(got)
	}
	if d.Cache = nil; Text(&d, j) != "" {
		t.Error("a tool without a cache says something")
	}
}
