// Package shell reads shell commands without running them. It answers two questions: does a command only read
// ([Classify], for the concurrency class), and which simple commands does it contain ([Parse] for rules that deny,
// [Parts] for those that allow)? For a command that has run it answers a third: was exit status 1 an answer
// ([Answers])?
//
// Commands are parsed as Bash, never searched as text. Everything is an allow-list: a program, an option, an expansion
// or a piece of syntax that is not known to be harmless makes the command UNSAFE. A wrong UNSAFE costs time; a wrong
// READ_ONLY runs a write beside other calls.
//
// READ_ONLY means: run by Bash with the usual programs on PATH, the command changes no file of the workspace and no
// other lasting state. It is not a security boundary. The programs' own configuration is assumed to be harmless (a
// repository's .git/config can name programs that git runs, and "go list" may add sums to go.work.sum), and caches
// that programs keep for themselves do not count. The sandbox limits what a command can reach, whatever its class.
//
// Both functions refuse text that Bash and this package might read in two ways: control characters, bytes that are not
// UTF-8, here-documents with an odd delimiter or inside a substitution.
//
// The package is pure. Its functions never panic.
package shell

// MaxCommandBytes is the longest command that is read, in bytes. A longer one is UNSAFE and does not parse. This bounds
// the parser's time (well under a second for the worst known input) and its recursion.
const MaxCommandBytes = 32 << 10
