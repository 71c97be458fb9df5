package toolyard

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Batch is the calls of one model response, as an agent hands them in: the native form of the wire.
type Batch struct {
	// ID is the agent's choice; the same id is the same batch. Empty: one is made.
	ID    BatchID `json:"id,omitempty"`
	Agent Agent   `json:"agent,omitempty"`
	// Session is the conversation; empty means [DefaultSession].
	Session Session `json:"session,omitempty"`
	// Workspace is where the calls act; empty means [DefaultWorkspace].
	Workspace Workspace `json:"workspace,omitempty"`
	// Interactive says that a person can be asked. The zero value is the strict one: nobody can.
	Interactive bool `json:"interactive,omitempty"`
	// Open says that calls may be appended until the batch is closed: it may begin with none.
	Open    bool    `json:"open,omitempty"`
	Calls   []Call  `json:"calls"`
	Options Options `json:"options,omitzero"`
}

// Key is the batch's identity.
func (b *Batch) Key() BatchKey { return BatchKey{Agent: b.Agent, ID: b.ID} }

// Call is one tool call. Its place in [Batch.Calls] is its index.
type Call struct {
	// ID is the provider's, echoed in the result.
	ID string `json:"id"`
	// Tool is what the model wrote. What is no name of a tool ends the call as unknown_tool, and not the batch.
	Tool string `json:"tool"`
	// Input is any JSON value. What is not an object (broken arguments travel as the string that the model wrote)
	// fails the call at parse_schema, not the batch.
	Input json.RawMessage `json:"input"`
	// Echo is what the provider wants to have back with the result. See [Echo].
	Echo Echo `json:"echo,omitempty"`
	// Incomplete says that the model's stream was cut inside the call: it does not run, and ends as incomplete_call.
	// Input is then the beginning of what came of it, as a string.
	Incomplete bool `json:"incomplete,omitempty"`
}

// String is the call for a person who debugs.
func (c Call) String() string {
	return fmt.Sprintf("{%q %q input %s echo %s incomplete %t}", c.ID, c.Tool, c.Input, c.Echo, c.Incomplete)
}

// Strategy says how calls become groups; see package partition.
type Strategy string

// The partition strategies.
const (
	Consecutive Strategy = "consecutive"  // the default: a safe call extends the current safe group
	SafeFirst   Strategy = "safe_first"   // all safe calls first, then the others one by one
	Sequential  Strategy = "sequential"   // every call alone, in order
	OrderedHalt Strategy = "ordered_halt" // every call alone, in order, stop at the first failure
)

// Strategies lists the partition strategies.
var Strategies = []Strategy{Consecutive, SafeFirst, Sequential, OrderedHalt}

// OnError says what the failure of one call while executing does to the other calls of its group.
type OnError string

// The policies on an error.
const (
	// the default: its siblings end as sibling_canceled, where its tool declares so
	CancelGroup OnError = "cancel_group"
	Continue    OnError = "continue" // its siblings go on
)

// Priority says which batches go first.
type Priority string

// The priorities. None starves: of five batches that start, one is of the lower priority if one waits.
const (
	Interactive Priority = "interactive" // the default: somebody waits for the results
	Bulk        Priority = "bulk"        // nobody does
)

// Options are a batch's own settings. Each can only tighten what the operator allows.
type Options struct {
	// Partition is the strategy; empty means [Consecutive].
	Partition Strategy `json:"partition,omitempty"`
	// MaxConcurrency is how many calls may be in flight, 1 to [MaxConcurrency]; 0 means the dispatcher's default.
	MaxConcurrency int `json:"max_concurrency,omitempty"`
	// OnError is what a failing call does to its group; empty means [CancelGroup].
	OnError OnError `json:"on_error,omitempty"`
	// TimeoutMS bounds the batch, in milliseconds: calls not answered by then end as deadline_exceeded. 0 means the
	// dispatcher's default.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// CallTimeoutMS caps each call under its tool's own timeout, in milliseconds. 0 sets no further cap.
	CallTimeoutMS int64 `json:"call_timeout_ms,omitempty"`
	// Deny and Ask are permission rules on top of the operator's. There is no allow: an agent never grants itself.
	Deny []string `json:"deny,omitempty"`
	Ask  []string `json:"ask,omitempty"`
	// Supersede ends the calls of the session's other batches that wait for a person: the session goes on without them.
	Supersede bool `json:"supersede,omitempty"`
	// Repair mends inputs that are no valid JSON, where there is one way to read them, and what a worker's own repair
	// mends. The model and the log are told.
	Repair bool `json:"repair,omitempty"`
	// DryRun answers each call with what would happen, and runs none.
	DryRun bool `json:"dry_run,omitempty"`
	// Snapshot has the workspace kept as it is before each exclusive group, so that the batch can be undone. A call for
	// which that fails does not run.
	Snapshot bool `json:"snapshot,omitempty"`
	// Overlay runs the calls on a copy of the workspace, whose changes a person then commits or drops. A call that
	// could change more than the copy does not run.
	Overlay bool `json:"overlay,omitempty"`
	// Undo says that the batch's one call is one of [UndoTool] or [OverlayTool], which no other batch sees. Programs
	// say it, not models.
	Undo bool `json:"undo,omitempty"`
	// NamedLocks has calls whose tools declare locks take those names in the workspace, in place of the whole, so that
	// calls of other batches run beside them that need other names. It has no effect on a batch with Snapshot or
	// Overlay.
	NamedLocks bool `json:"named_locks,omitempty"`
	// BackgroundAfterMS has a command that is not over after so many milliseconds go on as a background call: its call
	// then ends with the handle, where it would otherwise end as timeout at its tool's limit. It is for commands that
	// may change something, on workers that offer [BackgroundStart]; others stay as they are. 0: none goes on.
	BackgroundAfterMS int64 `json:"background_after_ms,omitempty"`
	// Tags are what the workers must have that run the batch's calls: each of them, beside those that a call's tool
	// asks for.
	Tags []Tag `json:"tags,omitempty"`
	// Priority is which batches go before it; empty means [Interactive].
	Priority Priority `json:"priority,omitempty"`
	// Fence puts outputs that come from outside between delimiters that no output can forge. See [Origin].
	Fence bool `json:"fence,omitempty"`
	// ProgramTimeoutMS bounds a batch that has a call which a provider's program made, in milliseconds since it was
	// submitted, waits for people included: the program's container waits no longer. 0 means [DefaultProgramTimeout].
	ProgramTimeoutMS int64 `json:"program_timeout_ms,omitempty"`
	// Parent is the running call for which the batch was made. Nil: a model made it. Workers set it.
	Parent *Parent `json:"parent,omitempty"`
}

// Normalize fills in what the batch left out: names, call ids ("call_1" for the first), strategy and error policy.
// newID is used when the batch has no id. Limits are left as they are.
func (b *Batch) Normalize(newID BatchID) {
	if b.ID == "" {
		b.ID = newID
	}
	if b.Agent == "" {
		b.Agent = DefaultAgent
	}
	if b.Session == "" {
		b.Session = DefaultSession
	}
	if b.Workspace == "" {
		b.Workspace = DefaultWorkspace
	}
	if b.Options.Partition == "" {
		b.Options.Partition = Consecutive
	}
	if b.Options.OnError == "" {
		b.Options.OnError = CancelGroup
	}
	b.Calls = slices.Clone(b.Calls) // which may be another copy of the batch's too
	NormalizeCalls(b.Calls, 0)
}

// NormalizeCalls fills in the ids and inputs that calls left out, and takes out empty echoes; the first is the batch's
// call of index from. No id that is filled in is that of another of the calls.
func NormalizeCalls(calls []Call, from int) {
	NameCalls(calls, from, nil)
	for i := range calls {
		if len(calls[i].Input) == 0 || string(calls[i].Input) == "null" {
			calls[i].Input = json.RawMessage("{}")
		}
		if string(calls[i].Echo) == "null" || len(calls[i].Echo) == 0 {
			calls[i].Echo = nil
		}
	}
}

// NameCalls gives calls that left their ids out one that no other of them has, and none that taken (nil: nobody) says
// is taken: "call_1" for the batch's first call, and "call_1_2" where that is another's. The first of calls is the
// batch's call of index from.
func NameCalls(calls []Call, from int, taken func(id string) bool) {
	var given map[string]bool
	for i := range calls {
		if calls[i].ID != "" {
			continue
		}
		if given == nil {
			given = make(map[string]bool, len(calls))
			for _, c := range calls {
				given[c.ID] = true
			}
		}
		own := fmt.Sprintf("call_%d", from+i+1)
		id := own
		for n := 2; given[id] || taken != nil && taken(id); n++ {
			id = fmt.Sprintf("%s_%d", own, n)
		}
		calls[i].ID = id
	}
}

// CallBytes is the size of calls, of which [MaxBatchBytes] is the limit.
func CallBytes(calls []Call) (n int) {
	for _, c := range calls {
		n += len(c.Input) + len(c.ID) + len(c.Tool) + len(c.Echo)
	}
	return n
}

// Validate says what is wrong with a normalized batch, as an [*InputError], or returns nil. It does not look at
// tools: a name that no tool has, or can have, is a result.
func (b *Batch) Validate() error {
	for _, n := range []struct{ field, name string }{
		{"id", string(b.ID)}, {"agent", string(b.Agent)}, {"session", string(b.Session)},
		{"workspace", string(b.Workspace)},
	} {
		if err := CheckName(n.field, n.name); err != nil {
			return err
		}
	}
	if len(b.Calls) == 0 && !b.Open {
		return &InputError{Field: "calls", Problem: "has no calls; a batch needs at least one"}
	}
	if len(b.Calls) > MaxCallsPerBatch {
		return &InputError{Field: "calls", TooLarge: true,
			Problem: fmt.Sprintf("has %d calls; at most %d are allowed in a batch", len(b.Calls), MaxCallsPerBatch)}
	}
	if size := CallBytes(b.Calls); size > MaxBatchBytes {
		return &InputError{Field: "calls", TooLarge: true,
			Problem: fmt.Sprintf("have %d bytes of input; at most %d are allowed in a batch", size, MaxBatchBytes)}
	}
	seen := make(map[string]int, len(b.Calls))
	for i, c := range b.Calls {
		if err := CheckName(fmt.Sprintf("calls[%d].id", i), c.ID); err != nil {
			return err
		}
		if first, ok := seen[c.ID]; ok {
			return &InputError{Field: fmt.Sprintf("calls[%d].id", i),
				Problem: fmt.Sprintf("%q is also the id of calls[%d]; results are paired by id, so each needs its own",
					c.ID, first)}
		}
		seen[c.ID] = i
		if !json.Valid(c.Input) {
			return &InputError{Field: fmt.Sprintf("calls[%d].input", i), Problem: "is not JSON"}
		}
		if err := CheckEcho(fmt.Sprintf("calls[%d].echo", i), c.Echo); err != nil {
			return err
		}
	}
	if b.Options.Parent != nil && (b.Open || len(b.Calls) != 1) {
		return &InputError{Field: "options.parent", Problem: "is for a batch of one call"}
	}
	if b.Options.Undo && (b.Open || len(b.Calls) != 1 || !ForPeople(b.Calls[0].Tool)) {
		return &InputError{Field: "options.undo",
			Problem: "is for a batch of one call of " + UndoTool + " or " + OverlayTool}
	}
	return b.Options.validate()
}

func (o *Options) validate() error {
	bad := func(field, format string, args ...any) error {
		return &InputError{Field: "options." + field, Problem: fmt.Sprintf(format, args...)}
	}
	switch o.Partition {
	case Consecutive, SafeFirst, Sequential, OrderedHalt:
	default:
		return bad("partition", "%q is not a strategy; use one of %q", o.Partition, Strategies)
	}
	switch o.OnError {
	case CancelGroup, Continue:
	default:
		return bad("on_error", "%q is not a policy; use %q or %q", o.OnError, CancelGroup, Continue)
	}
	if o.MaxConcurrency < 0 || o.MaxConcurrency > MaxConcurrency {
		return bad("max_concurrency", "is %d; use 1 to %d, or leave it out", o.MaxConcurrency, MaxConcurrency)
	}
	if o.TimeoutMS < 0 {
		return bad("timeout_ms", "is %d; use a positive number of milliseconds, or leave it out", o.TimeoutMS)
	}
	if o.CallTimeoutMS < 0 {
		return bad("call_timeout_ms", "is %d; use a positive number of milliseconds, or leave it out", o.CallTimeoutMS)
	}
	if o.ProgramTimeoutMS < 0 {
		return bad("program_timeout_ms", "is %d; use a positive number of milliseconds, or leave it out",
			o.ProgramTimeoutMS)
	}
	if o.Parent != nil {
		if err := o.Parent.validate(); err != nil {
			return err
		}
	}
	if o.Overlay && (o.Snapshot || o.Undo) {
		return bad("overlay", "leaves the workspace as it is, so there is nothing to undo; leave out snapshot and undo")
	}
	if most := MaxBackgroundWait.Milliseconds(); o.BackgroundAfterMS < 0 || o.BackgroundAfterMS > most {
		return bad("background_after_ms", "is %d; use 1 to %d milliseconds, or leave it out", o.BackgroundAfterMS, most)
	}
	if o.BackgroundAfterMS > 0 && (o.Overlay || o.Snapshot) {
		return bad("background_after_ms", "has commands leave the batch, and with it its overlay and its snapshots; "+
			"leave out overlay and snapshot")
	}
	if o.DryRun && o.Supersede {
		return bad("supersede", "ends calls, and dry_run changes nothing; leave one out")
	}
	switch o.Priority {
	case "", Interactive, Bulk:
	default:
		return bad("priority", "%q is not a priority; use %q or %q", o.Priority, Interactive, Bulk)
	}
	if err := CheckTags("options.tags", o.Tags, MaxTagsAsked); err != nil {
		return err
	}
	if n := len(o.Deny) + len(o.Ask); n > MaxRulesPerBatch {
		return bad("deny", "and ask have %d rules together; at most %d are allowed", n, MaxRulesPerBatch)
	}
	return nil
}
