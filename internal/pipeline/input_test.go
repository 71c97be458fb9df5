package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

func named(name string) tool.Declaration {
	d := echo().Declaration
	d.Name, d.Aliases = name, nil
	return d
}

func deferred(name string) tool.Declaration {
	d := named(name)
	d.ShouldDefer = true
	return d
}

// TestEverybodyReadsTheSameInput: check, hooks, permission and the tool get one canonical form, each a copy of its own.
func TestEverybodyReadsTheSameInput(t *testing.T) {
	const raw, want = ` {"text":"first", "n":1.0, "text" : "<last>"} `, `{"n":1.0,"text":"<last>"}`
	saw := map[string]string{}
	spoil := func(who string, in json.RawMessage) {
		saw[who] = string(in)
		for i := range in {
			in[i] = 'x'
		}
	}
	var observed, hash string
	r := newRig(input(raw), with(func(t *tool.Tool) {
		t.Check = func(_ context.Context, _ tool.Env, in json.RawMessage) error { spoil("check", in); return nil }
		t.Run = func(_ context.Context, _ tool.Env, in json.RawMessage) (tool.Output, error) {
			spoil("tool", in)
			return tool.Output{}, nil
		}
	}), func(r *rig) {
		r.pre = func(_ context.Context, in HookInput) (HookVerdict, error) {
			spoil("pre", in.Input)
			return HookVerdict{}, nil
		}
		r.post = func(_ context.Context, in HookInput) (HookVerdict, error) {
			spoil("post", in.Input)
			return HookVerdict{}, nil
		}
		r.decide = func(_ context.Context, in PermissionInput) (PermissionDecision, error) {
			spoil("permission", in.Input)
			spoil("observable", in.Observable)
			hash = in.InputHash
			return PermissionDecision{Behavior: Allow}, nil
		}
		r.job.Observe = func(in json.RawMessage, h string) { observed = string(in) + h; spoil("watcher", in) }
	})
	if res := r.result(t); res.Code != toolyard.OK {
		t.Fatal(res.Error)
	}
	for _, who := range []string{"check", "pre", "permission", "observable", "tool", "post", "watcher"} {
		if saw[who] != want {
			t.Errorf("%s saw %q", who, saw[who])
		}
	}
	if observed != want+hash || hash == "" {
		t.Errorf("observed %q, hash %q", observed, hash)
	}
}

// TestRedactedPartsNeverRun: a hook sees a redacted copy and changes something else in it; the unchanged parts that it
// returns stand for the original.
func TestRedactedPartsNeverRun(t *testing.T) {
	r := newRig(secretless, func(r *rig) {
		d := r.tools["echo"]
		d.InputSchema = json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"},"l":{"type":"array"},"o":{"type":"object"}}}`)
		d.Run = func(_ context.Context, _ tool.Env, in json.RawMessage) (tool.Output, error) {
			r.stored = append(r.stored, string(in))
			return tool.Output{}, nil
		}
		r.setTool(d)
		r.pre = func(_ context.Context, in HookInput) (HookVerdict, error) {
			if strings.Contains(string(in.Input), "s3cret") {
				t.Error("the hook saw a secret")
			}
			return HookVerdict{Input: json.RawMessage(strings.Replace(string(in.Input), `"n":1`, `"n":2`, 1))}, nil
		}
	}, input(`{"text":"the s3cret","n":1,"l":["s3cret",{"a":"s3cret"}],"o":{"b":"s3cret"}}`))
	res := r.result(t)
	if want := `{"l":["s3cret",{"a":"s3cret"}],"n":2,"o":{"b":"s3cret"},"text":"the s3cret"}`; len(r.stored) != 1 ||
		r.stored[0] != want {
		t.Errorf("ran %q: %s", r.stored, res.Error)
	}
	for _, f := range res.Phases {
		if strings.Contains(f.Detail, "s3cret") {
			t.Errorf("a fact has the secret: %+v", f)
		}
	}
	// A hook that returns its input has changed nothing.
	r.pre = func(_ context.Context, in HookInput) (HookVerdict, error) { return HookVerdict{Input: in.Input}, nil }
	if res := r.result(t); len(res.Phases) != len(toolyard.Phases) {
		t.Errorf("%d facts: the input counts as changed", len(res.Phases))
	}
}

// TestAHookMayChangeAListWithSecrets: each element that comes back as it was shown is what it was, and a list of which
// that cannot be told is refused. No secret gets to another place, and no stand-in runs.
func TestAHookMayChangeAListWithSecrets(t *testing.T) {
	secrets := regexp.MustCompile(`key-\w`)
	for name, tt := range map[string]struct{ is, back, runs string }{
		"none":       {`["key-a","key-b"]`, `["***","***"]`, ``},
		"the first":  {`["key-a","key-b"]`, `["***"]`, "?"},
		"another":    {`["x","key-a","key-b"]`, `["***","***"]`, `["key-a","key-b"]`},
		"one of one": {`["x","key-a"]`, `["***"]`, `["key-a"]`},
		"one before": {`["key-a","key-b"]`, `["x","***","***"]`, `["x","key-a","key-b"]`},
		"one more":   {`["key-a"]`, `["***","***"]`, `["key-a","key-a"]`},
		"shifted":    {`["key-a","x","key-b"]`, `["x","***","y"]`, "?"},
		"objects": {`[{"n":1,"k":"key-a"},{"n":2,"k":"key-b"}]`,
			`[{"k":"***","n":2}]`, `[{"k":"key-b","n":2}]`},
		"a changed object": {`[{"n":1,"k":"key-a"},{"n":2,"k":"key-b"}]`, `[{"k":"***","n":3}]`, "?"},
		"an edited object": {`[{"n":1,"k":"key-a"},{"n":2}]`,
			`[{"k":"***","n":3},{"n":2}]`, `[{"k":"key-a","n":3},{"n":2}]`},
		"an object that moved, edited": {`[{"n":1,"k":"key-a"},{"n":2,"k":"key-b"}]`,
			`[{"n":2,"k":"***"},{"n":3,"k":"***"}]`, "?"},
		"inside":       {`[["key-a"],["key-b","x"]]`, `[["***","x"]]`, `[["key-b","x"]]`},
		"written anew": {`["key-a","key-b"]`, `["x"]`, `["x"]`},
		"a name":       {`[{"key-a":1},{"b":1}]`, `[{"***":1}]`, "?"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(func(r *rig) {
				r.Redact = func(s string) string { return secrets.ReplaceAllString(s, "***") }
				d := r.tools["echo"]
				d.InputSchema = json.RawMessage(`{"type":"object","properties":{"l":{"type":"array"}}}`)
				d.Run = func(_ context.Context, _ tool.Env, in json.RawMessage) (tool.Output, error) {
					r.stored = append(r.stored, string(in))
					return tool.Output{}, nil
				}
				r.setTool(d)
			}, input(`{"l":`+tt.is+`}`), before(HookVerdict{Input: json.RawMessage(`{"l":` + tt.back + `}`)}, nil))
			res, ran := r.result(t), strings.Join(r.stored, " ")
			if tt.runs == "" {
				tt.runs = tt.is
			}
			if tt.runs == "?" {
				if res.Code != toolyard.HookFailed || ran != "" {
					t.Errorf("ran %s: %s %s", ran, res.Code, res.Error)
				}
			} else if ran != `{"l":`+tt.runs+`}` {
				t.Errorf("ran %s, want %s: %s", ran, tt.runs, res.Error)
			}
		})
	}
}

// TestAHookSeesWhatStandsBehindACut: a command of any length that bash takes comes whole to a hook that looks for what
// must not run, and so does what it is hidden behind.
func TestAHookSeesWhatStandsBehindACut(t *testing.T) {
	const commandBytes = 128 << 10 // bash takes no more
	for _, pad := range []string{"x", "\"", "\x01"} {
		command := ": " + strings.Repeat(pad, commandBytes-20) + "\nrm -rf important"
		guard := func(r *rig) {
			r.pre = func(_ context.Context, in HookInput) (HookVerdict, error) {
				return HookVerdict{Block: strings.Contains(string(in.Input), "rm -rf")}, nil
			}
		}
		in, err := json.Marshal(map[string]string{"text": command})
		must.OK(t, err)
		var told json.RawMessage
		res := newRig(input(string(in)), guard, func(r *rig) {
			r.job.Observe = func(in json.RawMessage, _ string) { told = in }
		}).result(t)
		if res.Code != toolyard.HookBlocked || len(told) > MaxObservableBytes {
			t.Errorf("behind %q: %q, and %d bytes are told", pad, res.Code, len(told))
		}
	}
}

func TestObservableCopyIsBounded(t *testing.T) {
	long := strings.Repeat("ä", MaxObservableBytes)
	var seen json.RawMessage
	watch := func(r *rig) { r.job.Observe = func(in json.RawMessage, _ string) { seen = in } }
	r := newRig(input(fmt.Sprintf(`{"text":%q}`, long)), watch)
	res := r.result(t)
	if len(seen) > MaxObservableBytes || !strings.Contains(string(seen),
		fmt.Sprintf("[cut: %d bytes in all]", len(long))) || !json.Valid(seen) {
		t.Errorf("%d bytes: %.200s", len(seen), seen)
	}
	if res.Output != long {
		t.Error("the tool itself did not get the whole")
	}
	if f := res.Phases[3]; f.Outcome != toolyard.OutcomeNoted || !strings.Contains(f.Detail, "cut from") {
		t.Errorf("%+v", f)
	}
	many := make([]string, 20_000)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":1`, i)
	}
	r = newRig(with(func(t *tool.Tool) { t.InputSchema = json.RawMessage(`{"type":"object","additionalProperties":true}`) }),
		returns("ok", nil), input("{"+strings.Join(many, ",")+"}"), watch)
	if res := r.result(t); res.Code != toolyard.OK || len(seen) > MaxObservableBytes || !json.Valid(seen) ||
		!strings.Contains(string(seen), `"_cut":`) {
		t.Errorf("%d bytes: %.200s", len(seen), seen)
	}
}

// TestAHookCannotLoosenTheSchedule: the class was judged from the model's input. A hook's input must not be stricter,
// because the call runs beside others, or without a claim, due to that class.
func TestAHookCannotLoosenTheSchedule(t *testing.T) {
	shell := func(r *rig) {
		r.setTool(tool.Tool{
			Declaration: tool.Declaration{Name: "sh", Description: "d", Class: tool.ClassRule{Shell: "text"},
				Execution: tool.InSandbox, InputSchema: json.RawMessage(schemaText)},
			Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
				return tool.Output{Text: "ran"}, nil
			},
		})
		r.Classify = func(command string, _ bool) (toolyard.Class, string) {
			if strings.HasPrefix(command, "ls") {
				return toolyard.ReadOnly, "only reads"
			}
			return toolyard.Unsafe, "may write"
		}
		r.Isolation = "bwrap"
		r.job.Call.Tool = "sh"
	}
	ask := func(judge func(json.RawMessage) (tool.Judgement, error)) func(*rig) {
		return func(r *rig) {
			shell(r)
			d := r.tools["sh"]
			d.Class, d.Judge = tool.ClassRule{Ask: true}, judge
			r.setTool(d)
			r.job.Judgement = tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}
		}
	}
	reads := func(json.RawMessage) (tool.Judgement, error) {
		return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true}, nil
	}
	for _, tt := range []struct {
		name, was, to string
		opt           func(*rig)
		want          toolyard.Code
	}{
		{"as loose", `{"text":"ls"}`, `{"text":"ls -la"}`, shell, toolyard.OK},
		{"stricter", `{"text":"ls"}`, `{"text":"rm -rf ."}`, shell, toolyard.HookFailed},
		{"stricter, and declared idempotent", `{"text":"ls"}`, `{"text":"rm -rf ."}`, func(r *rig) {
			shell(r)
			d, yes := r.tools["sh"], true
			d.Idempotent = &yes
			r.setTool(d)
		}, toolyard.HookFailed},
		{"looser than planned", `{"text":"rm x"}`, `{"text":"ls"}`, shell, toolyard.OK},
		{"judged by the tool", `{"text":"ls"}`, `{"text":"x"}`, ask(reads), toolyard.OK},
		{"the tool panics", `{"text":"ls"}`, `{"text":"x"}`,
			ask(func(json.RawMessage) (tool.Judgement, error) { panic("x") }), toolyard.HookFailed},
		{"the tool fails", `{"text":"ls"}`, `{"text":"x"}`,
			ask(func(json.RawMessage) (tool.Judgement, error) { return tool.Judgement{}, errBoom }),
			toolyard.HookFailed},
		{"no longer idempotent", `{"text":"ls"}`, `{"text":"x"}`, ask(func(json.RawMessage) (tool.Judgement, error) {
			return tool.Judgement{Class: toolyard.ReadOnly}, nil
		}), toolyard.HookFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked tool.Judgement
			r := newRig(tt.opt, input(tt.was), before(HookVerdict{Input: json.RawMessage(tt.to), By: "h"}, nil),
				func(r *rig) {
					r.decide = func(_ context.Context, in PermissionInput) (PermissionDecision, error) {
						asked = in.Judgement
						return PermissionDecision{Behavior: Allow}, nil
					}
				})
			res := r.result(t)
			if res.Code != tt.want || res.Class != r.job.Judgement.Class {
				t.Errorf("%q as %s: %s %s", res.Code, res.Class, res.Error, res.Detail)
			}
			if res.Code == toolyard.OK && asked.Class != r.job.Judgement.Class {
				t.Errorf("permission saw %s", asked.Class)
			}
		})
	}
}

// TestWhatAToolSaysOfAnEditTellsNoSecret: it judges the input of a hook, and others than the model read what it says.
func TestWhatAToolSaysOfAnEditTellsNoSecret(t *testing.T) {
	var asked tool.Judgement
	r := newRig(input(`{"text":"ls"}`), before(HookVerdict{Input: json.RawMessage(`{"text":"x"}`), By: "h"}, nil),
		func(r *rig) {
			d := r.tools["echo"]
			d.Class = tool.ClassRule{Ask: true}
			d.Judge = func(json.RawMessage) (tool.Judgement, error) {
				return tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Why: "hunter2 only reads"}, nil
			}
			r.setTool(d)
			r.job.Judgement = tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true}
			r.Redact = func(text string) string { return strings.ReplaceAll(text, "hunter2", "[secret]") }
			r.decide = func(_ context.Context, in PermissionInput) (PermissionDecision, error) {
				asked = in.Judgement
				return PermissionDecision{Behavior: Allow}, nil
			}
		})
	if res := r.result(t); res.Code != toolyard.OK || asked.Why != "[secret] only reads" {
		t.Errorf("%q %s, %+v", res.Code, res.Detail, asked)
	}
}

// TestPermissionSeesWhatRuns after a hook has changed the input.
func TestPermissionSeesWhatRuns(t *testing.T) {
	var asked, ran string
	r := newRig(before(HookVerdict{Input: json.RawMessage(`{"text":"changed"}`), Opinion: Ask, Reason: "look"}, nil),
		func(r *rig) {
			r.decide = func(_ context.Context, in PermissionInput) (PermissionDecision, error) {
				asked = string(in.Input) + string(in.Opinion) + in.OpinionReason
				return PermissionDecision{Behavior: Allow}, nil
			}
		}, with(func(t *tool.Tool) {
			run := t.Run
			t.Run = func(ctx context.Context, env tool.Env, in json.RawMessage) (tool.Output, error) {
				ran = string(in)
				return run(ctx, env, in)
			}
		}))
	if res := r.result(t); res.Output != "changed" || asked != `{"text":"changed"}asklook` ||
		ran != `{"text":"changed"}` {
		t.Errorf("asked about %s, ran %s: %+v", asked, ran, res)
	}
}
