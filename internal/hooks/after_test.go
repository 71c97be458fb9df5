//go:build unix

package hooks

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/toolyard/toolyard/internal/pipeline"
)

// TestABrokenHookKeepsNoOtherFromLooking: the hooks behind one that breaks look at the output too, and what one of them
// withholds or replaces is not shown because another has broken.
func TestABrokenHookKeepsNoOtherFromLooking(t *testing.T) {
	r, clean := newRig(t), "clean"
	type fn = func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error)
	says := func(v pipeline.HookVerdict) fn {
		return func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) { return v, nil }
	}
	breaks := func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) {
		return pipeline.HookVerdict{}, errors.New("oops")
	}
	for name, c := range map[string]struct {
		then      fn
		onFailure OnFailure
		blocks    bool
	}{
		"it withholds":         {says(pipeline.HookVerdict{Block: true}), Withhold, true},
		"it breaks, withhold":  {breaks, Withhold, true},
		"it replaces":          {says(pipeline.HookVerdict{Output: &clean}), Block, true},
		"it has no objection":  {says(pipeline.HookVerdict{}), Withhold, false},
		"it breaks, continue":  {breaks, Continue, false},
		"it breaks, block too": {breaks, Block, false},
	} {
		var ran []string
		named := func(name string, run fn) fn {
			return func(ctx context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error) {
				ran = append(ran, name)
				return run(ctx, in)
			}
		}
		s := r.set(`{}`, Func{Name: "first", Event: PostToolUse, OnFailure: Block, Run: named("first", breaks)},
			Func{Name: "second", Event: PostToolUse, OnFailure: c.onFailure, Run: named("second", c.then)})
		v, err := s.Post(t.Context(), r.input("x", `{}`))
		if v.Block != c.blocks || (err == nil) != c.blocks || !slices.Equal(ran, []string{"first", "second"}) {
			t.Errorf("%s: %+v, %v, %v ran", name, v, err, ran)
		}
	}
}
