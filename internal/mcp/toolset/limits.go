package toolset

import "time"

// The limits of a server. Those that an operator can change are in the manifest.
const (
	MaxPages            = 128      // of one listing
	MaxListBytes        = 24 << 20 // of all pages of one listing: each may be as long as a message
	MaxSchemaBytes      = 64 << 10 // encoded bytes of one schema; a tool with a longer input schema is left out
	MaxDescriptionBytes = 16 << 10 // of one tool; the rest is cut off
	MaxMessageBytes     = 24 << 20 // of one message from the server: the limit of an output, encoded
	MaxLinesPerSecond   = 300      // sustained rate of what it sends, including progress
	MaxLinesAtOnce      = 1_000    // burst above that rate
	MaxStatusBytes      = 1_000    // of one progress message
	maxStderrBytes      = 4 << 10  // of the end of its stderr, for the operator
	maxNoiseBytes       = 200      // of a line of its stdout that is no message, for the operator
	maxFailureBytes     = 8 << 10  // of a failure's text in its error; a longer text is its output

	DefaultMinPause = 500 * time.Millisecond
	DefaultMaxPause = time.Minute
	// healthyAfter is how long a session must last to count as healthy, so that the next pause is short.
	healthyAfter = time.Minute
	// relistPause is the minimum time between two listings.
	relistPause = time.Second
	// listenPause is the shortest time between two streams for what a server over HTTP says of itself.
	listenPause = time.Second
	// lastingAfter is how long a response with changes must last so that the next pause is short, and the shortest time
	// between two lists that are read because streams ended.
	lastingAfter = 30 * time.Second
	// writeTimeout is how long a server may not read its input.
	writeTimeout = 10 * time.Second
	// stopGrace is how long a started server may take to end after its stdin is closed.
	stopGrace = 2 * time.Second
	// cutGrace is how long a call waits for its answer after the response that should contain it has ended.
	cutGrace = 3 * time.Second
	// askedGrace is how long a server may take to end a call when a person is asked its question.
	askedGrace = 10 * time.Second
	// minLook and maxLook bound the pause that a server wants between two looks at a task; defaultLook is that of one
	// that does not say.
	minLook     = 100 * time.Millisecond
	maxLook     = 10 * time.Second
	defaultLook = time.Second
	// askTimeout bounds the wait for how a task stands, and maxLostLooks is after how many looks in a row that were not
	// answered the task counts as lost.
	askTimeout   = 30 * time.Second
	maxLostLooks = 3
	// taskSlack is how much longer than its call a server is asked to keep a task.
	taskSlack = time.Minute
	// maxSilent is how many calls in a row may time out, with no sign of life between them, before the session is
	// restarted.
	maxSilent = 3
)
