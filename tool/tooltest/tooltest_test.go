package tooltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
	"github.com/toolyard/toolyard/tool/tooltest"
)

type in struct {
	Path  string `json:"path" jsonschema:"a file of the workspace"`
	Times int    `json:"times,omitempty"`
}

// head is a tool that uses all that a call has.
func head(t *testing.T, change func(*tool.Typed[in, tool.Output])) tool.Tool {
	t.Helper()
	typed := tool.Typed[in, tool.Output]{
		Declaration: tool.Declaration{
			Name: "head", Description: "Shows a file.", Class: tool.ClassRule{Static: toolyard.ReadOnly},
			ReadOnly:  true,
			Specifier: tool.Specifier{Path: "path"}, MaxResultSizeChars: 100,
		},
		Check: func(_ context.Context, _ tool.Env, i in) error {
			if i.Times > 9 {
				return tool.Invalid("times is at most 9")
			}
			return nil
		},
		Run: func(_ context.Context, env tool.Env, i in) (tool.Output, error) {
			if env.WorkspaceDir == "" {
				return tool.Output{}, errors.New("no workspace")
			}
			env.Progress(tool.Progress{Fraction: 0.5, Status: "reading"})
			text, err := os.ReadFile(filepath.Join(env.WorkspaceDir, i.Path))
			if err != nil {
				return tool.Output{}, tool.Failed(err, "cannot read %s", i.Path)
			}
			secret, err := env.Secret("key")
			if err != nil {
				return tool.Output{}, err
			}
			return tool.Output{Text: strings.Repeat(string(text), max(i.Times, 1)) + env.Context["end"] + secret}, nil
		},
	}
	if change != nil {
		change(&typed)
	}
	made, err := tool.New(typed)
	must.OK(t, err)
	return made
}

// TestCallsGoThroughThePipeline: each phase that an author's tool meets in a pool may end a call here.
func TestCallsGoThroughThePipeline(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("words "), 0o600))
	credentials := map[string]string{"key": "k"}
	for name, c := range map[string]struct {
		input  string
		o      tooltest.Options
		change func(*tool.Typed[in, tool.Output])
		code   toolyard.Code
		phase  toolyard.Phase
		text   string
	}{
		"runs":    {input: `{"path":"a.txt","times":2}`, text: "words words .k"},
		"no JSON": {input: `{"path":`, code: toolyard.SchemaValidationFailed, phase: toolyard.PhaseParseSchema},
		"other field": {input: `{"path":"a.txt","file":1}`, code: toolyard.SchemaValidationFailed,
			phase: toolyard.PhaseParseSchema},
		"wrong value": {input: `{"path":"a.txt","times":10}`, code: toolyard.InvalidArguments,
			phase: toolyard.PhaseValidateValues},
		"denied": {input: `{"path":"a.txt"}`, o: tooltest.Options{Deny: []string{"head(a.txt)"}},
			code: toolyard.PermissionDenied},
		"taken out": {input: `{"path":"a.txt"}`, o: tooltest.Options{Deny: []string{"head"}},
			code: toolyard.BlockedTool},
		"nobody to ask": {input: `{"path":"a.txt"}`, o: tooltest.Options{Ask: []string{"head"}},
			code: toolyard.PermissionDenied},
		"read-only": {input: `{"path":"a.txt"}`, o: tooltest.Options{Mode: "plan"}, text: "words .k"},
		"fails":     {input: `{"path":"gone"}`, code: toolyard.ExecutionFailed, phase: toolyard.PhaseExecute},
		"panics": {input: `{"path":"a.txt"}`, code: toolyard.ExecutionFailed, phase: toolyard.PhaseExecute,
			change: func(d *tool.Typed[in, tool.Output]) {
				d.Run = func(context.Context, tool.Env, in) (tool.Output, error) { panic("no") }
			}},
		"needs a sandbox": {input: `{"path":"a.txt"}`, code: toolyard.SetupRequired,
			change: func(d *tool.Typed[in, tool.Output]) { d.Class, d.ReadOnly = tool.ClassRule{}, false }},
		"judged by itself": {input: `{"path":"a.txt"}`, text: "words .k",
			change: func(d *tool.Typed[in, tool.Output]) {
				d.Class = tool.ClassRule{Ask: true}
				d.Judge = func(in) (tool.Judgement, error) {
					return tool.Judgement{Class: toolyard.ReadOnly,
						ReadOnly: true}, nil
				}
			}},
		"cannot judge itself": {input: `{"path":"a.txt"}`, code: toolyard.SetupRequired,
			change: func(d *tool.Typed[in, tool.Output]) {
				d.Class, d.ReadOnly = tool.ClassRule{Ask: true}, false
				d.Judge = func(in) (tool.Judgement, error) { return tool.Judgement{}, errors.New("who knows") }
			}},
		"panics when it judges itself": {input: `{"path":"a.txt"}`, code: toolyard.SetupRequired,
			change: func(d *tool.Typed[in, tool.Output]) {
				d.Class, d.ReadOnly = tool.ClassRule{Ask: true}, false
				d.Judge = func(in) (tool.Judgement, error) { panic("no") }
			}},
		"half a character": {input: `{"path":"a.txt\ud800"}`, code: toolyard.SchemaValidationFailed,
			phase: toolyard.PhaseParseSchema},
		"bytes that are no text": {input: "{\"path\":\"a.txt\xff\"}", code: toolyard.SchemaValidationFailed,
			phase: toolyard.PhaseParseSchema},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Workspace, c.o.Credentials, c.o.Context = dir, credentials, map[string]string{"end": "."}
			got := tooltest.Call(t, head(t, c.change), c.input, c.o)
			if got.Code != c.code || got.IsError != (c.code != "") || got.Output != c.text {
				t.Errorf("%q at %q: %s", got.Code, got.FailedAt(), got.Text())
			}
			if c.phase != "" && got.FailedAt() != c.phase {
				t.Errorf("it failed at %q, want %q", got.FailedAt(), c.phase)
			}
			if c.text != "" && (len(got.Progress) != 3 || got.Progress[1].Status != "reading") {
				t.Errorf("progress: %+v", got.Progress)
			}
		})
	}
}

func TestACallChangesItsSession(t *testing.T) {
	mark := head(t, func(d *tool.Typed[in, tool.Output]) {
		d.Class, d.ReadOnly = tool.ClassRule{Static: toolyard.WriteExclusive}, false
		d.Run = func(_ context.Context, _ tool.Env, i in) (tool.Output, error) {
			return tool.Output{Text: "ok", Session: &tool.SessionChange{Context: map[string]string{"last": i.Path}}},
				nil
		}
	})
	got := tooltest.Call(t, mark, `{"path":"a"}`, tooltest.Options{})
	if got.IsError || got.Session == nil || got.Session.Context["last"] != "a" {
		t.Errorf("%s: %+v", got.Text(), got.Session)
	}
}

func TestLongOutputsAreStored(t *testing.T) {
	long := head(t, func(d *tool.Typed[in, tool.Output]) {
		d.Run = func(context.Context, tool.Env, in) (tool.Output, error) {
			return tool.Output{Text: strings.Repeat("x", 1_000)}, nil
		}
	})
	got := tooltest.Call(t, long, `{"path":"a"}`, tooltest.Options{})
	if got.IsError || !got.Truncated || len(got.Stored[got.Blob]) != 1_000 {
		t.Errorf("%q, truncated %t, stored as %q: %d bytes", got.Code, got.Truncated, got.Blob,
			len(got.Stored[got.Blob]))
	}
	if again := tooltest.Call(t, head(t, nil), `{"path":"a"}`,
		tooltest.Options{}); again.Code != toolyard.ExecutionFailed || again.Stored != nil {
		t.Errorf("a call without a workspace: %q", again.Text())
	}
}

// fatal is a test that may end without ending this one.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(format string, _ ...any) {
	f.said = format
	panic(f)
}

func TestWhatNoWorkerWouldTakeEndsTheTest(t *testing.T) {
	good := head(t, nil)
	bad := good
	bad.Description = ""
	for name, c := range map[string]struct {
		tool tool.Tool
		o    tooltest.Options
	}{
		"tool": {tool: bad}, "mode": {good, tooltest.Options{Mode: "anything"}}, "rule": {good,
			tooltest.Options{Allow: []string{"head("}}},
		"workspace": {good, tooltest.Options{Workspace: filepath.Join(t.TempDir(), "gone")}},
	} {
		f := &fatal{TB: t}
		func() {
			defer func() {
				if r := recover(); r != any(f) || f.said == "" {
					t.Errorf("%s: the test goes on (%v)", name, r)
				}
			}()
			tooltest.Call(f, c.tool, `{"path":"a"}`, c.o)
		}()
	}
}

// level is a number that is read from a word.
type level int

func (l *level) UnmarshalText(text []byte) error {
	if string(text) != "high" {
		return errors.New("no such level")
	}
	*l = 9
	return nil
}

// TestTypesThatReadText: the schema that is derived from a type accepts what the type reads.
func TestTypesThatReadText(t *testing.T) {
	type base struct {
		At netip.Addr `json:"at"`
	}
	type in struct {
		base
		Level level            `json:"level"`
		Maybe *level           `json:"maybe,omitempty"`
		List  []netip.Prefix   `json:"list"`
		By    map[string]level `json:"by"`
		When  time.Time        `json:"when"`
		Raw   json.RawMessage  `json:"raw"`
		More  *struct {
			Level level `json:"level"`
		} `json:"more"`
	}
	x, err := tool.New(tool.Typed[in, string]{
		Declaration: tool.Declaration{Name: "x", Description: "d", ReadOnly: true,
			Class: tool.ClassRule{Static: toolyard.ReadOnly}},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) {
			return fmt.Sprint(i.At, i.Level, *i.Maybe, i.List, i.By, i.When.Year(), string(i.Raw), i.More.Level), nil
		},
	})
	must.OK(t, err)
	const input = `{"at":"::1","level":"high","maybe":"high","list":["10.0.0.0/8"],"by":{"a":"high"},` +
		`"when":"2026-01-02T03:04:05Z","raw":{"a":[1]},"more":{"level":"high"}}`
	if got := tooltest.Call(t, x, input, tooltest.Options{}); got.Output !=
		`::1 9 9 [10.0.0.0/8] map[a:9] 2026{"a":[1]}9` {
		t.Errorf("%q: %s", got.Code, got.Text())
	}
	if got := tooltest.Call(t, x, strings.Replace(input, `"high"`, `5`, 1),
		tooltest.Options{}); got.FailedAt() != toolyard.PhaseParseSchema {
		t.Errorf("a number for a word: %q at %q: %s", got.Code, got.FailedAt(), got.Text())
	}
}
