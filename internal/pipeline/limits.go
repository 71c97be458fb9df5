package pipeline

import "time"

// The limits of a call in the pipeline. Sizes count encoded bytes where they say bytes.
const (
	// for hooks and other functions to return after their context ended
	DefaultGrace         = 100 * time.Millisecond
	DefaultStopGrace     = 2 * time.Second  // for a tool to return after its context ended
	DefaultCheckTimeout  = 10 * time.Second // of a tool's Check and Judge
	DefaultFinishTimeout = 30 * time.Second // of the phases after execute, which no cancel stops
	DefaultMaxLeaked     = 100              // abandoned goroutines before no new call is started

	// bytes of a text in a result, encoded as JSON, whatever its tool's limit; a longer text goes to the blob store
	MaxInlineResultBytes = 16 << 20
	MaxOutputBytes       = 16 << 20 // bytes of a whole output, with parts and data; more is result_too_large
	// parts of an output in a result; further parts go to the blob store, as JSON
	MaxContentParts = 100
	// bytes of a part's name, title, description, URI and type, each; a longer one is cut and marked
	MaxPartFieldBytes = 4 << 10
	// bytes of images and other data in a result, before encoding; more goes to the blob store
	MaxInlineDataBytes = 64 << 10
	// encoded bytes of an output as data, or the tool's own limit if that is higher; longer data is left out, and the
	// text stays
	MaxStructuredBytes = 256 << 10
	PreviewHeadChars   = 4_000 // characters of a long output that stay in the result, from its beginning
	PreviewTailChars   = 1_000 // and from its end

	MaxErrorChars = 10_000 // characters of an error message for the model; its middle is cut out
	// bytes of a failed call's output that its error includes; a longer output is only in the result's output
	MaxErrorOutputBytes = 8 << 10
	MaxDetailBytes      = 16 << 10 // bytes of a result's detail
	MaxFactDetailBytes  = 2 << 10  // bytes of a fact's detail
	MaxHookContextChars = 10_000   // characters that the hooks of one call may add to its output
	// characters of why a person is asked, and of what requires it, each; the middle is cut out
	MaxAskReasonChars = 10_000

	MaxShownDiffBytes        = 16 << 10 // bytes of what a call would change, for the person who decides
	MaxObservableBytes       = 32 << 10 // bytes of the observable copy of an input
	MaxObservableStringBytes = 2 << 10  // bytes of one string in an observable copy that is too long as a whole
	// bytes of an input that hooks see whole, which any command of bash is below; of a longer one they see the
	// observable copy
	MaxHookInputBytes = 1 << 20
)
