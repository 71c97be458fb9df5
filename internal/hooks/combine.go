package hooks

import (
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/pipeline"
)

// namedAnswer is one hook's answer.
type namedAnswer struct {
	who string
	answer
}

// strictness orders opinions.
var strictness = []pipeline.Behavior{"", pipeline.Allow, pipeline.Ask, pipeline.Deny}

// combine makes one verdict of the hooks' answers, in their order. The caller passes input and output from hook to
// hook. combine is pure. A block beats everything, deny beats ask, ask beats allow; the reason is that of the hooks
// that decided.
func combine(all []namedAnswer) pipeline.HookVerdict {
	var v pipeline.HookVerdict
	for _, s := range all {
		v.Block, v.Stop = v.Block || s.block, v.Stop || s.stop
		if slices.Index(strictness, s.opinion) > slices.Index(strictness, v.Opinion) {
			v.Opinion = s.opinion
		}
		v.Context = paragraphs(v.Context, s.context)
		if s.output != nil {
			v.Output = s.output
		}
	}
	if v.Block || v.Stop {
		v.Opinion = ""
	}
	var reasons, who []string
	for _, s := range all {
		decided := (v.Block || v.Stop) && (s.block || s.stop) || v.Opinion != "" && s.opinion == v.Opinion
		if decided && s.reason != "" && !slices.Contains(reasons, s.reason) {
			reasons = append(reasons, s.reason)
		}
		if decided || s.input != nil || s.output != nil || s.context != "" {
			who = append(who, s.who)
		}
	}
	v.Reason, v.By = strings.Join(reasons, "; "), strings.Join(who, ", ")
	return v
}
