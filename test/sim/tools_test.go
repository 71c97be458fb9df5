package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/background"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/tool"
)

// book is the ledger: what the tools did, whoever ran them. It is the ground truth that a history is judged by.
type book struct {
	mu    sync.Mutex
	lines []ledger.Line
	// ranOn has, for each line that says that a tool begins, the hash of what it begins on.
	ranOn map[int]string
	// answered has, for each line that says that a tool begins which asks people, with what it goes on.
	answered map[int]*elicit.Answer
	// tasks are those of a server outside: the lines that say that a tool begins, by the key that the server gets.
	tasks map[string][]int
	// heard is what scripts were told of their calls.
	heard []heard
	// files are those that calls of tools of overlays act on, and copies has, for each line of a run on an overlay, on
	// which.
	files  map[ran]string
	copies map[int]copyKey
}

// ran is one run of a call.
type ran struct {
	of             toolyard.BatchKey
	index, attempt int
	worker         int
}

func newBook() *book {
	return &book{ranOn: map[int]string{}, answered: map[int]*elicit.Answer{}, tasks: map[string][]int{},
		files: map[ran]string{}, copies: map[int]copyKey{}}
}

// begin writes that a party's tool begins.
func (b *book) begin(ctx context.Context, p *party, k kind, env *tool.Env, in json.RawMessage) error {
	v, err := schema.Parse(in)
	if err != nil {
		return err
	}
	var of input
	if k.file || k.edits {
		if err := json.Unmarshal(in, &of); err != nil {
			return err
		}
	}
	file := of.File
	if !k.file { // it does not say so to anybody
		of.File = ""
	}
	also := func(line int) {
		b.tasks[env.IdempotencyKey] = append(b.tasks[env.IdempotencyKey], line)
		if k.inquires {
			b.answered[line] = elicit.From(ctx).Answer
		}
	}
	b.mu.Lock()
	b.files[ran{toolyard.BatchKey{Agent: env.Agent, ID: env.Batch}, env.Index, env.Attempt, p.id}] = file
	b.mu.Unlock()
	return b.add(p, ledger.Begin, k.name, env, v.Hash(), of.File, also)
}

// write writes what a party's tool does.
func (b *book) write(p *party, kind ledger.Kind, name string, env *tool.Env) error {
	return b.add(p, kind, name, env, "", "", func(int) {})
}

// add adds a line, and notes what else is known of it. What has crashed does nothing.
func (b *book) add(p *party, kind ledger.Kind, name string, env *tool.Env, ranOn, file string,
	also func(line int)) error {
	if p.gone() {
		return errCrash
	}
	l := ledger.About(kind, name, env)
	l.File = file
	l.Worker, l.Wall = p.id, time.Now().UnixNano()
	l.Mono = l.Wall
	b.mu.Lock()
	defer b.mu.Unlock()
	if ranOn != "" {
		b.ranOn[len(b.lines)] = ranOn
	}
	also(len(b.lines))
	b.lines = append(b.lines, l)
	copied, onCopy := p.copyOf(env)
	if onCopy {
		b.copies[len(b.lines)-1] = copied
	}
	if of, _ := kindOf(name); (kind == ledger.Tick || kind == ledger.Effect) && !of.class.Safe() && of.workspace &&
		!of.undoes && !of.lays {
		m := mark{by: l.Key(), index: l.Index, line: len(b.lines) - 1, file: b.files[runOf(&l)]}
		if onCopy {
			p.w.shelf.changesCopy(copied, m)
		} else {
			p.w.shelf.changes(l.Workspace, m)
		}
	}
	p.w.note(p.name, "%s %s %s/%s/%d attempt %d token %d", kind, name, l.Agent, l.Batch, l.Index, l.Attempt, l.Token)
	return nil
}

// runOf is the run that a line is about.
func runOf(l *ledger.Line) ran { return ran{l.Key(), l.Index, l.Attempt, l.Worker} }

// ofCopy is what a call tells of its workspace that is an overlay.
const ofCopy = "a copy"

// changes is how often exclusive calls had changed a workspace at a time.
func (b *book) changes(w toolyard.Workspace, at time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, l := range b.lines {
		k, _ := kindOf(l.Tool)
		if _, onCopy := b.copies[i]; !onCopy && l.Workspace == w && l.Kind == ledger.Effect && !k.class.Safe() &&
			k.workspace && l.Wall <= at.UnixNano() {
			n++
		}
	}
	return n
}

// input says what a call does: its tool reads it.
type input struct {
	// WorkMS is how long it works, Commits how many commit points it has.
	WorkMS  int64 `json:"work_ms,omitempty"`
	Commits int   `json:"commits,omitempty"`
	// Code is how it fails, up to the attempt Passes; 0: always.
	Code   toolyard.Code `json:"code,omitempty"`
	Passes int           `json:"passes,omitempty"`
	// Ignores says that it does not care for being stopped.
	Ignores bool `json:"ignores,omitempty"`
	// Edited names the person who has changed the input.
	Edited string `json:"edited,omitempty"`
	// File is the file that it acts on, of tools that act on one.
	File string `json:"file,omitempty"`
	// Path is the file, in an input that its tool cannot take.
	Path string `json:"path,omitempty"`
	// Command is what it runs, of tools that run commands.
	Command string `json:"command,omitempty"`
	// Questions is how often it asks a person first, of tools that do.
	Questions int `json:"questions,omitempty"`
	// Calls are those that a script makes first.
	Calls []toolyard.Call `json:"calls,omitempty"`
}

// kind is a kind of tool.
type kind struct {
	name       string
	class      toolyard.Class
	idempotent bool
	workspace  bool
	weight     int
	asks       bool // a rule wants a person for it
	stops      bool // an interrupt stops it
	wavers     bool // the tool itself wants a person for it, now and then
	// recalls says that it tells how often the workspace was changed, and that its output answers equal calls.
	recalls bool
	// file says that it acts on one file of the workspace, and declares its lock.
	file bool
	// command is what it runs: its class follows from that. Empty: it runs no command.
	command string
	// starts says that it is there where calls start batches, and inquires that it asks people while it runs.
	starts, inquires bool
	// undoes says that it sets workspaces back, and lays that it commits and drops overlays.
	undoes, lays bool
	// edits says that an overlay holds it. It is there where overlays are.
	edits bool
}

// held reports whether an overlay holds calls of the tool.
func (k kind) held() bool { return k.class.Safe() || k.edits }

// The tools that run commands: those of one change something, those of the other only read.
const changingTool, readingTool = "command", "list"

// kinds are all, with how often each is drawn.
var kinds = []kind{
	{name: "read", class: toolyard.ReadOnly, idempotent: true, workspace: true, weight: 6},
	{name: "look", class: toolyard.ReadOnly, idempotent: true, weight: 2, stops: true},
	{name: "pop", class: toolyard.ReadOnly, workspace: true, weight: 1}, // may not run twice
	{name: "write", class: toolyard.WriteExclusive, workspace: true, weight: 4},
	{name: "put", class: toolyard.WriteExclusive, idempotent: true, workspace: true, weight: 2},
	{name: "shell", class: toolyard.Unsafe, workspace: true, weight: 1},
	{name: "send", class: toolyard.WriteExclusive, weight: 1},
	{name: "ask_read", class: toolyard.ReadOnly, idempotent: true, workspace: true, asks: true},
	{name: "ask_pop", class: toolyard.ReadOnly, workspace: true, asks: true}, // an item of its own
	{name: "ask_write", class: toolyard.WriteExclusive, workspace: true, asks: true},
	{name: "waver", class: toolyard.WriteExclusive, workspace: true, wavers: true},
	{name: "recall", class: toolyard.ReadOnly, idempotent: true, workspace: true, recalls: true},
	{name: "view", class: toolyard.ReadOnly, idempotent: true, workspace: true, file: true}, // one file
	{name: "edit", class: toolyard.WriteExclusive, workspace: true, file: true},
	{name: toolyard.RunCodeTool, class: toolyard.Unsafe, starts: true},
	{name: "inquire", class: toolyard.WriteExclusive, inquires: true},
	{name: "ponder", class: toolyard.WriteExclusive, workspace: true, inquires: true},
	{name: changingTool, class: toolyard.Unsafe, workspace: true, command: "make all", starts: true},
	{name: readingTool, class: toolyard.ReadOnly, idempotent: true, workspace: true, command: "ls", starts: true},
	{name: toolyard.UndoTool, class: toolyard.WriteExclusive, idempotent: true, workspace: true, undoes: true},
	{name: patchTool, class: toolyard.WriteExclusive, workspace: true, edits: true},
	{name: toolyard.OverlayTool, class: toolyard.WriteExclusive, idempotent: true, workspace: true, lays: true},
}

// absent is a tool that nobody has.
const absent = "absent"

func kindOf(name string) (kind, bool) {
	for _, k := range kinds {
		if k.name == name {
			return k, true
		}
	}
	return kind{name: name, class: toolyard.Unsafe}, false
}

// anyInput is the schema of all inputs. Each party compiles it for each tool: it is short.
var anyInput = json.RawMessage(`{"type":"object","additionalProperties":true}`)

// tools are a worker's: all but one.
func (p *party) tools(lacks string) ([]tool.Tool, error) {
	var out []tool.Tool
	starts := p.w.sc.backgroundCalls > 0
	if starts {
		out = background.Tools()
	}
	for _, k := range kinds {
		if k.name == lacks || k.starts && !starts || k.inquires && !p.w.sc.inquiries || k.undoes ||
			k.lays || k.edits && !p.w.sc.overlays {
			continue
		}
		d := tool.Declaration{
			Name: k.name, Description: "A tool of the simulation.", Class: tool.ClassRule{Static: k.class},
			ReadOnly: k.class.Safe(), EditsWorkspace: k.edits,
			Idempotent: &k.idempotent, UsesWorkspace: &k.workspace, Dependency: k.name, InputSchema: anyInput,
			MaxResultSizeChars: 1_000,
			TimeoutMS:          toolTimeout.Milliseconds(),
		}
		if k.recalls {
			d.Cache = &tool.Cache{TTLMS: tool.MaxCacheTTL.Milliseconds(), Scope: tool.CacheWorkspace, Coalesce: true}
		}
		if k.file {
			d.Locks = []string{"file:{file}"}
			d.InputSchema = json.RawMessage(`{"type":"object","required":["file"],"additionalProperties":true,
				"properties":{"file":{"type":"string"}}}`)
		}
		if k.command != "" {
			d.Class, d.ReadOnly = tool.ClassRule{Shell: "command"}, false
			d.InputSchema = json.RawMessage(`{"type":"object","required":["command"],"additionalProperties":true,
				"properties":{"command":{"type":"string"}}}`)
		}
		if k.stops {
			d.Interrupt = tool.Cancel
		}
		if k.name == toolyard.RunCodeTool {
			d.TimeoutMS = scriptTimeout.Milliseconds()
			d.MaxInFlight = builtin.MaxScripts // so that it takes no slot of its calls
		}
		t := tool.Tool{Declaration: d, Run: func(ctx context.Context, env tool.Env,
			raw json.RawMessage) (tool.Output, error) {
			var in input
			if err := json.Unmarshal(raw, &in); err != nil {
				return tool.Output{}, err
			}
			if err := p.w.book.begin(ctx, p, k, &env, raw); err != nil {
				return tool.Output{}, err
			}
			return p.run(ctx, k, env, in)
		}}
		if k.wavers {
			t.CheckPermission = func(_ context.Context, env tool.Env, _ json.RawMessage) (tool.Permission, error) {
				if p.drawFor(&env, "waver")%2 == 0 {
					return tool.Permission{Behavior: tool.Ask, Reason: "it wavers"}, nil
				}
				return tool.Permission{}, nil
			}
		}
		t, err := tool.Raw(t)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if k, _ := kindOf(toolyard.UndoTool); p.w.sc.undoes {
		t, err := tool.Raw(p.undoTool(k, ofParty{p.w.shelf, p}))
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if k, _ := kindOf(toolyard.OverlayTool); p.w.sc.overlays {
		t, err := tool.Raw(p.overlayTool(k, ofParty{p.w.shelf, p}))
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// toolTimeout is longer than any tool works, and scriptTimeout than any script waits for its calls.
const (
	toolTimeout   = 10 * time.Second
	scriptTimeout = time.Minute
)

// run is a tool: it works, and acts at its commit points.
func (p *party) run(ctx context.Context, k kind, env tool.Env, in input) (tool.Output, error) {
	text := k.name + " is done"
	if k.recalls {
		text = fmt.Sprint(p.w.book.changes(env.Workspace, time.Now()))
		if _, onCopy := p.copyOf(&env); onCopy {
			text = ofCopy
		}
	}
	err := p.script(ctx, env, in.Calls)
	if asks := p.asks(ctx, in); err == nil && asks != nil { // it ends with its question
		if err = sleep(ctx, p.pause(&env, "before it asks", 1, in)); err == nil {
			err = asks
		}
	} else if err == nil {
		err = p.work(ctx, k, env, in)
	}
	if err = errors.Join(err, p.w.book.write(p, ledger.End, k.name, &env)); err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: text}, nil
}

func (p *party) work(ctx context.Context, k kind, env tool.Env, in input) error {
	steps := max(1, in.Commits)
	for n := range steps {
		pause := p.pause(&env, fmt.Sprint("step ", n), steps, in)
		if in.Ignores {
			time.Sleep(pause)
		} else if err := sleep(ctx, pause); err != nil {
			return errors.Join(err, p.w.book.write(p, ledger.Stopped, k.name, &env))
		}
		if p.awake(); p.gone() {
			return errCrash
		}
		if n < in.Commits {
			if err := env.CommitPoint(); err != nil {
				return errors.Join(err, p.w.book.write(p, ledger.Refused, k.name, &env))
			}
			done := ledger.Tick // a part of the effect
			if n == in.Commits-1 {
				done = ledger.Effect
			}
			if err := p.w.book.write(p, done, k.name, &env); err != nil {
				return err
			}
		}
	}
	if in.Code != "" && (in.Passes == 0 || env.Attempt <= in.Passes) {
		return &tool.Error{Code: in.Code, Message: "It failed, as it was made to.", Retryable: in.Passes > 0}
	}
	if in.Commits == 0 {
		return p.w.book.write(p, ledger.Effect, k.name, &env)
	}
	return nil
}

// pause is how long a call works in one of its steps. Each works for a time of its own, to the nanosecond: two that end
// at one instant end in any order.
func (p *party) pause(env *tool.Env, step string, steps int, in input) time.Duration {
	odd := time.Duration(p.drawFor(env, step)%1_000_000 | 1)
	return time.Duration(in.WorkMS)*time.Millisecond/time.Duration(steps) + odd
}

// drawFor draws for a run of a call: the same whichever of the calls that run at one instant draws first, and another
// number each time.
func (p *party) drawFor(env *tool.Env, what string) uint64 {
	of := fmt.Sprint(p.name, p.boot, " ", env.Agent, " ", env.Batch, " ", env.Index, " ", env.Attempt, " ", what)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn == nil {
		p.drawn = map[string]int{}
	}
	p.drawn[of]++
	return p.w.random(fmt.Sprint(of, " ", p.drawn[of])).Uint64()
}

// rand64 draws for an agent or a person.
func (p *party) rand64() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rand.Uint64()
}
