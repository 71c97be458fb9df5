package hooks

import "time"

// The limits of hooks.
const (
	DefaultTimeout = 60 * time.Second // of a hook without its own timeout
	MaxTimeout     = 10 * time.Minute // of one hook

	MaxConfigBytes = 1 << 20  // bytes of a configuration
	MaxHandlers    = 100      // hooks in it
	MaxAnswerBytes = 1 << 20  // bytes of a hook's answer: a command's stdout, a response's body
	MaxStderrBytes = 16 << 10 // bytes of a command's stderr that are kept, from its beginning
	MaxOutputBytes = 16 << 20 // bytes of a command's stdout and stderr together; past them it is stopped
	MaxReasonChars = 4_000    // characters of one hook's reason, for the model
	MaxNoteChars   = 500      // characters of one hook's message to the operator
	// bytes of inputs and outputs of a batch that its hooks see; past them they see only the ends
	MaxBatchBytes = 4 << 20
	MaxLeftBehind = 100 // abandoned Go hooks that still run, before no more are started
)
