package toolset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/sandbox"
)

// stdio is a started server and the pipes to it.
type stdio struct {
	mcp.IOTransport
	kill context.CancelFunc
	// over is closed when no process of the server is left; end, set before, says how it ended.
	over   chan struct{}
	end    error
	stderr *tail
	// noise is the first line of its stdout that is no message.
	noise atomic.Pointer[string]
	// answered says that it has answered a request. Whoever reads from it uses this alone.
	answered bool
	// unwritten says that something could not be written to it.
	unwritten atomic.Bool
	stdin     *os.File
	read      *io.PipeReader
	once      sync.Once
}

// overStdio starts the server.
func (t *Toolset) overStdio() (link, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to the server: %w", err)
	}
	read, write := io.Pipe()
	// It lives until the session cuts it.
	running, kill := context.WithCancel(context.Background())
	w := &stdio{kill: kill, over: make(chan struct{}), stderr: &tail{}, stdin: ours, read: read}
	w.IOTransport = mcp.IOTransport{MaxLineLength: MaxMessageBytes, Writer: lowering{patient{ours, &w.unwritten}},
		Reader: wire.Lines(&metered{ReadCloser: read}, MaxMessageBytes, w.lift)}
	s := &t.o.Server
	dir := s.Dir
	if dir == "" {
		dir = t.o.Dir
	}
	launched, err := sandbox.LaunchUnisolated(running, sandbox.Program{
		Argv: s.Command, Dir: dir, Env: environment(s, t.o.Lookup), Stdin: theirs, Stdout: write, Stderr: w.stderr,
		OutputBytes: math.MaxInt64, // each message and their rate have limits; their sum has none
	})
	closed := theirs.Close()
	if err != nil {
		kill()
		return nil, errors.Join(err, ours.Close())
	}
	go func() {
		defer close(w.over)
		res, err := launched.Wait()
		w.end = errors.Join(err, closed, w.ending(res))
		_ = write.Close() // it never fails
	}()
	return w, nil
}

// lift is the function lift. It remembers a line that is no message: the library ends the session for it. It would do
// that for an error without an id, too, which JSON-RPC has for what could not be read, and with which some servers
// answer notifications. No call waits for it, unless the server could not even parse what it got: that may be a call,
// and nobody knows which one. Before the first answer it may be all that a server says to a handshake.
func (w *stdio) lift(line []byte) []byte {
	text := bytes.TrimSpace(line)
	if code, ok := errorOfNothing(text); w.answered && ok && code != jsonrpc.CodeParseError {
		return nil
	}
	w.answered = w.answered || bytes.Contains(text, []byte(`"result"`))
	if len(text) > 0 && text[0] != '{' && (text[0] != '[' || !json.Valid(text)) {
		said := strings.ToValidUTF8(string(text[:min(len(text), maxNoiseBytes)]), "\uFFFD")
		w.noise.CompareAndSwap(nil, &said)
	}
	return lift(line)
}

// errorOfNothing reports whether a message is an error that answers no request, and its code; 0 where it has none.
func errorOfNothing(message []byte) (code int64, ok bool) {
	var m struct {
		Method json.RawMessage `json:"method"`
		ID     json.RawMessage `json:"id"`
		Error  json.RawMessage `json:"error"`
	}
	if !bytes.Contains(message, []byte(`"error"`)) || json.Unmarshal(message, &m) != nil || m.Method != nil {
		return 0, false
	}
	if m.Error == nil || m.ID != nil && string(m.ID) != "null" {
		return 0, false
	}
	var e jsonrpc.Error
	if json.Unmarshal(m.Error, &e) != nil {
		return 0, true
	}
	return e.Code, true
}

// ending says how the server ended, with a line that made an end of it and the end of its stderr.
func (w *stdio) ending(res sandbox.Result) error {
	how := fmt.Sprintf("the server ended with exit status %d", res.ExitCode)
	if res.Signal != 0 {
		how = fmt.Sprintf("the server was ended by signal %d", res.Signal)
	}
	if line := w.noise.Load(); line != nil {
		how = fmt.Sprintf("the server wrote a line to its stdout that is no message: %q; %s", *line, how)
	}
	if said := w.stderr.String(); said != "" {
		how += "; its stderr ends: " + said
	}
	return errors.New(how)
}

// cut implements [link]. The server has a moment to end by itself after its stdin is closed.
func (w *stdio) cut() {
	w.once.Do(func() {
		_ = w.stdin.Close() // the SDK may have closed it
		_ = w.read.Close()
		go func() {
			select {
			case <-w.over:
			case <-time.After(stopGrace):
			}
			w.kill()
		}()
	})
}

func (w *stdio) wait() error {
	<-w.over
	return w.end
}

// patient writes to a server, and fails if the server does not read for too long.
type patient struct {
	*os.File
	failed *atomic.Bool
}

func (p patient) Write(b []byte) (n int, err error) {
	if err = p.SetWriteDeadline(time.Now().Add(writeTimeout)); err == nil {
		n, err = p.File.Write(b)
	}
	if err != nil {
		p.failed.Store(true)
	}
	return n, err
}

// metered fails if a server sends lines faster than the limit.
type metered struct {
	io.ReadCloser
	last  time.Time
	lines float64 // that may still come
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	now := time.Now()
	if m.last.IsZero() {
		m.lines = MaxLinesAtOnce
	} else {
		m.lines = min(MaxLinesAtOnce, m.lines+now.Sub(m.last).Seconds()*MaxLinesPerSecond)
	}
	m.last = now
	if m.lines -= float64(bytes.Count(b[:n], []byte{'\n'})); m.lines < 0 {
		return 0, fmt.Errorf("the server goes on sending more than %d lines a second", MaxLinesPerSecond)
	}
	return n, err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text = append(t.text, b...); len(t.text) > maxStderrBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-maxStderrBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.text)), "\uFFFD")
}
