// Package eventstream is what the providers' raw event streams have in common: the limits of a stream, and the calls
// that have begun and are not whole yet. A leaf of a provider says what its events mean.
//
//	bytes -> sse.Parser -> event -> the leaf's Handle -> Calls -> whole calls, in the order in which they began
//
// A call goes out when its input is whole and every call that began before it went out: a batch is in the order of the
// model's output. What is cut becomes a call that is marked so, and its result says it. Everything that a stranger
// sends is bounded. The package is pure.
package eventstream

import "github.com/toolyard/toolyard"

// The limits of one stream. Past each of them it is broken: what was whole by then stands, what was not is cut.
const (
	// MaxStreamBytes is how long a stream may be: a model's words, its thinking and media around its calls.
	MaxStreamBytes = 256 << 20
	// MaxEventBytes is how long one event may be; the last of some providers repeats the whole response.
	MaxEventBytes = toolyard.MaxBatchBytes
	// MaxOpenCalls is how many calls have begun and not gone out at a time, and MaxOpenBytes how long their inputs may
	// be together.
	MaxOpenCalls = 1_000
	MaxOpenBytes = toolyard.MaxBatchBytes
)
