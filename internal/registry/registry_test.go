package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

func entry(origin Origin, name string, change ...func(*Entry)) Entry {
	e := Entry{Origin: origin, Declaration: tool.Declaration{
		Name: name, Description: "d",
		InputSchema: json.RawMessage(`{"type": "object", "properties": {"b": {}, "a": {"title": "<x>"}}}`),
		Class:       tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
	}}
	for _, c := range change {
		c(&e)
	}
	return e
}

func aliases(names ...string) func(*Entry) { return func(e *Entry) { e.Aliases = names } }
func pool(p toolyard.Pool) func(*Entry)    { return func(e *Entry) { e.Pool = p } }
func deferred(e *Entry)                    { e.ShouldDefer = true }

func register(t *testing.T, entries ...Entry) Registry {
	t.Helper()
	r, err := Registry{}.Register(entries...)
	must.OK(t, err)
	return r
}

func assemble(t *testing.T, r Registry, blocked func(string, []string) bool) Surface {
	t.Helper()
	s, err := Assemble(r, blocked)
	must.OK(t, err)
	return s
}

func names(s Surface) string {
	var out []string
	for _, e := range s.Tools {
		out = append(out, string(e.Origin)+":"+e.Name+"@"+string(e.Pool))
	}
	return strings.Join(out, " ")
}

func TestRegisterLeavesTheOldRegistry(t *testing.T) {
	one := register(t, entry(Builtin, "glob"))
	two, err := one.Register(entry(Builtin, "bash"), entry(Builtin, "glob"))
	if err != nil || one.Len() != 1 || two.Len() != 2 {
		t.Fatalf("%d, %d, %v", one.Len(), two.Len(), err)
	}
	e := entry(Builtin, "grep", aliases("search"))
	three, err := two.Register(e)
	must.OK(t, err)
	before := assemble(t, three, nil)
	e.Aliases[0], e.InputSchema[0] = "x", 'x'
	if after := assemble(t, three, nil); after.Hash != before.Hash {
		t.Error("the registry shares memory with the caller")
	}
}

func TestRegisterRefuses(t *testing.T) {
	r := register(t, entry(MCP, "a"))
	for want, e := range map[string]Entry{
		"another mcp tool":  entry(MCP, "a", func(e *Entry) { e.Description = "other" }),
		"origin":            entry("", "b"),
		"is empty":          entry(Builtin, ""),
		"control character": entry(Builtin, "b\n"),
		"announced":         entry(Builtin, "b", func(e *Entry) { e.Hash = "00" }),
		"input schema": entry(Builtin, "b",
			func(e *Entry) { e.InputSchema = json.RawMessage(`{"$ref":"http://x/y"}`) }),
		"output schema": entry(Builtin, "b", func(e *Entry) { e.OutputSchema = json.RawMessage(`{"type":"x"}`) }),
		"encode":        entry(Builtin, "b", func(e *Entry) { e.InputSchema = json.RawMessage(`{`) }),
		"aliases":       entry(Builtin, "b", aliases(make([]string, MaxAliases+1)...)),
		"bytes": entry(Builtin, "b", func(e *Entry) {
			e.Description = strings.Repeat("x",
				MaxDeclarationBytes)
		}),
	} {
		next, err := r.Register(entry(Builtin, "fine"), e)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if next.Len() != 1 {
			t.Errorf("%s: %d entries, want the old registry", want, next.Len())
		}
	}
}

func TestSurfaceIsByteStable(t *testing.T) {
	all := []Entry{
		entry(MCP, "zoo"), entry(MCP, "bash"), entry(Builtin, "grep"), entry(Toolset, "alpha"), entry(Builtin, "bash"),
		entry(Toolset, "grep"), entry(Builtin, "bash", pool("a-pool")), entry(MCP, "alpha"),
	}
	var first []byte
	for range 50 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		s := assemble(t, register(t, all...), nil)
		if got, want := names(s),
			"builtin:bash@a-pool builtin:grep@default toolset:alpha@default mcp:zoo@default"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		raw, err := s.Encode()
		must.OK(t, err)
		if first == nil {
			first = raw
		}
		if !bytes.Equal(raw, first) {
			t.Fatalf("\n%s\n%s", raw, first)
		}
		again, err := Decode(raw)
		must.OK(t, err)
		if r2, _ := again.Encode(); !bytes.Equal(r2, raw) {
			t.Fatal("decode and encode change the bytes")
		}
	}
	if !bytes.Contains(first, []byte(`"properties":{"b":{}`)) {
		t.Error("the order of a schema's fields is the author's, and a model sees it")
	}
	if _, err := Decode(bytes.Replace(first, []byte(`"is_read_only":true`), []byte(`"should_defer":true`),
		1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a changed surface was read: %v", err)
	}
}

func TestHashIgnoresFormOnly(t *testing.T) {
	a := entry(Builtin, "x").Declaration
	b := a
	b.InputSchema = json.RawMessage(`{"properties":{"a":{"title":"<x>"},"b":{}},"type":"object"}`)
	ha, _ := Hash(a)
	if hb, _ := Hash(b); ha != hb {
		t.Error("white space and key order changed the identity")
	}
	b.ReadOnly = false
	if hb, _ := Hash(b); ha == hb {
		t.Error("a flag does not count")
	}
}

func TestResolve(t *testing.T) {
	r := register(t, entry(Builtin, "read_file", aliases("Read")), entry(Builtin, "bash", aliases("Bash", "shell")),
		entry(Toolset, "Read"),
		entry(Toolset, "deploy", aliases("ship"), deferred),
		entry(Toolset, "plan", deferred, func(e *Entry) { e.AlwaysLoad = true }),
		entry(MCP, "evil", aliases("write_file", "ship")), entry(MCP, "bash"), entry(MCP, "shell"))
	s := assemble(t, r, func(name string, _ []string) bool { return name == "bash" })
	loaded := map[string]bool{"deploy": true}
	for _, tt := range []struct {
		name   string
		loaded map[string]bool
		want   string
		code   toolyard.Code
	}{
		{"read_file", nil, "read_file", toolyard.OK},
		{"Read", nil, "Read", toolyard.OK}, // a name wins over another tool's alias
		{"bash", nil, "", toolyard.BlockedTool},
		{"Bash", nil, "", toolyard.BlockedTool},
		{"shell", nil, "shell", toolyard.OK}, // a tool of that name is in the surface
		{"deploy", nil, "deploy", toolyard.SchemaNotLoaded},
		{"ship", nil, "deploy", toolyard.SchemaNotLoaded},
		{"ship", loaded, "deploy", toolyard.OK},
		{"plan", nil, "plan", toolyard.OK},
		{"write_file", nil, "", toolyard.UnknownTool}, // an MCP tool has no aliases
		{"", nil, "", toolyard.UnknownTool},
	} {
		if e, code := s.Resolve(tt.name, tt.loaded); e.Name != tt.want || code != tt.code {
			t.Errorf("Resolve(%q) = %q, %q; want %q, %q", tt.name, e.Name, code, tt.want, tt.code)
		}
	}
	if strings.Contains(names(s), "bash") {
		t.Error("an MCP tool took the name of a blocked built-in")
	}
	if got := len(s.Offered(nil)); got != len(s.Tools)-1 {
		t.Errorf("%d offered of %d", got, len(s.Tools))
	}
	if got := s.Near("raed_file"); !slices.Equal(got, []string{"read_file"}) {
		t.Errorf("near: %q", got)
	}
}

func TestJudge(t *testing.T) {
	yes, no := true, false
	classify := func(command string, remembers bool) (toolyard.Class, string) {
		switch command {
		case "ls":
			return toolyard.ReadOnly, "ls only reads"
		case "boom":
			panic("boom")
		case "told":
			if remembers {
				return toolyard.ReadOnly, "it is told"
			}
		case "odd":
			return toolyard.WriteExclusive, "odd"
		}
		return "", "who knows"
	}
	shell := tool.Declaration{Class: tool.ClassRule{Shell: "command"}}
	remembers := tool.Declaration{Class: tool.ClassRule{Shell: "command", Remembers: true}}
	static := func(c toolyard.Class) tool.Declaration { return tool.Declaration{Class: tool.ClassRule{Static: c}} }
	read := static(toolyard.ReadOnly)
	read.ReadOnly = true
	write := static(toolyard.WriteExclusive)
	write.Idempotent, write.Destructive = &yes, &no
	strict := tool.Judgement{Class: toolyard.Unsafe, Destructive: true}
	for _, tt := range []struct {
		name, input string
		d           tool.Declaration
		want        tool.Judgement
		ask         bool
	}{
		{"read", `{}`, read, tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}, false},
		{"write", `{}`, write, tool.Judgement{Class: toolyard.WriteExclusive, Idempotent: true}, false},
		{"nothing declared", `{}`, tool.Declaration{}, strict, false},
		{"unknown class", `{}`, static("read_only"), strict, false},
		{"not JSON", `{`, read, strict, false},
		{"shell reads", `{"command":"ls"}`, shell, tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true,
			Idempotent: true}, false},
		{"shell writes", `{"command":"rm"}`, shell, strict, false},
		{"shell odd", `{"command":"odd"}`, shell, strict, false},
		{"shell is not told", `{"command":"told"}`, shell, strict, false},
		{"a shell that remembers is told", `{"command":"told"}`, remembers, tool.Judgement{Class: toolyard.ReadOnly,
			ReadOnly: true, Idempotent: true}, false},
		{"a shell that remembers moves", `{"command":"odd"}`, remembers, tool.Judgement{Class: toolyard.WriteExclusive,
			ReadOnly: true}, false},
		{"shell panics", `{"command":"boom"}`, shell, strict, false},
		{"shell, last of two", `{"command":"ls","command":"rm"}`, shell, strict, false},
		{"shell, no field", `{"Command":"ls"}`, shell, strict, false},
		{"shell, in two spellings", `{"command":"ls","COMMAND":"rm"}`, shell, strict, false},
		{"shell, no text", `{"command":["ls"]}`, shell, strict, false},
		{"shell, no object", `"ls"`, shell, strict, false},
		{"ask", `{}`, tool.Declaration{Class: tool.ClassRule{Ask: true}}, strict, true},
	} {
		j, ask := Judge(tt.d, json.RawMessage(tt.input), classify)
		if j.Why == "" {
			t.Errorf("%s: no reason", tt.name)
		}
		j.Why = ""
		if j != tt.want || ask != tt.ask {
			t.Errorf("%s: %+v, %t", tt.name, j, ask)
		}
	}
	if j, _ := Judge(shell, json.RawMessage(`{"command":"ls"}`), nil); j.Class != toolyard.Unsafe {
		t.Error("no classifier, and yet", j.Class)
	}
}

func TestCheckJudgement(t *testing.T) {
	no := false
	ask := tool.Declaration{Class: tool.ClassRule{Ask: true}}
	limited := tool.Declaration{Class: tool.ClassRule{Ask: true, Static: toolyard.WriteExclusive}}
	plain := limited
	plain.Destructive, plain.Idempotent = &no, &no
	for _, tt := range []struct {
		name    string
		d       tool.Declaration
		j, want tool.Judgement
	}{
		{"read", ask, tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true},
			tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}},
		{"unknown class", ask, tool.Judgement{Class: "x", ReadOnly: true, Idempotent: true},
			tool.Judgement{Class: toolyard.Unsafe, Destructive: true}},
		{"empty", ask, tool.Judgement{}, tool.Judgement{Class: toolyard.Unsafe, Destructive: true}},
		{"stricter than declared", limited, tool.Judgement{Class: toolyard.Unsafe, Idempotent: true},
			tool.Judgement{Class: toolyard.Unsafe, Destructive: true}},
		{"write", limited, tool.Judgement{Class: toolyard.WriteExclusive},
			tool.Judgement{Class: toolyard.WriteExclusive, Destructive: true}},
		{"idempotent write", limited, tool.Judgement{Class: toolyard.WriteExclusive, Idempotent: true},
			tool.Judgement{Class: toolyard.WriteExclusive, Destructive: true, Idempotent: true}},
		{"the declaration wins", plain, tool.Judgement{Class: toolyard.WriteExclusive, Idempotent: true},
			tool.Judgement{Class: toolyard.WriteExclusive}},
		{"but not to hide harm", plain, tool.Judgement{Class: toolyard.WriteExclusive, Destructive: true},
			tool.Judgement{Class: toolyard.WriteExclusive, Destructive: true}},
		{"unsafe is not read-only", ask, tool.Judgement{Class: toolyard.Unsafe, ReadOnly: true},
			tool.Judgement{Class: toolyard.Unsafe, Destructive: true}},
	} {
		got := CheckJudgement(tt.d, tt.j)
		got.Why = ""
		if got != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestLint(t *testing.T) {
	d := tool.Declaration{Name: "run", Description: "short",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{},"b":{"description":"x"}},"additionalProperties":true}`)}
	if got := Lint(d); len(got) != 7 {
		t.Errorf("%d remarks: %q", len(got), got)
	}
	nested := tool.Declaration{Name: "find.people", Description: "Finds people by what is known of them.",
		Class: tool.ClassRule{Static: toolyard.ReadOnly}, MaxResultSizeChars: 1_000, InputSchema: json.RawMessage(
			`{"type":"object","examples":[{"any":1}],"properties":{"who":{"description":"x","type":"array","items":{"properties":{"name":{},"at":{"description":"x","properties":{"city":{"description":""}}}}}},"any":true}}`)}
	want := []string{`the name "find.people" is not one that every provider takes`, `the field "any" takes anything`,
		`the field "who[].at.city" has no description`, `the field "who[].name" has no description`}
	got := Lint(nested)
	if !slices.EqualFunc(want, got, func(w, g string) bool { return strings.HasPrefix(g, w) }) {
		t.Errorf("remarks: %q, want %q", got, want)
	}
}
