package hooks

import "time"

// The limits of hooks.
const (
	DefaultTimeout = 60 * time.Second // of a hook that names none
	MaxTimeout     = 10 * time.Minute // of one hook

	MaxConfigBytes = 1 << 20  // bytes of a configuration
	MaxHandlers    = 100      // hooks in it
	MaxAnswerBytes = 1 << 20  // bytes of what a hook answers: a command's stdout, a response's body
	MaxStderrBytes = 16 << 10 // bytes of a command's stderr that are kept, from its beginning
	MaxOutputBytes = 16 << 20 // bytes of a command's stdout and stderr together, before it is stopped
	MaxReasonChars = 4_000    // characters of one hook's reason, for the model
	MaxNoteChars   = 500      // characters of what one hook says to the operator
	// bytes of inputs and outputs of a batch that are shown to its hooks; of the rest only the ends are
	MaxBatchBytes = 4 << 20
	MaxLeftBehind = 100 // hooks in Go that ignored their end and still run, before none is started any more
)
