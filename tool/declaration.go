package tool

import (
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
)

// Declaration describes a tool to programs that do not have its code. It is plain data, and its hash identifies the
// tool. The zero value of each field is its strictest setting. The dispatcher enforces the class; the permission phase
// enforces read-only, destructive and interaction; the worker enforces timeouts and sizes.
type Declaration struct {
	// Name is the name by which the model calls the tool: 1 to 128 bytes. A precise name helps the model to choose.
	Name string `json:"name"`
	// Description tells the model what the tool does and when to use it.
	Description string `json:"description"`
	// InputSchema is a JSON Schema (2020-12) of an object. Unknown fields are refused unless it opens them.
	InputSchema json.RawMessage `json:"input_schema"`
	// OutputSchema is a JSON Schema that Output.Structured must match. Nil: any.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Aliases are former names, for transcripts that still use them. Only built-in tools may have them.
	Aliases []string `json:"aliases,omitempty"`

	// Class says how the concurrency class of a call is found. Zero: UNSAFE.
	Class ClassRule `json:"concurrency_class"`
	// Execution says where calls run, and so what isolates them. Zero: in the worker's own process, which isolates
	// nothing, so that UNSAFE calls are refused.
	Execution Execution `json:"execution,omitempty"`
	// ReadOnly says that no call of the tool changes anything that lasts. With Class.Shell or Class.Ask it is judged
	// for each call instead, and this field is not read.
	ReadOnly bool `json:"is_read_only,omitempty"`
	// Destructive says whether a call can do what cannot be undone. Nil: true unless the call is read-only.
	Destructive *bool `json:"is_destructive,omitempty"`
	// Idempotent says that running a call twice does no more than running it once. Nil: as read-only.
	Idempotent *bool `json:"idempotent,omitempty"`
	// RequiresPermission says that somebody must allow a call. Nil: true. A read-only call inside the workspace is
	// allowed all the same, unless a rule says otherwise.
	RequiresPermission *bool `json:"requires_permission,omitempty"`
	// RequiresUserInteraction says that the tool talks to a person. Its calls are refused in batches where nobody can
	// be asked.
	RequiresUserInteraction bool `json:"requires_user_interaction,omitempty"`
	// UsesWorkspace says that calls act on the batch's workspace and so need its ticket. Nil: true.
	UsesWorkspace *bool `json:"uses_workspace,omitempty"`
	// Locks are what calls need of the workspace in place of the whole, where the batch asks for named locks: names
	// such as "file:{file_path}" or "shared table:{table}", at most [MaxLocks]. A call that is READ_ONLY shares
	// all of them. Calls of other names may run beside it, so a call must touch nothing else. Empty: the whole
	// workspace.
	Locks []string `json:"locks,omitempty"`
	// EditsWorkspace says that a call changes nothing but files of the workspace, through checked paths. The permission
	// mode accept_edits allows such calls.
	EditsWorkspace bool `json:"edits_workspace,omitempty"`
	// OpenWorld says that outputs may hold what anybody has written: pages of the web, what an MCP server gives. Such
	// outputs are marked; see [toolyard.Origin]. Nil: true, unless a path says where a call acts and calls only read or
	// only edit the workspace.
	OpenWorld *bool `json:"open_world,omitempty"`
	// Specifier says which input field a permission rule's specifier is matched against. Zero: rules for this tool
	// can have none.
	Specifier Specifier `json:"specifier,omitzero"`
	// Interrupt says what a session's interrupt does to a running call. Empty: block.
	Interrupt Interrupt `json:"interrupt_behavior,omitempty"`
	// ShouldDefer leaves the schema out of the prompt until tool_search loads it. AlwaysLoad keeps it in the prompt.
	ShouldDefer bool `json:"should_defer,omitempty"`
	AlwaysLoad  bool `json:"always_load,omitempty"`
	// MaxResultSizeChars is how many characters of output go to the model; what is longer is offloaded and previewed.
	// 0: [DefaultMaxResultSizeChars]. -1: no limit, up to 16 MiB.
	MaxResultSizeChars int `json:"max_result_size_chars,omitempty"`
	// TimeoutMS is the hard maximum of one execution, in milliseconds. 0: [DefaultTimeout].
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// IdleTimeoutMS ends an execution that reports no progress for this long, in milliseconds. TimeoutMS applies too.
	// 0: no such limit.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	// MaxInFlight limits how many calls of the tool each worker runs at a time. 0: only the worker's slots do.
	MaxInFlight int `json:"max_in_flight,omitempty"`
	// Tags are the tags that a worker must have to run the tool's calls, all of them.
	Tags []toolyard.Tag `json:"tags,omitempty"`
	// AbortsSiblings says that a call that fails while executing cancels the rest of its group. Nil: true. For tools
	// from manifests and MCP servers, and for built-in tools that read, the default is false.
	AbortsSiblings *bool `json:"aborts_siblings,omitempty"`
	// Dependency names the service behind the tool, which has one circuit breaker for all tools that name it. Empty:
	// the tool's name; for a tool with a URL specifier, each host in its calls.
	Dependency string `json:"dependency,omitempty"`
	// Cost is how much one execution counts against cost budgets, in units that the operator chooses. 0: nothing.
	Cost int64 `json:"cost,omitempty"`
	// Cache says when an output answers other calls with the same input. Nil: never.
	Cache *Cache `json:"cache,omitempty"`
}

// MaxCost is the highest value of [Declaration].Cost.
const MaxCost = 1_000_000_000

// Defaults of [Declaration] fields that are left zero.
const (
	DefaultMaxResultSizeChars = 50_000
	DefaultTimeout            = 2 * time.Minute
)

// Execution says where a tool's calls run.
type Execution string

// The places of execution.
const (
	// InWorker is the worker's own process. Nothing isolates it: UNSAFE calls end as setup_required, unless the
	// operator lets the worker run them without a sandbox.
	InWorker Execution = ""
	// InSandbox is a process that the tool starts in the worker's sandbox, as bash and command tools do. Only workers
	// with a sandbox get such calls, of whatever class.
	InSandbox Execution = "sandbox"
	// InService is a service that the operator runs and the tool only asks, such as an HTTP service or an MCP server.
	// The worker runs nothing that the call names. The service's operator isolates it. UNSAFE calls are exclusive there
	// too.
	InService Execution = "service"
	// InWasm is a WebAssembly module in the worker. It reaches only what the operator gave it, so any worker can run
	// its calls, of whatever class.
	InWasm Execution = "wasm"
)

// Known reports whether e is one of the constants above.
func (e Execution) Known() bool {
	return e == InWorker || e == InSandbox || e == InService || e == InWasm
}

// NeedsIsolation reports whether calls of a class may run only on a worker that can isolate them. A program that runs
// tools in its own process cannot: see [InWorker].
func (d *Declaration) NeedsIsolation(c toolyard.Class) bool {
	switch d.Execution {
	case InService, InWasm:
		return false
	case InWorker:
		return c.Strictness() >= toolyard.Unsafe.Strictness()
	}
	return true
}

// Specifier names the input field that permission rules match. Set at most one of its fields.
type Specifier struct {
	Path    string `json:"path,omitempty"`    // a path: workspace-relative globs
	Command string `json:"command,omitempty"` // a shell command: command prefixes
	URL     string `json:"url,omitempty"`     // a URL: domain:example.com
}

// one reports whether at most one field is named.
func (s Specifier) one() bool {
	named := 0
	for _, field := range []string{s.Path, s.Command, s.URL} {
		if field != "" {
			named++
		}
	}
	return named <= 1
}

// Interrupt says how an interrupt of the session affects a running call.
type Interrupt string

// The interrupt behaviors.
const (
	Block  Interrupt = "block"  // let the call finish; the default
	Cancel Interrupt = "cancel" // stop the call, which ends as canceled
)

// Known reports whether i is one of the constants above, or empty.
func (i Interrupt) Known() bool { return i == "" || i == Block || i == Cancel }

// ClassRule says how the dispatcher finds the concurrency class of a call without having the tool's code. The zero
// rule means UNSAFE.
type ClassRule struct {
	// Static is the class of every call, when neither Shell nor Ask is set.
	Static toolyard.Class `json:"static,omitempty"`
	// Shell names the input field that holds a shell command. A call is READ_ONLY if every part of the command is known
	// to only read, and UNSAFE otherwise.
	Shell string `json:"shell,omitempty"`
	// Remembers says that later commands of the session find the directory and the variables of earlier ones. A command
	// that only reads and moves the shell is then WRITE_EXCLUSIVE, and one that reads variables UNSAFE. It needs Shell.
	Remembers bool `json:"remembers,omitempty"`
	// Ask lets a worker's [Tool.Judge] decide, with one request per batch and pool. No answer, or an error, means
	// UNSAFE. If Static is set too, it is the strictest class that Judge may return; a stricter one counts as an error.
	Ask bool `json:"ask,omitempty"`
}

// Judgement is what the dispatcher found out about one call from its input. The plan records it, and the permission
// phase and retries use it.
type Judgement struct {
	Class       toolyard.Class `json:"class"`
	ReadOnly    bool           `json:"read_only,omitempty"`
	Destructive bool           `json:"destructive,omitempty"`
	Idempotent  bool           `json:"idempotent,omitempty"`
	// Why says what decided, for people.
	Why string `json:"why,omitempty"`
}

// Strictest returns the judgement of a call about which nothing is known.
func Strictest(why string) Judgement {
	return Judgement{Class: toolyard.Unsafe, Destructive: true, Why: why}
}

// Needs says whether a flag that is true unless declared otherwise is true.
func needs(flag *bool) bool { return flag == nil || *flag }

// NeedsPermission reports whether a rule, a mode or a person must allow a call.
func (d *Declaration) NeedsPermission() bool { return needs(d.RequiresPermission) }

// NeedsWorkspace reports whether calls act on the batch's workspace.
func (d *Declaration) NeedsWorkspace() bool { return needs(d.UsesWorkspace) }

// ReadsOutside reports whether outputs may hold what anybody has written. A tool whose calls are judged one by one is
// taken by its strictest call.
func (d *Declaration) ReadsOutside() bool {
	if d.OpenWorld != nil {
		return *d.OpenWorld
	}
	j, static := d.StaticJudgement()
	return d.Specifier.Path == "" || !d.EditsWorkspace && (!static || !j.ReadOnly)
}

// FailureAbortsSiblings reports whether a failing call cancels the rest of its group.
func (d *Declaration) FailureAbortsSiblings() bool {
	return needs(d.AbortsSiblings)
}

// Timeout returns the hard maximum of one execution.
func (d *Declaration) Timeout() time.Duration {
	if d.TimeoutMS <= 0 {
		return DefaultTimeout
	}
	return time.Duration(d.TimeoutMS) * time.Millisecond
}

// IdleTimeout returns how long an execution may go without reporting progress; 0 means no limit.
func (d *Declaration) IdleTimeout() time.Duration {
	return time.Duration(max(0, d.IdleTimeoutMS)) * time.Millisecond
}

// MaxResultChars returns how many characters of output go to the model; -1 means all. An invalid number counts as 0.
func (d *Declaration) MaxResultChars() int {
	if d.MaxResultSizeChars == 0 || d.MaxResultSizeChars < -1 {
		return DefaultMaxResultSizeChars
	}
	return d.MaxResultSizeChars
}

// StaticJudgement applies a static class and the flags; ok is false when the rule needs the input ([ClassRule.Shell])
// or the tool's code ([ClassRule.Ask]).
func (d *Declaration) StaticJudgement() (j Judgement, ok bool) {
	switch {
	case d.Class.Shell != "" || d.Class.Ask:
		return Judgement{}, false
	case d.Class.Static == "":
		j = Strictest("the tool declares no class")
	case !d.Class.Static.Known():
		j = Strictest("the tool declares an unknown class")
	default:
		j = Judgement{Class: d.Class.Static, Why: "declared"}
	}
	return d.Complete(j, d.ReadOnly), true
}

// Complete fills in the flags of a judgement whose class is known, from the declaration and from whether the call is
// read-only. An explicit flag of the declaration wins.
func (d *Declaration) Complete(j Judgement, readOnly bool) Judgement {
	j.ReadOnly = readOnly
	j.Destructive = !readOnly
	if d.Destructive != nil {
		j.Destructive = *d.Destructive
	}
	j.Idempotent = readOnly
	if d.Idempotent != nil {
		j.Idempotent = *d.Idempotent
	}
	return j
}
