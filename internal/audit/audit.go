// Package audit writes down who did what: one line of JSON for each deed, in a file that is only appended to.
//
// Authority: the file is its owner's alone. Lines are written by one system call each, so that several processes may
// share a file on one machine.
//
// Ordering: the lines of one process stand in the order in which the deeds were done.
//
// Failure: a line that cannot be written stands in the process's own log instead, and the deed is done all the same. If
// a part of it was written, as on a full disk, it ends there: the next entry has a line of its own.
package audit

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/clip"
)

// The limits of an entry.
const (
	// MaxTools is how many names of tools an entry has.
	MaxTools = 32
	// MaxTextBytes is how long a text of an entry is; longer ones are cut.
	MaxTextBytes = 512
)

// Entry is one deed. What is empty is not known, or does not apply.
type Entry struct {
	Time time.Time `json:"time"`
	// Action is what was done: an operation of the HTTP API, a call over MCP, or the type of an event.
	Action string `json:"action"`
	// By is who did it, and Proof how that was shown: "token", "jwt", "nats" or "nothing".
	By    string `json:"by"`
	Proof string `json:"proof"`
	// Token begins the SHA-256 sum of the token, in hexadecimal. From is the address of the other end.
	Token string `json:"token,omitempty"`
	From  string `json:"from,omitempty"`

	// Agent, Batch and Session say whose, and what, it was done to.
	Agent   string `json:"agent,omitempty"`
	Batch   string `json:"batch,omitempty"`
	Session string `json:"session,omitempty"`
	Call    *int   `json:"call,omitempty"`
	// Approval and Decision are of a person's decision.
	Approval string `json:"approval,omitempty"`
	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Calls is how many calls were handed in, and Tools whose, each once.
	Calls int      `json:"calls,omitempty"`
	Tools []string `json:"tools,omitempty"`

	// Request and Status are of an HTTP request. Event is the id of an event.
	Request string `json:"request,omitempty"`
	Status  int    `json:"status,omitempty"`
	Event   string `json:"event,omitempty"`
}

// HandIn adds a call to what was handed in.
func (e *Entry) HandIn(tool string) {
	e.Calls++
	if len(e.Tools) < MaxTools && !slices.Contains(e.Tools, tool) {
		e.Tools = append(e.Tools, tool)
	}
}

// Log is an audit log. A nil Log takes entries and writes none.
type Log struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	file io.WriteCloser
	cut  bool // the file does not end with a whole line
}

// Open opens a log, and makes its file if there is none. What cannot be written later is told to log.
func Open(path string, log *slog.Logger) (*Log, error) {
	l := &Log{path: path, log: log}
	return l, l.Reopen()
}

// Reopen goes on in the file that has the log's name now: the former one was renamed.
func (l *Log) Reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cut, err := endsCut(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.file
	l.file, l.cut = f, cut
	if before != nil {
		return before.Close()
	}
	return nil
}

// endsCut reports whether a file ends in the middle of a line, which a former process could not write whole. What
// cannot be read back, such as a pipe, does not.
func endsCut(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return false, nil
	}
	r, err := os.Open(f.Name())
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) { // only written, or renamed by now
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var last [1]byte
	_, err = r.ReadAt(last[:], info.Size()-1)
	if errors.Is(err, io.EOF) { // another file has the name by now
		last[0], err = '\n', nil
	}
	return last[0] != '\n', errors.Join(err, r.Close())
}

// Close ends the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.file
	l.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Put writes an entry.
func (l *Log) Put(e Entry) {
	if l == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	for _, text := range []*string{&e.By, &e.Agent, &e.Batch, &e.Session, &e.Approval, &e.Reason, &e.Request} {
		*text = clip.Bytes(*text, MaxTextBytes)
	}
	e.Tools = slices.Clone(e.Tools[:min(len(e.Tools), MaxTools)])
	for i, name := range e.Tools {
		e.Tools[i] = clip.Bytes(name, MaxTextBytes)
	}
	line, err := json.Marshal(e)
	if err == nil {
		err = l.write(line)
	}
	if err != nil {
		l.log.Error("the audit log was not written", "file", l.path, "entry", string(line), "error", err)
	}
}

// write appends a line, whose end is not there yet.
func (l *Log) write(entry []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return os.ErrClosed
	}
	line := append(slices.Clone(entry), '\n')
	if l.cut {
		line = append([]byte("\n"), line...)
	}
	n, err := l.file.Write(line)
	if n > 0 {
		l.cut = line[n-1] != '\n'
	}
	return err
}
