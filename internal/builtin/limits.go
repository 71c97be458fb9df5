package builtin

import "time"

// Every bound of the built-in tools. What lies past one of them is an error that names it, or a note at the end of the
// output that says what was left out and how to get it.
const (
	// Paths and patterns.
	MaxPathBytes       = 4096  // bytes of a path
	MaxPathSteps       = 512   // names of one path, those of the symbolic links on its way included
	MaxSymlinks        = 40    // symbolic links on the way of one path, as in Linux
	MaxPatternBytes    = 4096  // bytes of a glob or of a regular expression
	MaxGlobAlternative = 1_024 // plain patterns that the {a,b} groups of one glob stand for
	MaxNearNames       = 3     // names offered for one that is not there
	MaxNearEntries     = 2_000 // directory entries looked at for them

	// What goes to the model.
	MaxOutputBytes = 256 << 10 // bytes of text of one read_file, grep or read_result
	MaxOffset      = 1<<31 - 1 // the largest offset that a call may give

	// Characters of one output that go to the model; more is offloaded. The others bound their outputs themselves.
	MaxBashChars        = 50_000
	MaxGlobChars        = 100_000 // MaxGlobResults paths of usual length
	MaxGrepChars        = 50_000
	MaxFetchResultChars = 100_000 // more than the call's own limit, if it gives none

	// read_file.
	DefaultReadLines = 2_000     // lines when the call gives no limit
	MaxReadLines     = 100_000   // lines that a call may ask for; MaxOutputBytes cuts earlier
	MaxLineChars     = 2_000     // characters shown of one line
	MaxScanBytes     = 256 << 20 // bytes that one call reads, lines skipped for offset included
	BinaryProbeBytes = 8 << 10   // bytes at the start that decide whether a file is text

	// glob and grep.
	MaxWalkEntries   = 200_000   // directory entries that one call looks at
	MaxWalkDepth     = 256       // directories inside each other below the one that is searched
	MaxGlobResults   = 1_000     // paths in one answer
	MaxGrepMatches   = 1_000     // matching lines in one answer
	MaxGrepLineChars = 500       // characters shown of one line
	MaxGrepContext   = 20        // lines around a match
	MaxGrepFileBytes = 10 << 20  // bytes of a file; larger ones are skipped
	MaxGrepBytes     = 512 << 20 // bytes searched by one call

	// write_file and edit_file.
	MaxWriteBytes = 10 << 20 // bytes of a file that is written or edited
	MaxDiffBytes  = 32 << 10 // bytes of the diff of one write
	MaxNearBytes  = 2 << 20  // bytes searched for text like old_string
	MaxNearLines  = 3        // lines offered when old_string is not found
	MaxShownSpots = 10       // line numbers listed when old_string is found more than once

	MaxDiffFileBytes = 2 << 20 // bytes of a file, before and after, of which a diff is made

	// bash.
	MaxCommandBytes     = 128 << 10 // bytes of a command: the kernel's own limit of one argument
	DefaultBashTimeout  = 2 * time.Minute
	MaxBashTimeout      = 10 * time.Minute
	MaxDescriptionBytes = 1 << 10 // bytes of the description beside a command

	// web_fetch.
	MaxURLBytes       = 8 << 10   // bytes of a URL
	MaxRedirects      = 5         // all at the same host
	MaxFetchBytes     = 5 << 20   // bytes of a body after decompression; the rest is left out
	MaxFetchHeader    = 64 << 10  // bytes of a response's header
	DefaultFetchChars = 40_000    // characters of text when the call gives no max_chars
	MaxFetchChars     = 1_000_000 // characters that a call may ask for
	FetchTimeout      = 30 * time.Second
	DialTimeout       = 10 * time.Second // each of: resolve a name, connect to one address, shake hands
	MaxRetryAfter     = time.Hour        // what a Retry-After is cut to

	// tool_search.
	MaxQueryBytes       = 1 << 10   // bytes of a query
	MaxQueryWords       = 32        // words of it that count
	DefaultSearchTools  = 5         // tools when the call gives no limit
	MaxSearchTools      = 20        // tools that a call may ask for
	MaxSearchBytes      = 128 << 10 // bytes of the definitions of one answer; what is behind them is named only
	MaxSearchNames      = 30        // names of tools that a search without a match offers
	MaxSearchShownChars = 2_000     // characters shown of one description

	// read_result.
	MaxRefBytes        = 1 << 10 // bytes of a reference
	DefaultResultChars = 50_000  // characters when the call gives no limit
	MaxResultChars     = 200_000 // characters that a call may ask for; MaxOutputBytes cuts earlier
)
