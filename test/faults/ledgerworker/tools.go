//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/tool"
)

// in is the input of every tool here.
type in struct {
	WorkMS int64 `json:"work_ms,omitempty" jsonschema:"how long the tool works"`
	Bytes  int   `json:"bytes,omitempty" jsonschema:"how much of something the tool makes"`
	// File is for tools that act on one file of the workspace.
	File string `json:"file,omitempty" jsonschema:"the file that the tool changes"`
}

func (i in) work() time.Duration { return time.Duration(i.WorkMS) * time.Millisecond }

// call is one execution of a tool.
type call struct {
	l    *ledger.Ledger
	name string
	env  tool.Env
	in   in
}

func (c *call) write(k ledger.Kind) error { return c.l.Write(c.line(k)) }

func (c *call) line(k ledger.Kind) ledger.Line {
	l := ledger.About(k, c.name, &c.env)
	l.File = c.in.File
	return l
}

// pause waits, and says so when it may not wait to the end.
func (c *call) pause(ctx context.Context, d time.Duration) error {
	if err := pause.For(ctx, d); err != nil {
		return errors.Join(err, c.write(ledger.Stopped))
	}
	return nil
}

// handler is what a tool does between its begin and its end, which are written around it.
type handler func(ctx context.Context, c *call) (string, error)

// read looks and changes nothing.
func read(ctx context.Context, c *call) (string, error) {
	if err := c.pause(ctx, c.in.work()); err != nil {
		return "", err
	}
	return "looked", c.write(ledger.Effect)
}

// change works, asks whether it may still act, and acts.
func change(ctx context.Context, c *call) (string, error) {
	if err := c.pause(ctx, c.in.work()/2); err != nil {
		return "", err
	}
	failpoint.Hit(failpoint.EffectBegun)
	if err := c.pause(ctx, c.in.work()/2); err != nil {
		return "", err
	}
	if err := c.env.CommitPoint(); err != nil {
		return "", errors.Join(err, c.write(ledger.Refused))
	}
	failpoint.Hit(failpoint.EffectDue)
	effect := c.l.Do
	if c.in.File != "" { // holders of other files may have higher tokens
		effect = c.l.Write
	}
	if err := effect(c.line(ledger.Effect)); err != nil {
		return "", err
	}
	return "changed", nil
}

// tick is how often a steady tool writes down that it acts.
const tick = 20 * time.Millisecond

// steady acts all the time, before and behind its last commit point, until it is done or told to stop.
func steady(ctx context.Context, c *call) (string, error) {
	act := func(d time.Duration) error {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if err := errors.Join(c.write(ledger.Tick), c.pause(ctx, tick)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := act(c.in.work() / 2); err != nil {
		return "", err
	}
	if err := c.env.CommitPoint(); err != nil {
		return "", errors.Join(err, c.write(ledger.Refused))
	}
	effect := c.l.Do
	if c.name == "steady_look" { // reads of several batches have the workspace together, whatever their tokens
		effect = c.l.Write
	}
	if err := effect(ledger.About(ledger.Effect, c.name, &c.env)); err != nil {
		return "", err
	}
	return "acted", act(c.in.work() / 2)
}

func fails(ctx context.Context, c *call) (string, error) {
	if err := c.pause(ctx, c.in.work()); err != nil {
		return "", err
	}
	return "", tool.Failed(nil, "It failed, as it was made to.")
}

// deaf does not hear that it should stop.
func deaf(_ context.Context, c *call) (string, error) {
	time.Sleep(c.in.work())
	return "late", c.write(ledger.Effect)
}

// leaks leaves goroutines behind that go on for a while.
func leaks(_ context.Context, c *call) (string, error) {
	for range 50 {
		go time.Sleep(c.in.work())
	}
	return "leaked", c.write(ledger.Effect)
}

// eats takes memory, touches all of it, and lets go of it.
func eats(_ context.Context, c *call) (string, error) {
	b := make([]byte, c.in.Bytes)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return fmt.Sprint(len(b)), c.write(ledger.Effect)
}

// forks leaves a process behind that outlives the call.
func forks(ctx context.Context, c *call) (string, error) {
	cmd := exec.CommandContext(ctx, "sleep", fmt.Sprint(c.in.work().Seconds()))
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if err := cmd.Wait(); ctx.Err() == nil {
		return "waited", err
	}
	return "", errors.Join(context.Cause(ctx), c.write(ledger.Stopped))
}

func panics(context.Context, *call) (string, error) { panic("it panics, as it was made to") }

func exits(context.Context, *call) (string, error) {
	os.Exit(3)
	return "", nil
}

func big(_ context.Context, c *call) (string, error) {
	return strings.Repeat("x", c.in.Bytes), c.write(ledger.Effect)
}

func oddText(_ context.Context, c *call) (string, error) {
	return "a\x00b\xffc\u2028d", c.write(ledger.Effect)
}

// census tells what the process holds.
func census(context.Context, *call) (string, error) {
	runtime.GC()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return "", err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out, err := json.Marshal(map[string]int64{"goroutines": int64(runtime.NumGoroutine()), "fds": int64(len(fds)),
		"heap": int64(m.HeapInuse)})
	return string(out), err
}

// toolsOn makes the tools: all that let their worker live, or the others.
func toolsOn(l *ledger.Ledger, deadly bool) ([]tool.Tool, error) {
	yes, no := true, false
	declare := func(name string, class toolyard.Class) tool.Declaration {
		return tool.Declaration{
			Name: name, Description: "A tool of the fault tests.", Class: tool.ClassRule{Static: class},
			ReadOnly: class.Safe(), Idempotent: &yes, Dependency: name, MaxResultSizeChars: 1_000,
		}
	}
	var tools []tool.Tool
	var errs []error
	add := func(d tool.Declaration, run handler) {
		t, err := tool.New(tool.Typed[in, string]{Declaration: d,
			Run: func(ctx context.Context, env tool.Env, i in) (string, error) {
				c := &call{l: l, name: d.Name, env: env, in: i}
				if err := c.write(ledger.Begin); err != nil {
					return "", err
				}
				out, err := run(ctx, c)
				return out, errors.Join(err, c.write(ledger.End))
			}})
		tools, errs = append(tools, t), append(errs, err)
	}
	once := func(d tool.Declaration) tool.Declaration { d.Idempotent = &no; return d }
	if deadly {
		add(declare("exit", toolyard.ReadOnly), exits)
		add(once(declare("exit_write", toolyard.WriteExclusive)), exits)
		return tools, errors.Join(errs...)
	}
	add(declare("look", toolyard.ReadOnly), read)
	shared := declare("shared_look", toolyard.ReadOnly)
	shared.Cache = &tool.Cache{TTLMS: time.Minute.Milliseconds(), Scope: tool.CacheWorkspace, Coalesce: true}
	add(shared, read)
	add(once(declare("look_once", toolyard.ReadOnly)), read)
	add(once(declare("write", toolyard.WriteExclusive)), change)
	add(declare("put", toolyard.WriteExclusive), change)
	edit := once(declare("edit", toolyard.WriteExclusive))
	edit.Locks = []string{"file:{file}"}
	edit.InputSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["file"],
		"properties":{"file":{"type":"string"},"work_ms":{"type":"integer"}}}`)
	add(edit, change)
	add(declare("steady_look", toolyard.ReadOnly), steady)
	add(once(declare("steady_write", toolyard.WriteExclusive)), steady)
	add(declare("steady_put", toolyard.WriteExclusive), steady)
	add(declare("fail", toolyard.ReadOnly), fails)
	add(declare("deaf", toolyard.ReadOnly), deaf)
	add(once(declare("deaf_write", toolyard.WriteExclusive)), deaf)
	add(declare("leak", toolyard.ReadOnly), leaks)
	add(declare("eat", toolyard.ReadOnly), eats)
	add(once(declare("fork", toolyard.WriteExclusive)), forks)
	add(once(declare("panic_write", toolyard.WriteExclusive)), panics)
	add(declare("panic_look", toolyard.ReadOnly), panics)
	add(declare("big", toolyard.ReadOnly), big)
	add(declare("odd_text", toolyard.ReadOnly), oddText)
	add(declare("census", toolyard.ReadOnly), census)

	bad := declare("bad_json", toolyard.ReadOnly)
	bad.InputSchema = json.RawMessage(`{"type":"object"}`)
	bad.OutputSchema = json.RawMessage(`{"type":"object","required":["a"]}`)
	t, err := tool.Raw(tool.Tool{Declaration: bad, Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output,
		error) {
		return tool.Output{Text: "x", Structured: json.RawMessage(`{"a":`)}, nil
	}})
	return append(tools, t), errors.Join(append(errs, err)...)
}
