//go:build unix

package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// The deadlines of what the harness waits for. Each is far longer than it takes, also on a busy machine.
const (
	startWait = 60 * time.Second
	faultWait = 90 * time.Second
	openWait  = 3 * time.Minute       // several clusters elect at once
	look      = 10 * time.Millisecond // between two looks at what is waited for
)

// process is a child process.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	log  string // its standard error
	hits string // what its failpoints have announced
	// planned says that its end is part of the plan.
	planned bool

	mu   sync.Mutex
	says map[string]string // "key: value" lines of its standard output
	done chan struct{}     // closed when it has ended
}

// spawn starts a command and waits until it has said a line that begins with a key.
func (s *system) spawn(name, ready, failpoints, command string, args ...string) *process {
	s.t.Helper()
	return s.begun(s.launch(name, failpoints, command, args...), ready)
}

// begun waits until a process has said a line that begins with a key.
func (s *system) begun(p *process, ready string) *process {
	s.t.Helper()
	name := p.name
	s.until(startWait, name+" is ready", func() bool {
		if p.ended() {
			s.t.Fatalf("%s ended before it was ready:\n%s", name, p.tail())
		}
		return p.said(ready) != ""
	})
	return p
}

// launch starts a command.
func (s *system) launch(name, failpoints, command string, args ...string) *process {
	s.t.Helper()
	return s.launchAs(func(*exec.Cmd) {}, name, failpoints, command, args...)
}

// launchAs starts a command that was changed before.
func (s *system) launchAs(change func(*exec.Cmd), name, failpoints, command string, args ...string) *process {
	s.t.Helper()
	dir, err := s.bin()
	must.OK(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	name = fmt.Sprintf("%02d-%s", len(s.processes), name)
	p := &process{
		t: s.t, name: name, cmd: exec.Command(filepath.Join(dir, command), args...), log: filepath.Join(s.dir, name+
			".log"),
		hits: filepath.Join(s.dir, name+".hits"), says: map[string]string{}, done: make(chan struct{}),
	}
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TOOLYARD_") })
	p.cmd.Env = append(p.cmd.Env, "TOOLYARD_DATA="+s.data())
	if failpoints != "" {
		p.cmd.Env = append(p.cmd.Env, failpoint.Env+"="+failpoints, failpoint.EnvLog+"="+p.hits)
	}
	log, err := os.Create(p.log)
	must.OK(s.t, err)
	p.cmd.Stderr = log
	change(p.cmd)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(errors.Join(err, log.Close()))
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(errors.Join(err, log.Close()))
	}
	s.processes = append(s.processes, p)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if k, v, ok := strings.Cut(lines.Text(), ": "); ok {
				p.mu.Lock()
				p.says[k] = v
				p.mu.Unlock()
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = p.cmd.Wait() // how it ended is looked up where it matters
		_ = log.Close()  // its writer was the process
		close(p.done)
	}()
	return p
}

func (p *process) said(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.says[key]
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal, and says with SIGKILL that the end is part of the plan.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	p.planned = p.planned || sig == syscall.SIGKILL
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s to %s: %v", sig, p.name, err)
	}
}

// kill kills the process and waits until it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	select {
	case <-p.done:
	case <-time.After(startWait):
		p.t.Fatalf("%s does not die", p.name)
	}
}

// retire ends a process as an operator does, and waits until it is gone.
func (s *system) retire(p *process) {
	s.t.Helper()
	p.planned = true
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(startWait):
		s.t.Fatalf("%s does not end", p.name)
	}
}

// hit reports whether a failpoint of the process has announced itself.
func (p *process) hit(n failpoint.Name) bool {
	text, err := os.ReadFile(p.hits)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, " "); ok && name == string(n) {
			return true
		}
	}
	return false
}

// logged is what it wrote to its standard error.
func (p *process) logged() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// tail is the end of it.
func (p *process) tail() string {
	text := p.logged()
	return text[max(0, len(text)-2_000):]
}

// until asks until something holds, and fails the test when it does not in time.
func (s *system) until(limit time.Duration, what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(look) {
		if time.Now().After(end) {
			s.t.Fatalf("after %s it does not hold that %s", limit, what)
		}
		if s.t.Failed() {
			s.t.FailNow()
		}
	}
}

// killedAt waits until a process has killed itself at a failpoint.
func (s *system) killedAt(p *process, n failpoint.Name) {
	s.t.Helper()
	p.planned = true
	s.until(faultWait, fmt.Sprintf("%s has killed itself at %s", p.name, n), p.ended)
	state := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !p.hit(n) || !state.Signaled() || state.Signal() != syscall.SIGKILL {
		s.t.Fatalf("%s ended with %s, and not by its failpoint %s:\n%s", p.name, p.cmd.ProcessState, n, p.tail())
	}
}

// stoppedAt waits until a process has stopped itself at a failpoint.
func (s *system) stoppedAt(p *process, n failpoint.Name) {
	s.t.Helper()
	s.until(faultWait, fmt.Sprintf("%s has stopped itself at %s", p.name, n), func() bool {
		return p.hit(n) && p.stopped()
	})
}

// stopped reports whether the process is stopped by a signal.
func (p *process) stopped() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	return ok && strings.HasPrefix(rest, "T")
}
