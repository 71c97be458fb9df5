package builtin

import "time"

// Every bound of the built-in tools. Exceeding one is an error that names it, or a note at the end of the output that
// says what was left out and how to get it.
const (
	// Paths and patterns.
	MaxPathBytes       = 4096  // bytes of a path
	MaxPathSteps       = 512   // names of one path, including those of symbolic links on its way
	MaxSymlinks        = 40    // symbolic links on the way of one path, as in Linux
	MaxPatternBytes    = 4096  // bytes of a glob or of a regular expression
	MaxGlobAlternative = 1_024 // plain patterns that the {a,b} groups of one glob produce
	MaxNearNames       = 3     // names suggested for a missing one
	MaxNearEntries     = 2_000 // directory entries searched for them

	// Output for the model.
	MaxOutputBytes = 256 << 10 // bytes of text of one read_file, grep or read_result
	MaxOffset      = 1<<31 - 1 // the largest offset that a call may give

	// Characters of one output that go to the model; a longer one is offloaded. The other tools bound their outputs
	// themselves.
	MaxBashChars        = 50_000
	MaxGlobChars        = 100_000 // MaxGlobResults paths of usual length
	MaxGrepChars        = 50_000
	MaxFetchResultChars = 100_000 // more than a call's own limit, if it sets none

	// read_file.
	DefaultReadLines = 2_000     // lines if the call sets no limit
	MaxReadLines     = 100_000   // lines that a call may ask for; MaxOutputBytes cuts earlier
	MaxLineChars     = 2_000     // characters shown of one line
	MaxScanBytes     = 256 << 20 // bytes that one call reads, including lines skipped for offset
	BinaryProbeBytes = 8 << 10   // bytes at the start that decide whether a file is text

	// glob and grep.
	MaxWalkEntries   = 200_000   // directory entries that one call reads
	MaxWalkDepth     = 256       // nesting depth of directories below the searched one
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
	MaxNearLines  = 3        // lines suggested if old_string is not found
	MaxShownSpots = 10       // line numbers listed if old_string is found more than once

	MaxDiffFileBytes = 2 << 20 // bytes of a file, before and after, up to which a diff is made

	// bash.
	MaxCommandBytes     = 128 << 10 // bytes of a command: the kernel's own limit of one argument
	DefaultBashTimeout  = 2 * time.Minute
	MaxBashTimeout      = 10 * time.Minute
	MaxDescriptionBytes = 1 << 10 // bytes of the description beside a command

	// web_fetch.
	MaxURLBytes       = 8 << 10   // bytes of a URL
	MaxRedirects      = 5         // all at the same host
	MaxFetchBytes     = 5 << 20   // bytes of a body after decompression; the rest is left out
	MaxFetchText      = 8 << 20   // bytes of text to which a page is reduced, with the whole addresses of its links
	MaxFetchTitle     = 500       // characters of a page's title
	MaxFetchHeader    = 64 << 10  // bytes of a response's header
	DefaultFetchChars = 40_000    // characters of text if the call sets no max_chars
	MaxFetchChars     = 1_000_000 // characters that a call may ask for
	FetchTimeout      = 30 * time.Second
	DialTimeout       = 10 * time.Second // each for: resolve a name, connect to one address, handshake

	// tool_search.
	MaxQueryBytes       = 1 << 10   // bytes of a query
	MaxQueryWords       = 32        // words of it that are used
	DefaultSearchTools  = 5         // tools if the call sets no limit
	MaxSearchTools      = 20        // tools that a call may ask for
	MaxSearchBytes      = 128 << 10 // bytes of the definitions of one answer; further tools are only named
	MaxSearchNames      = 30        // names of tools that a search without a match lists
	MaxSearchShownChars = 2_000     // characters shown of one description

	// read_result.
	MaxRefBytes        = 1 << 10 // bytes of a reference
	DefaultResultChars = 50_000  // characters if the call sets no limit
	MaxResultChars     = 200_000 // characters that a call may ask for; MaxOutputBytes cuts earlier
)
