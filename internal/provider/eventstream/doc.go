// Package eventstream has the common parts of the providers' event stream decoders: the limits of a stream, and the
// calls that have begun and are incomplete. The package of each provider interprets its events.
//
//	bytes -> sse.Parser -> event -> the leaf's Handle -> Calls -> whole calls, in the order in which they began
//
// A call is emitted when its input is complete and every call that began before it was emitted, because a batch has the
// order of the model's output. A cut call is marked as such, and its result says so. All input from untrusted clients
// is bounded. The package is pure.
package eventstream

import "github.com/toolyard/toolyard"

// The limits of one stream. Past a limit it is broken: complete calls stand, incomplete ones are cut.
const (
	// MaxStreamBytes is the longest stream: a model's text, its thinking and media around its calls.
	MaxStreamBytes = 256 << 20
	// MaxEventBytes is the longest event; some providers repeat the whole response in the last one.
	MaxEventBytes = toolyard.MaxBatchBytes
	// MaxOpenCalls bounds the calls that have begun and were not emitted, and MaxOpenBytes the sum of their inputs.
	MaxOpenCalls = 1_000
	MaxOpenBytes = toolyard.MaxBatchBytes
	// MaxNotes bounds the parts that look like calls and are not executed here.
	MaxNotes = 1_000
)
