package toolset

import "time"

// The limits of a server. Those that an operator can change stand in the manifest.
const (
	MaxPages            = 128      // of one listing
	MaxSchemaBytes      = 64 << 10 // encoded bytes of one schema; a longer one of an input leaves its tool out
	MaxDescriptionBytes = 16 << 10 // of one tool; the rest is cut off
	MaxMessageBytes     = 24 << 20 // of one message from the server: an output's limit, and its encoding
	MaxLinesPerSecond   = 300      // of what it goes on sending, progress and all
	MaxLinesAtOnce      = 1_000    // of what it sends beyond that, before it is too much
	MaxStatusBytes      = 1_000    // of one progress message
	maxStderrBytes      = 4 << 10  // of its stderr's end, for the operator
	maxFailureBytes     = 8 << 10  // of a failure's words in its error; longer ones are its output

	DefaultMinPause = 500 * time.Millisecond
	DefaultMaxPause = time.Minute
	// healthyAfter is how long a session lasts that says nothing against the next one.
	healthyAfter = time.Minute
	// relistPause is the least time between two listings.
	relistPause = time.Second
	// writeTimeout is how long a server may not read what is sent to it.
	writeTimeout = 10 * time.Second
	// stopGrace is how long a server that was started may take to end once its stdin is closed.
	stopGrace = 2 * time.Second
	// cutGrace is how long a call waits for its answer when the response that should hold it has ended.
	cutGrace = 3 * time.Second
	// maxSilent is how many calls in a row may run out of time, with no sign of life between, before the session is
	// given up.
	maxSilent = 3
)
