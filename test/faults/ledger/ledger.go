// Package ledger is where the tools of the fault tests write down what they did: one JSON object a line in one file,
// for all processes, each on the disk before the tool goes on. It is the ground truth that logs and replies are held
// against.
//
// The ledger is also the thing that effects act on: it knows the highest fencing token of each workspace, and refuses
// an effect with a lower one, as whatever checks tokens would.
package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gofrs/flock"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// Kind says what a line is about.
type Kind string

// The kinds.
const (
	// Begin: the tool was started.
	Begin Kind = "begin"
	// Effect: what the tool is for has happened.
	Effect Kind = "effect"
	// End: the tool is about to return, whatever it came to.
	End Kind = "end"
	// Refused: the tool's commit point was refused, so there was no effect.
	Refused Kind = "refused"
	// Fenced: the effect was refused, because its token is lower than one that was seen.
	Fenced Kind = "fenced"
	// Tick: the tool is acting at this moment.
	Tick Kind = "tick"
	// Stopped: the tool saw the end of its context.
	Stopped Kind = "stopped"
)

// Line is one thing that a tool did.
type Line struct {
	Kind      Kind               `json:"kind"`
	Tool      string             `json:"tool"`
	Agent     toolyard.Agent     `json:"agent"`
	Batch     toolyard.BatchID   `json:"batch"`
	Index     int                `json:"index"`
	Workspace toolyard.Workspace `json:"workspace"`
	Attempt   int                `json:"attempt"`
	Token     uint64             `json:"token"`
	File      string             `json:"file,omitempty"` // that the call acts on; empty: the whole workspace
	Worker    int                `json:"worker"`         // its process
	// Mono is CLOCK_MONOTONIC, one clock for all processes of a machine; Wall is what the log's times are compared
	// with.
	Mono int64 `json:"mono"`
	Wall int64 `json:"wall"`
}

// Key is the batch's.
func (l *Line) Key() toolyard.BatchKey { return toolyard.BatchKey{Agent: l.Agent, ID: l.Batch} }

// About begins a line about a call.
func About(kind Kind, name string, env *tool.Env) Line {
	return Line{
		Kind: kind, Tool: name, Agent: env.Agent, Batch: env.Batch, Index: env.Index, Workspace: env.Workspace,
		Attempt: env.Attempt, Token: env.FencingToken, Worker: os.Getpid(),
	}
}

// Ledger is the file, open for writing. It may be used from many goroutines and processes.
type Ledger struct{ f *os.File }

// Open opens the ledger for writing, and makes it if it is not there.
func Open(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Ledger{f: f}, nil
}

// Close closes it.
func (l *Ledger) Close() error { return l.f.Close() }

// Write appends a line, and returns when it is on the disk.
func (l *Ledger) Write(line Line) error {
	line.Mono, line.Wall = Now(), time.Now().UnixNano()
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(append(text, '\n')); err != nil { // one write with O_APPEND: lines do not mix
		return err
	}
	return l.f.Sync()
}

// ErrFenced says that a workspace has seen a higher token.
var ErrFenced = errors.New("the workspace has seen a higher fencing token")

// Do writes an effect, unless its token is lower than one that the workspace has seen: that is written then, and
// [ErrFenced] returned. No two effects happen at one time.
func (l *Ledger) Do(line Line) (err error) {
	lock := flock.New(l.f.Name()) // one for each effect: goroutines of one process exclude each other too
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	seen, err := Read(l.f.Name())
	if err != nil {
		return err
	}
	for _, s := range seen {
		if s.Kind == Effect && s.Workspace == line.Workspace && s.Token > line.Token && line.Token > 0 {
			line.Kind = Fenced
			return errors.Join(ErrFenced, l.Write(line))
		}
	}
	return l.Write(line)
}

// Read reads a ledger, in the order in which the lines were written. A last line that is not whole yet is left out.
func Read(path string) ([]Line, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Line
	r := bufio.NewReader(bytes.NewReader(text))
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var l Line
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("line %d of the ledger: %w", n, err)
		}
		out = append(out, l)
	}
}
