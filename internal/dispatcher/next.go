//go:build nextversion

package dispatcher

import "github.com/toolyard/toolyard/internal/events"

// behindPlan is what the next version appends behind a plan.
func behindPlan() []events.Body {
	return []events.Body{events.Noted{Note: "planned by the next version"}}
}
