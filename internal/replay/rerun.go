package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
)

// ActsError says that a batch was not run again, since it may act again.
type ActsError struct {
	// Calls names the calls that were not READ_ONLY, for people.
	Calls string
}

func (e *ActsError) Error() string {
	return "these calls were not READ_ONLY and may act again: " + e.Calls
}

// Rerun makes a batch of the recorded calls, to run them again: the same agent, session, workspace, options, call ids
// and inputs, without a batch id. Calls that were not judged READ_ONLY may act again, so they are refused unless writes
// are allowed: an [*ActsError]. If a batch cannot be run again for another reason, the error is a
// [*toolyard.InputError].
func (r *Report) Rerun(allowWrites bool) (toolyard.Batch, error) {
	s := &r.state
	refuse := func(format string, args ...any) (toolyard.Batch, error) {
		return toolyard.Batch{}, &toolyard.InputError{Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.Submission == nil:
		return refuse("the log has no submission, so the inputs of its calls are not known")
	case r.Contradiction != nil:
		return refuse("the log contradicts itself: %s", r.Contradiction)
	case s.Refused != nil:
		return refuse("the batch was refused, so there is nothing to compare with")
	}
	b := *s.Submission
	b.ID, b.Open = "", false
	b.Options.Parent = nil // the call that made it is over
	b.Calls = slices.Concat(s.Submission.Calls, s.Input)
	if allowWrites {
		return b, nil
	}
	var acting []string
	for i, c := range b.Calls {
		class, name := toolyard.Class("not judged"), c.Tool
		if s.Plan != nil && i < len(s.Plan.Calls) {
			class, name = s.Plan.Calls[i].Judgement.Class, s.Plan.Calls[i].Tool
		}
		if class != toolyard.ReadOnly {
			acting = append(acting, fmt.Sprintf("[%d] %s (%s)", i, plain(name), class))
		}
	}
	if len(acting) > 0 {
		more := ""
		if len(acting) > maxListed {
			more = fmt.Sprintf(" and %d more", len(acting)-maxListed)
			acting = acting[:maxListed]
		}
		return toolyard.Batch{}, &ActsError{Calls: strings.Join(acting, ", ") + more}
	}
	return b, nil
}

// Difference is a difference between the recorded and the new result of a call.
type Difference struct {
	Index  int    `json:"index" doc:"The call's index in the batch."`
	CallID string `json:"call_id" doc:"The provider's id of the call."`
	What   string `json:"what" enum:"result,tool,code,output,error,truncated" doc:"What differs."`
	Line   int    `json:"line,omitempty" doc:"The first line that differs, from 1, of an output or error."`
	Before string `json:"before" doc:"What was recorded: of an output or error that line, cut if it is long."`
	After  string `json:"after" doc:"What the new result has."`
}

// Differences compares the recorded results with new ones of the same calls, call by call.
func (r *Report) Differences(after []toolyard.Result) []Difference {
	out := []Difference{}
	results := map[int]*toolyard.Result{}
	for i := range after {
		results[after[i].Index] = &after[i]
	}
	n := len(r.state.Calls)
	if r.state.Submission != nil {
		n = len(r.state.Submission.Calls) + len(r.state.Input)
	}
	for i := range n {
		var was *toolyard.Result
		if i < len(r.state.Calls) {
			was = r.state.Calls[i].Result
		}
		out = append(out, difference(i, was, results[i])...)
	}
	return out
}

func difference(i int, was, is *toolyard.Result) (out []Difference) {
	if was == nil || is == nil {
		if was == is {
			return nil
		}
		say := func(r *toolyard.Result) (string, string) {
			if r == nil {
				return "", "no result"
			}
			return r.CallID, outcome(r)
		}
		id, before := say(was)
		other, after := say(is)
		return []Difference{{Index: i, CallID: id + other, What: "result", Before: before, After: after}}
	}
	for _, f := range []struct {
		what   string
		a, b   string
		inText bool
	}{
		{"tool", was.Tool, is.Tool, false},
		{"code", outcome(was), outcome(is), false},
		{"output", sameNonce(was, was.Output), sameNonce(is, is.Output), true},
		{"error", sameNonce(was, was.Error), sameNonce(is, is.Error), true},
		{"truncated", fmt.Sprint(was.Truncated), fmt.Sprint(is.Truncated), false},
	} {
		if f.a == f.b {
			continue
		}
		d := Difference{Index: i, CallID: was.CallID, What: f.what, Before: f.a, After: f.b}
		if f.inText {
			d.Before, d.After, d.Line = firstDifference(f.a, f.b)
		}
		out = append(out, d)
	}
	return out
}

// sameNonce is a text of a result without the nonce of its delimiters, which is another one in each result.
func sameNonce(r *toolyard.Result, text string) string {
	if r.Origin == nil || r.Origin.Fence == "" {
		return text
	}
	return strings.ReplaceAll(text, r.Origin.Fence, "nonce")
}

// maxShownBytes bounds a shown line.
const maxShownBytes = 200

// firstDifference returns the first differing line of both texts, and its number.
func firstDifference(a, b string) (lineA, lineB string, n int) {
	for n = 1; ; n++ {
		var restA, restB string
		var moreA, moreB bool
		lineA, restA, moreA = strings.Cut(a, "\n")
		lineB, restB, moreB = strings.Cut(b, "\n")
		if lineA == lineB && moreA && moreB {
			a, b = restA, restB
			continue
		}
		if lineA == lineB && moreA { // the other text ends here
			lineA += "\n"
		} else if lineA == lineB && moreB {
			lineB += "\n"
		}
		return shorten(lineA), shorten(lineB), n
	}
}

// shorten cuts a line to maxShownBytes.
func shorten(s string) string {
	if len(s) <= maxShownBytes {
		return s
	}
	return clip.Bytes(s, maxShownBytes) + "…"
}

// Text describes the difference in one line.
func (d Difference) Text() string {
	where := d.What
	if d.Line > 0 {
		where += fmt.Sprintf(" line %d", d.Line)
	}
	return fmt.Sprintf("[%d] %s: %q, now %q", d.Index, where, d.Before, d.After)
}
