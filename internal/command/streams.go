package command

import (
	"encoding/json"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/tool"
)

// maxStatusBytes is how much of a line of stderr is reported as progress.
const maxStatusBytes = 1_000

// Environment adds the variables that identify the call to those of the manifest.
func Environment(declared map[string]string, env tool.Env) map[string]string {
	out := map[string]string{}
	maps.Copy(out, declared)
	for name, value := range map[string]string{
		"AGENT": string(env.Agent), "BATCH": string(env.Batch), "SESSION": string(env.Session),
		"INDEX": strconv.Itoa(env.Index), "CALL_ID": env.CallID,
		"WORKSPACE": string(env.Workspace), "ATTEMPT": strconv.Itoa(env.Attempt), "IDEMPOTENCY_KEY": env.IdempotencyKey,
		"FENCING_TOKEN": strconv.FormatUint(env.FencingToken, 10),
	} {
		out["TOOLYARD_"+name] = value
	}
	for name, value := range map[string]string{traceparent.Env: env.TraceParent, traceparent.StateEnv: env.TraceState,
		traceparent.BaggageEnv: env.Baggage} {
		if _, own := out[name]; !own && value != "" {
			out[name] = value
		}
	}
	return out
}

// Streams collects what a program writes; who runs the program bounds it. Each line of stderr is progress. Output on
// stdout is progress without a status, so that the program does not count as idle. It is safe for concurrent use.
type Streams struct {
	Progress func(tool.Progress) // nil: nobody is told

	mu       sync.Mutex
	out, err strings.Builder
	toErr    bool // the last write was to stderr
	line     []byte
}

// Stdout and Stderr are where the program writes.
func (s *Streams) Stdout() io.Writer { return (*stdout)(s) }

// Stderr is the other stream.
func (s *Streams) Stderr() io.Writer { return (*stderr)(s) }

type stdout Streams

func (s *stdout) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.out.Write(b)
	s.toErr = false
	s.mu.Unlock()
	(*Streams)(s).report("")
	return len(b), nil
}

type stderr Streams

func (s *stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.err.Write(b)
	s.toErr = true
	var last []byte
	for _, c := range b {
		switch {
		case c == '\n' || c == '\r':
			last, s.line = s.line, nil
		case len(s.line) < maxStatusBytes:
			s.line = append(s.line, c)
		}
	}
	s.mu.Unlock()
	(*Streams)(s).report(strings.ToValidUTF8(string(last), "\uFFFD"))
	return len(b), nil
}

func (s *Streams) report(status string) {
	if s.Progress != nil {
		s.Progress(tool.Progress{Fraction: -1, Status: strings.TrimSpace(status)})
	}
}

// All is the output of a failed program: stderr, which says why, and stdout.
func (s *Streams) All() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return joined(s.err.String(), s.out.String())
}

// CutOff is All of a program that was stopped because it wrote too much: [tool.Env.CutOff] of the stream to which it
// wrote last, which ends anywhere.
func (s *Streams) CutOff(env tool.Env) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.toErr {
		return joined(env.CutOff(s.err.String()), s.out.String())
	}
	return joined(s.err.String(), env.CutOff(s.out.String()))
}

func joined(said, out string) string {
	if said != "" && out != "" && !strings.HasSuffix(said, "\n") {
		said += "\n"
	}
	return said + out
}

// Output is what the program has written to stdout, as the manifest says that it writes: text or json.
func (s *Streams) Output(form string) (tool.Output, error) {
	s.mu.Lock()
	text := s.out.String()
	s.mu.Unlock()
	if form != "json" {
		return tool.Output{Text: text}, nil
	}
	value := strings.TrimPrefix(text, "\ufeff") // some programs write a byte order mark, also before JSON
	if !json.Valid([]byte(value)) {
		return tool.Output{Text: text}, &tool.Error{Code: toolyard.ResultMappingFailed,
			Message: "the command did not write one JSON value to its stdout"}
	}
	return tool.Output{Structured: json.RawMessage(value)}, nil
}
