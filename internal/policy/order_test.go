package policy

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// The properties below hold for any rules and any call: no order and no combination of rules lets an allow beat a deny
// or an ask.

var ruleTexts = []string{
	"bash", "bash(ls:*)", "bash(git status:*)", "bash(git push:*)", "bash(rm:*)", "bash(ls)", "bash(a | b)", "shell",
	"write_file", "write_file(docs/**)", "write_file(**/*.md)", "write_file(/ws/src/**)", "write_file(/etc/**)",
	"web_fetch", "web_fetch(domain:example.com)", "web_fetch(domain:evil.org)", "web_fetch(x)", "plain", "plain(x)",
	"mcp__a__*", "other",
}

var commands = []string{"ls", "ls; git status", "git status && rm x", "git $x", "ls 'x", "", "git -C . push", "$x",
	"sudo ls"}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func randomRules(t *testing.T, r *rand.Rand) []Rule {
	var rules []Rule
	for range r.IntN(5) {
		rules = append(rules, mustRules(t, pick(r, ruleTexts))...)
	}
	return rules
}

func randomRequest(r *rand.Rand) Request {
	flag := func() *bool {
		return pick(r, []*bool{nil, new(bool), new(true)})
	}
	d := *pick(r, []*tool.Declaration{bashTool, writeTool, fetchTool, plainTool, {Name: "mcp__a__b"}})
	d.RequiresPermission, d.UsesWorkspace = flag(), flag()
	d.RequiresUserInteraction, d.EditsWorkspace = r.IntN(5) == 0, r.IntN(2) == 0
	in, _ := json.Marshal(map[string]string{
		"command": pick(r, commands), "url": pick(r, []string{"https://example.com", "http://a.evil.org/x",
			"https://example.com@evil.org", "x"}),
	})
	return Request{
		Declaration: &d, Input: in, Mode: pick(r, append([]Mode{"", "nonsense"}, Modes...)),
		Interactive: r.IntN(2) == 0, WorkspaceDir: "/ws",
		Judgement: tool.Judgement{ReadOnly: r.IntN(2) == 0, Destructive: r.IntN(2) == 0},
		Paths:     pick(r, [][]string{nil, {"docs/a.md"}, {"docs/a.md", "src/b"}, {"src/b"}, {"../x"}}),
	}
}

// strictness orders the behaviors.
var strictness = map[Behavior]int{Allow: 0, Ask: 1, Deny: 2}

func TestNoAllowBeatsADenyOrAnAsk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shuffled := func(rules []Rule) []Rule {
		s := slices.Clone(rules)
		r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		return s
	}
	seen := map[Behavior]int{}
	for range 20_000 {
		rules := Rules{Deny: randomRules(t, r), Ask: randomRules(t, r), Allow: randomRules(t, r)}
		if r.IntN(2) == 0 { // leave room for the others to speak
			rules.Deny = nil
		}
		req := randomRequest(r)
		rules.Confirm = r.IntN(4) == 0
		got := Decide(rules, req)
		seen[got.Behavior]++
		fail := func(what string, other Decision) {
			t.Fatalf("%s\nrules %v\nrequest %+v of %s with %s\ngot   %+v\nother %+v", what, rules, req,
				req.Declaration.Name, req.Input, got, other)
		}
		// An answer is one of three, with a code and a reason exactly where they belong.
		blocked := got.Code == toolyard.PermissionDenied || got.Code == toolyard.PolicyBlocked
		if _, ok := strictness[got.Behavior]; !ok || blocked != (got.Behavior == Deny) || got.Source == "" ||
			(got.Reason == "") != (got.Behavior == Allow) {
			fail("malformed", got)
		}
		// Order does not matter, nor do repeats.
		twice := Rules{Deny: shuffled(append(rules.Deny, rules.Deny...)), Ask: shuffled(rules.Ask),
			Allow: shuffled(rules.Allow), Confirm: rules.Confirm}
		if other := Decide(twice, req); other.Behavior != got.Behavior || other.Code != got.Code {
			fail("another order decides otherwise", other)
		}
		// One deny rule that denies alone denies in any company; one ask rule that asks alone is never allowed over.
		for _, d := range rules.Deny {
			if alone, _, ok := firstMatch([]Rule{d}, true, req.Declaration, newSubject(&req)); ok &&
				got.Behavior != Deny {
				fail("denied by "+alone.String()+" alone", got)
			}
		}
		for _, a := range rules.Ask {
			if alone, _, ok := firstMatch([]Rule{a}, false, req.Declaration, newSubject(&req)); ok &&
				got.Behavior == Allow {
				fail("asked by "+alone.String()+" alone", got)
			}
		}
		// More deny and ask rules never loosen, fewer allow rules neither.
		tighter := rules.Tighten(randomRules(t, r), randomRules(t, r))
		if other := Decide(tighter, req); strictness[other.Behavior] < strictness[got.Behavior] {
			fail("tightened rules are looser", other)
		}
		if other := Decide(Rules{Deny: rules.Deny, Ask: rules.Ask, Confirm: rules.Confirm},
			req); strictness[other.Behavior] < strictness[got.Behavior] {
			fail("without allow rules it is looser", other)
		}
		// Confirmation never loosens, and with it nothing broad allows what cannot be undone.
		confirmed := rules
		confirmed.Confirm = true
		other := Decide(confirmed, req)
		if strictness[other.Behavior] < strictness[got.Behavior] {
			fail("with confirmation it is looser", other)
		}
		if broad := !slices.ContainsFunc(rules.Allow, func(r Rule) bool { return r.Precise(req.Declaration) }); broad &&
			req.Judgement.Destructive && other.Behavior == Allow {
			fail("allowed without a precise rule", other)
		}
		// plan and dont_ask never loosen what the default mode says.
		for _, m := range []Mode{Plan, DontAsk, "nonsense"} {
			strict, base := req, req
			strict.Mode, base.Mode = m, Default
			if a, b := Decide(rules, strict), Decide(rules, base); strictness[a.Behavior] < strictness[b.Behavior] {
				fail("mode "+string(m)+" is looser than the default", a)
			}
		}
	}
	for b := range strictness {
		if seen[b] < 1000 {
			t.Errorf("only %d of the random calls end as %s: the test sees too little", seen[b], b)
		}
	}
}

// A dumb twin of Decide for calls without specifiers: every combination of flags, modes and rules, judged by the list
// in the package comment as a list of questions.
func TestDecideAgainstTwin(t *testing.T) {
	rule := mustRules(t, "x")
	modes := append([]Mode{"", "nonsense"}, Modes...)
	n := 0
	for bits := range 1 << 11 {
		on := func(i int) bool { return bits>>i&1 == 1 }
		deny, askRule, allow := on(0), on(1), on(2)
		reads, destroys, free, elsewhere, edits, talks, person := on(3), on(4), on(5), on(6), on(7), on(8), on(9)
		confirm := on(10)
		rules := Rules{Confirm: confirm}
		if deny {
			rules.Deny = rule
		}
		if askRule {
			rules.Ask = rule
		}
		if allow {
			rules.Allow = rule
		}
		needs, uses := !free, !elsewhere
		d := &tool.Declaration{Name: "x", RequiresPermission: &needs, Destructive: &destroys, UsesWorkspace: &uses,
			EditsWorkspace:          edits,
			RequiresUserInteraction: talks}
		for _, mode := range modes {
			n++
			odd := mode == "nonsense"
			onlyReads := reads && !destroys
			var want Behavior
			for _, question := range []struct {
				yes  bool
				then Behavior
			}{
				{deny, Deny},
				{talks && !person, Deny},
				{(mode == Plan || odd) && !onlyReads, Deny},
				{askRule && (mode == DontAsk || odd), Deny},
				{askRule, Ask},
				{allow, Allow},
				{confirm && destroys && (mode == DontAsk || odd), Deny},
				{confirm && destroys, Ask},
				{mode == AcceptEdits && edits, Allow},
				{onlyReads && !elsewhere, Allow},
				{free && !destroys, Allow},
				{mode == Bypass, Allow},
				{mode == DontAsk || odd, Deny},
				{true, Ask},
			} {
				if question.yes {
					want = question.then
					break
				}
			}
			got := Decide(rules, Request{Declaration: d, Mode: mode, Interactive: person, Paths: []string{"a"},
				Judgement: tool.Judgement{ReadOnly: reads, Destructive: destroys}})
			if got.Behavior != want || (got.Code == toolyard.PolicyBlocked) != (!deny && talks && !person) {
				t.Fatalf("mode %q, %010b: %+v, want %s", mode, bits, got, want)
			}
		}
	}
	t.Logf("%d combinations", n)
}
