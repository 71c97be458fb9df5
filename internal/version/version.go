// Package version has the version of what this build writes for other processes, and that of the build itself.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Wire is the version of what this build writes for other processes to read: events, work messages, keys and
// settings. Each event names the version that wrote it, and so do the streams' metadata and the workers' entries. A
// build reads what its own and every older version wrote; what a newer one wrote and it does not know it leaves to one
// that does (docs/adr/0023).
//
// Whoever changes what is written raises it in the same commit, and adds a line. TestWireForms finds it when that was
// forgotten. The clients in other languages have it in their versions, which this writes:
// go test -C test/clients -run TestVersions -update.
//
//	1  2026-11-22  The first that is written down. What names no version was written before, since 2026-11-21.
//	2  2026-11-22  A worker's entry says which tools it leaves out or has altered.
//	3  2026-11-22  Calls carry the name that the model used, judgements why there is none, waiting calls what they would
//	               change, and surfaces which tools the operator defers.
//	               The operator's rules in a plan, which older dispatchers would drop; the decision that supersedes; checks of edits.
//	4  2026-11-23  Calls are queued and end in items: a start lists them, and events of an item name their calls.
//	5  2026-11-23  A worker's entry says its host, how many tools it offers, and how many of its slots have a call.
//	6  2026-11-23  A ticket may be for several groups, and a plan may start its first group under one.
//	7  2026-11-23  Workers have tags; batches, tools and calls to run ask for them. Batches have a priority.
//	8  2026-11-23  A session says how far it was interrupted. Plans have inputs that were mended.
//	9  2026-11-23  The chains of an archived batch end in fences, and its batch chain names the object that has its log.
//	10 2026-11-23  Calls may end as rate_limited and budget_exceeded. Plans say what calls depend on and what they cost, and
//	               calls to run how long they waited. Budgets have accounts. Batches may be dry runs, which older
//	               dispatchers would run. Plans and the ends of calls are stored in slim forms: an older dispatcher leaves their
//	               batches to a newer one, and older readers of events show their types. Replies are as before.
//	11 2026-11-23  A system may have several shards: its settings say how many, and interrupts are about each.
//	12 2026-11-23  A tool may declare a cache. Queues and tickets say the generation of a workspace, and calls to run the
//	               one that they have; results say how the cache was used. A system may get more shards while it is
//	               used: there is a map of them, a fence for ids that have moved, and a seal for ticket queues. Results
//	               say that they come from outside, and declarations whether their tools' outputs may. Batches and calls
//	               to run ask for delimiters around such outputs.
//	               Batches may ask for snapshots, and undo others: older workers and dispatchers would run them without.
//	               Dispatchers ask workers to repair inputs, which older workers leave as they are.
//	13 2026-11-23  A worker's entry says which shards it serves, and dispatchers say it when they are asked: an older
//	               dispatcher counts such a worker for all shards, and a raise waits for one that does not answer.
//	               Batches may ask for named locks, and tools declare them. Tickets, groups and calls to run have names.
//	               Batches whose ids begin with bg- or bgw- are background calls, which sessions list.
//	               Batches name the running call for which they were made, and bound calls of a provider's program: an
//	               older dispatcher would run them without either. Workers ask dispatchers for such batches.
//	               Declarations say whether a tool's shell remembers: an older dispatcher would run a command that moves
//	               the shell beside others.
//	               Batches may run on overlays, which others show, commit or drop: older workers would run them in the
//	               workspace. Results say what an overlay changes.
//	14 2026-11-26  Calls wait for the answers to what their tools ask, and go on with them: an older dispatcher would take
//	               an answer for a call's input.
//	               Submissions and calls to run have a trace state and baggage, which older processes drop.
//	15 2026-11-26  Batches may have commands go on as background calls, which an older dispatcher would not stop when
//	               their starts fail. Decisions about calls are signed.
//	16 2026-11-27  Calls that run on an overlay, or use one, say which workers have claimed the calls that ran there.
//	               A system's settings may name the compression of its streams.
//	17 2026-11-28  Calls to run say how many earlier attempts did not start the tool: an older worker counts those too.
const Wire = 17 + yetToCome

// Archives is the version from which on a process can read archived batches.
const Archives = 9

// Shards is the version from which on a process knows systems of several shards.
const Shards = 11

// Raises is the version from which on a process knows systems that were given more shards than they were made with.
const Raises = 12

const modulePath = "github.com/toolyard/toolyard"

// unknown is the version of a build that does not say which one it is.
const unknown = "(devel)"

// Info says which Toolyard is in a program. All of it comes from what Go writes into every program, so that a build of
// a release, of a checkout and by "go install" say it alike.
type Info struct {
	// Release is the version of the module: a tag, or for a checkout between two tags a time and a commit. "+dirty"
	// ends it where files were changed. It is "(devel)" when the build does not say.
	Release string `json:"release"`
	// Commit is the revision of the checkout that was built. Empty: the build does not say, as "go install" does not.
	Commit string `json:"commit,omitempty"`
	// CommitTime is when it was made, as RFC 3339 has it.
	CommitTime string `json:"commit_time,omitempty"`
	// Modified says that the checkout had changes that are in no commit.
	Modified bool `json:"modified,omitempty"`
	// Go is the version of Go that built the program, and Platform is what for.
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Wire     int    `json:"wire_version"`
}

// Read says which Toolyard is in this program.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return infoOf(info)
}

// Build names release and commit in one word: v1.2.3+0123456789ab. A release that has the commit in its name, or whose
// commit is not known, stands alone.
func Build() string { return Read().Build() }

// commitChars is how much of a commit stands beside a release, as Go has it in versions between two tags.
const commitChars = 12

// Build is what the function of that name says, of this build.
func (i Info) Build() string {
	commit := i.Commit[:min(len(i.Commit), commitChars)]
	switch {
	case commit == "" || strings.Contains(i.Release, commit):
		return i.Release
	case strings.Contains(i.Release, "+"): // one plus is all that a version has
		return i.Release + "." + commit
	}
	return i.Release + "+" + commit
}

// infoOf looks for this module: it is the program's own, or one that the program is made with. What the build says of
// a checkout is about the program's own module.
func infoOf(info *debug.BuildInfo) Info {
	i := Info{Release: unknown, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Wire: Wire}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Replace != nil {
			m = &debug.Module{Path: m.Path, Version: m.Replace.Version}
		}
		if m.Path == modulePath && m.Version != "" {
			i.Release = m.Version
			break
		}
	}
	if info.Main.Path != modulePath {
		return i
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.time":
			i.CommitTime = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
	return i
}
