// Package ledger is where the tools of the fault tests write down what they did: one JSON object a line in one file,
// for all processes, each on the disk before the tool goes on. It is the ground truth that logs and replies are held
// against.
//
// The ledger is also the thing that effects act on: it knows the highest fencing token of each workspace, and refuses
// an effect with a lower one, as whatever checks tokens would.
package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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
type Ledger struct {
	f *os.File

	mu      sync.Mutex
	reader  *Reader
	highest map[toolyard.Workspace]uint64 // the tokens of the effects that reader has read
}

// Open opens the ledger for writing, and makes it if it is not there.
func Open(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Ledger{f: f, reader: NewReader(path), highest: map[toolyard.Workspace]uint64{}}, nil
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
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, err := l.reader.New()
	if err != nil {
		return err
	}
	for _, s := range lines {
		if s.Kind == Effect {
			l.highest[s.Workspace] = max(l.highest[s.Workspace], s.Token)
		}
	}
	if line.Token > 0 && line.Token < l.highest[line.Workspace] {
		line.Kind = Fenced
		return errors.Join(ErrFenced, l.Write(line))
	}
	return l.Write(line)
}

// Read reads a whole ledger: see [Reader.New].
func Read(path string) ([]Line, error) { return NewReader(path).New() }

// Reader reads a ledger as it grows: a line is read once, since a test may look again and again at thousands of them.
type Reader struct {
	path string
	at   int64 // how far it has read, in bytes
	n    int   // the lines before
}

// NewReader reads from the beginning.
func NewReader(path string) *Reader { return &Reader{path: path} }

// New returns what was written since it was called last, in the order in which the lines were written. A last line
// that is not whole yet is left out. A ledger that is not there yet is empty.
func (r *Reader) New() (out []Line, err error) {
	f, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(r.at, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return out, nil
		}
		var l Line
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("line %d of the ledger: %w", r.n+1, err)
		}
		out, text = append(out, l), rest
		r.at, r.n = r.at+int64(len(line))+1, r.n+1
	}
}
