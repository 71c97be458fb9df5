package registry

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// Classifier says which class a shell command has and why; package shell's Judge is one. remembers is
// [tool.ClassRule].Remembers.
type Classifier func(command string, remembers bool) (toolyard.Class, string)

// Judge determines what is known about one call without the tool's code. ask says that only a worker can judge it:
// until the worker has answered ([CheckJudgement]) the judgement is the strictest. It is also the strictest for
// everything that cannot be parsed, for a missing classifier and for one that panics.
func Judge(d tool.Declaration, input json.RawMessage, classify Classifier) (j tool.Judgement, ask bool) {
	v, err := schema.Parse(input)
	if err != nil {
		return tool.Strictest("the input can't be parsed"), false
	}
	return JudgeValue(&d, v, classify)
}

// JudgeValue is [Judge] for an input that was parsed.
func JudgeValue(d *tool.Declaration, v schema.Value, classify Classifier) (j tool.Judgement, ask bool) {
	defer func() {
		if p := recover(); p != nil {
			j, ask = tool.Strictest(Why(fmt.Sprintf("the classifier panicked: %v", p))), false
		}
	}()
	if j, ok := d.StaticJudgement(); ok {
		return j, false
	}
	if d.Class.Shell == "" {
		return tool.Strictest("not asked yet"), true
	}
	fields, _ := v.Doc().(map[string]any)
	command, ok := fields[d.Class.Shell].(string)
	if !ok {
		return tool.Strictest(fmt.Sprintf("the field %q holds no command", d.Class.Shell)), false
	}
	for name := range fields { // encoding/json treats them as one field: what is judged might not be what runs
		if name != d.Class.Shell && strings.EqualFold(name, d.Class.Shell) {
			return tool.Strictest(fmt.Sprintf("the field %q stands there twice, also as %q", d.Class.Shell, name)),
				false
		}
	}
	if classify == nil {
		return tool.Strictest("there is no shell classifier"), false
	}
	switch class, why := classify(command, d.Class.Remembers); {
	case class == toolyard.ReadOnly:
		return d.Complete(tool.Judgement{Class: class, Why: why}, true), false
	case class == toolyard.WriteExclusive && d.Class.Remembers: // "cd a" twice is not "cd a" once
		j = d.Complete(tool.Judgement{Class: class, Why: why}, true)
		j.Idempotent = false
		return j, false
	default:
		return d.Complete(tool.Judgement{Class: toolyard.Unsafe, Why: why}, false), false
	}
}

// MaxWhyBytes bounds the reason of a judgement.
const MaxWhyBytes = 300

// Why shortens a foreign reason to one line of at most [MaxWhyBytes].
func Why(text string) string {
	const enough = 4 * MaxWhyBytes // of a text of any length
	if len(text) > enough {
		text = text[:enough]
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	return clip.Mark(text, MaxWhyBytes)
}

// CheckJudgement turns a tool's own answer into the effective judgement. A class that is unknown, or stricter than the
// declared one, is an error of the tool and means UNSAFE. A flag of the declaration wins. A flag that is left open has
// its strict meaning: a call that is not read-only counts as destructive, and as idempotent only if the tool says so.
func CheckJudgement(d tool.Declaration, j tool.Judgement) tool.Judgement {
	if !j.Class.Known() {
		return tool.Strictest(Why(fmt.Sprintf("the tool answered with the class %q", j.Class)))
	}
	if limit := d.Class.Static; limit != "" && j.Class.Strictness() > limit.Strictness() {
		return tool.Strictest(fmt.Sprintf("the tool answered %s and declares at most %s", j.Class, limit))
	}
	readOnly := j.ReadOnly && j.Class != toolyard.Unsafe
	out := d.Complete(tool.Judgement{Class: j.Class, Why: Why(j.Why)}, readOnly)
	out.Destructive = out.Destructive || j.Destructive
	if d.Idempotent == nil {
		out.Idempotent = out.Idempotent || j.Idempotent
	}
	if out.Why == "" {
		out.Why = "the tool's own judgement"
	}
	return out
}
