package tool

import (
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
)

// Declaration is all that others need to know of a tool without having its code: it is data, it travels, and its hash
// is the tool's identity. Every field's zero value is the strictest meaning. Flags are declarations; the dispatcher
// enforces the class, the permission phase read-only, destructive and interaction, the worker timeout and size.
type Declaration struct {
	// Name is what the model calls: 1 to 128 bytes. Precise names are called right at first sight.
	Name string `json:"name"`
	// Description is what the model reads to decide.
	Description string `json:"description"`
	// InputSchema is a JSON Schema (2020-12) of an object. Unknown fields are refused unless it opens them.
	InputSchema json.RawMessage `json:"input_schema"`
	// OutputSchema, if set, is what Output.Structured must fit.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Aliases are older names, for transcripts that still use them. Only tools of the base registry may have them.
	Aliases []string `json:"aliases,omitempty"`

	// Class says how the concurrency class of a call is found. Zero: UNSAFE.
	Class ClassRule `json:"concurrency_class"`
	// Execution says where what a call does comes about, and so what stands around it. Zero: in the worker's own
	// process, where nothing does, so that calls which are judged UNSAFE are refused there.
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
	// RequiresUserInteraction says that the tool talks to a person: refused where there is none.
	RequiresUserInteraction bool `json:"requires_user_interaction,omitempty"`
	// UsesWorkspace says that calls act on the batch's workspace and so need its ticket. Nil: true.
	UsesWorkspace *bool `json:"uses_workspace,omitempty"`
	// EditsWorkspace says that all a call ever changes is files of the workspace, through checked paths: what the
	// permission mode accept_edits allows.
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
	// ShouldDefer leaves the schema out of the prompt until tool_search loads it; AlwaysLoad keeps it in.
	ShouldDefer bool `json:"should_defer,omitempty"`
	AlwaysLoad  bool `json:"always_load,omitempty"`
	// MaxResultSizeChars is how many characters of output go to the model; what is longer is offloaded and previewed.
	// 0: [DefaultMaxResultSizeChars]. -1: no limit, up to 16 MiB.
	MaxResultSizeChars int `json:"max_result_size_chars,omitempty"`
	// TimeoutMS is the hard maximum of one execution, in milliseconds. 0: [DefaultTimeout].
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// IdleTimeoutMS ends an execution that reports no progress for so long, in milliseconds; TimeoutMS bounds it all
	// the same. 0: no such limit.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	// MaxInFlight is how many calls of the tool each worker runs at a time, whatever slots it has free. 0: no cap of
	// the tool's own.
	MaxInFlight int `json:"max_in_flight,omitempty"`
	// Tags are what a worker must have to run the tool's calls: each of them.
	Tags []toolyard.Tag `json:"tags,omitempty"`
	// AbortsSiblings says that a call's failure while executing cancels the rest of its group. Nil: true. Tools of
	// manifests and of MCP servers, and the built-in ones that read, have it only where they say so.
	AbortsSiblings *bool `json:"aborts_siblings,omitempty"`
	// Dependency names what the circuit breaker watches; tools that share it trip together. Empty: the tool's name, and
	// for a tool with a URL specifier each host that its calls name.
	Dependency string `json:"dependency,omitempty"`
	// Cost is what one execution takes from budgets of cost, in units of the operator's choice. 0: nothing.
	Cost int64 `json:"cost,omitempty"`
	// Cache says when an output answers other calls with the same input. Nil: never.
	Cache *Cache `json:"cache,omitempty"`
}

// MaxCost is the highest cost of a tool.
const MaxCost = 1_000_000_000

// Defaults of [Declaration] fields that are left zero.
const (
	DefaultMaxResultSizeChars = 50_000
	DefaultTimeout            = 2 * time.Minute
)

// Execution is where what a call of a tool does comes about.
type Execution string

// The places of execution.
const (
	// InWorker is the worker's own process, which nothing isolates: calls that are judged UNSAFE end as setup_required,
	// unless the operator has the worker run them without a sandbox.
	InWorker Execution = ""
	// InSandbox is a process that the tool starts in the worker's sandbox, as bash and command tools do. Such a tool
	// goes only to workers that can isolate, whatever class a call has.
	InSandbox Execution = "sandbox"
	// InService is another process or machine, which the operator runs and the tool only asks: an HTTP service, an MCP
	// server. Nothing that the call names is run by the worker. An UNSAFE call is exclusive there as anywhere; what
	// stands around the service is its operator's matter.
	InService Execution = "service"
	// InWasm is a WebAssembly module that the worker runs in a virtual machine of its own: it reaches what the operator
	// gave it and nothing else, so that any worker can run its calls, whatever class they have.
	InWasm Execution = "wasm"
)

// Known reports whether e is one of the places above.
func (e Execution) Known() bool {
	return e == InWorker || e == InSandbox || e == InService || e == InWasm
}

// NeedsIsolation reports whether a call of a class may only run on a worker that can isolate it. Whoever runs tools in
// its own process can isolate none of them: see [InWorker].
func (d *Declaration) NeedsIsolation(c toolyard.Class) bool {
	switch d.Execution {
	case InService, InWasm:
		return false
	case InWorker:
		return c.Strictness() >= toolyard.Unsafe.Strictness()
	}
	return true
}

// Specifier names the input field that permission rules look at: at most one of its fields is set.
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

// Interrupt is what a session's interrupt does to a running call.
type Interrupt string

// The interrupt behaviors.
const (
	Block  Interrupt = "block"  // wait for the call; the default
	Cancel Interrupt = "cancel" // stop the call, which ends as canceled
)

// Known reports whether i is one of the behaviors above, or left out.
func (i Interrupt) Known() bool { return i == "" || i == Block || i == Cancel }

// ClassRule says how the concurrency class of a call is found, as data that the dispatcher can evaluate without the
// tool's code. The zero rule is UNSAFE.
type ClassRule struct {
	// Static is the class of every call, when neither Shell nor Ask is set.
	Static toolyard.Class `json:"static,omitempty"`
	// Shell names the input field that holds a shell command: the command is parsed, and it is READ_ONLY when each part
	// of it is known to only read, UNSAFE otherwise.
	Shell string `json:"shell,omitempty"`
	// Ask has a worker's [Tool.Judge] decide, by one request per batch and pool. Silence and errors mean UNSAFE.
	// Static, when set beside it, is the strictest class that it may say; a stricter one is an error of the tool, and
	// UNSAFE.
	Ask bool `json:"ask,omitempty"`
}

// Judgement is what is known of one call's input: found at dispatch, pinned in the plan, read by permission and retry.
type Judgement struct {
	Class       toolyard.Class `json:"class"`
	ReadOnly    bool           `json:"read_only,omitempty"`
	Destructive bool           `json:"destructive,omitempty"`
	Idempotent  bool           `json:"idempotent,omitempty"`
	// Why says what decided, for people.
	Why string `json:"why,omitempty"`
}

// Strictest is the judgement of a call of which nothing is known.
func Strictest(why string) Judgement {
	return Judgement{Class: toolyard.Unsafe, Destructive: true, Why: why}
}

// Needs says whether a flag that is true unless declared otherwise is true.
func needs(flag *bool) bool { return flag == nil || *flag }

// NeedsPermission reports whether somebody must allow a call.
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

// Timeout is the hard maximum of one execution.
func (d *Declaration) Timeout() time.Duration {
	if d.TimeoutMS <= 0 {
		return DefaultTimeout
	}
	return time.Duration(d.TimeoutMS) * time.Millisecond
}

// IdleTimeout is how long an execution may report no progress; 0 means for as long as it likes.
func (d *Declaration) IdleTimeout() time.Duration {
	return time.Duration(max(0, d.IdleTimeoutMS)) * time.Millisecond
}

// MaxResultChars is how many characters of output go to the model; -1 means all. A number that means nothing counts as
// left out.
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
