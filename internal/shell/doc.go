// Package shell reads shell commands without running them. It answers two questions: does a command only read
// ([Classify], for the concurrency class), and which simple commands does it hold ([Parse] for rules that deny, [Parts]
// for those that allow). A third is asked of a command that has run: was exit status 1 its answer ([Answers])?
//
// Commands are parsed as Bash, never searched as text. Everything is an allow-list: a program, an option, an expansion
// or a piece of syntax that is not known to be harmless makes the command UNSAFE. A wrong UNSAFE costs time, a wrong
// READ_ONLY runs a write beside others, so every doubt goes one way.
//
// What READ_ONLY means here: run by Bash with the usual programs on PATH, the command changes no file of the workspace
// and no other state that lasts. It is no security boundary. It takes the programs' own configuration as given (a
// repository's .git/config can name programs that git runs), and caches that programs keep for themselves do not count.
// What a command may reach is the sandbox's business, whatever its class.
//
// Text that Bash and this package might read in two ways is refused by both functions: control characters, bytes that
// are not UTF-8, here-documents with an odd delimiter or inside a substitution.
//
// The package is pure. Its functions never panic.
package shell

// MaxCommandBytes is the longest command that is read, in bytes. A longer one is UNSAFE and does not parse. It bounds
// the parser's time (well under a second for the worst input known) and its recursion.
const MaxCommandBytes = 32 << 10
