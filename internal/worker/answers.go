package worker

import (
	"context"

	"github.com/toolyard/toolyard/internal/broker"
)

// answers runs functions, each with one of the places, and returns what they say. Those that say nothing until ctx ends
// are given up, and late is said of their calls; they keep their places until they return.
func answers(ctx context.Context, places chan struct{}, asked map[int]func() broker.Judged, late string,
) (out []broker.Judged) {
	said := make(chan broker.Judged, len(asked)) // nobody who is late waits to say it
	waiting := map[int]bool{}
	for index, answer := range asked {
		waiting[index] = true
		go func() {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-places }()
			said <- answer()
		}()
	}
	for len(waiting) > 0 {
		select {
		case j := <-said:
			out = append(out, j)
			delete(waiting, j.Index)
		case <-ctx.Done():
			for index := range waiting {
				out = append(out, broker.Judged{Index: index, Failed: late})
			}
			return out
		}
	}
	return out
}
