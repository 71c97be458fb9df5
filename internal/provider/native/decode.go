// Package native reads and writes the project's own form of a batch, as API.md describes it.
//
// The providers' forms gain fields all the time, but this one is ours. An unknown field is a mistake of the writer,
// often one that would have changed the meaning ("partion", "Deny"), and is refused.
//
// The package is pure.
package native

import (
	"strconv"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

var (
	batchFields  = []string{"id", "agent", "session", "workspace", "interactive", "open", "calls", "options"}
	callFields   = []string{"id", "tool", "input", "echo", "incomplete"}
	optionFields = []string{"partition", "max_concurrency", "on_error", "timeout_ms", "call_timeout_ms", "deny", "ask",
		"supersede", "repair", "dry_run", "snapshot", "overlay", "undo", "named_locks", "background_after_ms", "tags",
		"priority", "fence", "program_timeout_ms", "parent"}
	parentFields = []string{"batch", "call", "attempt", "n"}
)

// Decode reads a native batch from data that passed [strictjson.Check]. Optional fields may be null, which means
// absent. Values are checked only for their type; [toolyard.Batch.Normalize] and [toolyard.Batch.Validate] do the rest.
// A batch without calls is accepted, since an open batch may begin with none.
//
// [strictjson.Object.Input] reads inputs: a string that contains a JSON object becomes that object; any other string is
// kept, and fails its call at parse_schema. Errors are [*toolyard.InputError] with the field's path.
func Decode(data []byte) (toolyard.Batch, error) {
	var b toolyard.Batch
	o, err := strictjson.ReadObject("", data)
	if err != nil {
		return b, err
	}
	if err := known(o, "a batch", batchFields); err != nil {
		return b, err
	}
	for _, f := range []struct {
		name string
		set  func(string)
	}{
		{"id", func(s string) { b.ID = toolyard.BatchID(s) }},
		{"agent", func(s string) { b.Agent = toolyard.Agent(s) }},
		{"session", func(s string) { b.Session = toolyard.Session(s) }},
		{"workspace", func(s string) { b.Workspace = toolyard.Workspace(s) }},
	} {
		text, err := o.OptionalString(f.name)
		if err != nil {
			return b, err
		}
		f.set(text)
	}
	if b.Open, err = o.OptionalBool("open"); err != nil {
		return b, err
	}
	if b.Interactive, err = o.OptionalBool("interactive"); err != nil {
		return b, err
	}
	if b.Calls, err = calls(o); err != nil {
		return b, err
	}
	b.Options, err = options(o)
	return b, err
}

func calls(batch strictjson.Object) ([]toolyard.Call, error) {
	if !batch.Given("calls") {
		return nil, nil
	}
	items, err := batch.Array("calls")
	if err != nil {
		return nil, err
	}
	list := make([]toolyard.Call, len(items))
	for i, raw := range items {
		o, err := strictjson.ReadObject(strictjson.Item("calls", i), raw)
		if err != nil {
			return nil, err
		}
		if err := known(o, "a call", callFields); err != nil {
			return nil, err
		}
		if list[i].ID, err = o.OptionalString("id"); err != nil {
			return nil, err
		}
		if list[i].Tool, err = o.String("tool"); err != nil {
			return nil, err
		}
		list[i].Input = o.Input("input")
		if o.Given("echo") {
			list[i].Echo = o.Value("echo")
			if err := toolyard.CheckEcho(o.At("echo"), list[i].Echo); err != nil {
				return nil, err
			}
		}
		if list[i].Incomplete, err = o.OptionalBool("incomplete"); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func options(batch strictjson.Object) (opts toolyard.Options, err error) {
	if !batch.Given("options") {
		return opts, nil
	}
	o, err := batch.Object("options")
	if err != nil {
		return opts, err
	}
	if err := known(o, "options", optionFields); err != nil {
		return opts, err
	}
	partition, err := o.OptionalString("partition")
	if err != nil {
		return opts, err
	}
	onError, err := o.OptionalString("on_error")
	if err != nil {
		return opts, err
	}
	maxConcurrency, err := o.OptionalInt("max_concurrency", strconv.IntSize)
	if err != nil {
		return opts, err
	}
	opts.Partition, opts.OnError = toolyard.Strategy(partition), toolyard.OnError(onError)
	opts.MaxConcurrency = int(maxConcurrency)
	if opts.TimeoutMS, err = o.OptionalInt("timeout_ms", 64); err != nil {
		return opts, err
	}
	if opts.CallTimeoutMS, err = o.OptionalInt("call_timeout_ms", 64); err != nil {
		return opts, err
	}
	if opts.Deny, err = o.OptionalStrings("deny"); err != nil {
		return opts, err
	}
	if opts.Ask, err = o.OptionalStrings("ask"); err != nil {
		return opts, err
	}
	if opts.Supersede, err = o.OptionalBool("supersede"); err != nil {
		return opts, err
	}
	if opts.Repair, err = o.OptionalBool("repair"); err != nil {
		return opts, err
	}
	if opts.DryRun, err = o.OptionalBool("dry_run"); err != nil {
		return opts, err
	}
	if opts.Snapshot, err = o.OptionalBool("snapshot"); err != nil {
		return opts, err
	}
	if opts.Overlay, err = o.OptionalBool("overlay"); err != nil {
		return opts, err
	}
	if opts.Undo, err = o.OptionalBool("undo"); err != nil {
		return opts, err
	}
	if opts.NamedLocks, err = o.OptionalBool("named_locks"); err != nil {
		return opts, err
	}
	if opts.BackgroundAfterMS, err = o.OptionalInt("background_after_ms", 64); err != nil {
		return opts, err
	}
	if opts.Fence, err = o.OptionalBool("fence"); err != nil {
		return opts, err
	}
	priority, err := o.OptionalString("priority")
	if err != nil {
		return opts, err
	}
	opts.Priority = toolyard.Priority(priority)
	tags, err := o.OptionalStrings("tags")
	for _, t := range tags {
		opts.Tags = append(opts.Tags, toolyard.Tag(t))
	}
	if err != nil {
		return opts, err
	}
	if opts.ProgramTimeoutMS, err = o.OptionalInt("program_timeout_ms", 64); err != nil || !o.Given("parent") {
		return opts, err
	}
	opts.Parent, err = parent(o)
	return opts, err
}

// parent reads the call for which a batch was made.
func parent(options strictjson.Object) (*toolyard.Parent, error) {
	o, err := options.Object("parent")
	if err == nil {
		err = known(o, "parent", parentFields)
	}
	if err != nil {
		return nil, err
	}
	var p toolyard.Parent
	id, err := o.OptionalString("batch")
	if err != nil {
		return nil, err
	}
	p.Batch = toolyard.BatchID(id)
	for _, f := range []struct {
		name string
		to   *int
	}{{"call", &p.Call}, {"attempt", &p.Attempt}, {"n", &p.N}} {
		n, err := o.OptionalInt(f.name, strconv.IntSize)
		if err != nil {
			return nil, err
		}
		*f.to = int(n)
	}
	return &p, nil
}
