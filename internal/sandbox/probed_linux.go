//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// probed is a backend that is made and tested at its first use. The outcome is kept for the life of the process,
// because a worker announces it.
type probed struct {
	name    string
	options Options
	make    func(context.Context, Options) (*runner, error)

	mu   sync.Mutex
	done bool
	run  *runner
	caps Capabilities
	err  error
}

func (p *probed) Name() string { return p.name }

// Probe implements [Sandbox].
func (p *probed) Probe(ctx context.Context) (Capabilities, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return p.caps, p.err
	}
	r, err := p.make(ctx, p.options)
	var caps Capabilities
	if err == nil {
		caps, err = tryOut(ctx, r)
	}
	if ctx.Err() != nil {
		return Capabilities{}, context.Cause(ctx) // not an answer to cache
	}
	if err != nil && !errors.Is(err, ErrNoIsolation) {
		err = fmt.Errorf("%w: %s: %w", ErrNoIsolation, p.name, err)
	}
	if err == nil {
		p.run = r
	}
	p.caps, p.err, p.done = caps, err, true
	return p.caps, p.err
}

// Run implements [Sandbox].
func (p *probed) Run(ctx context.Context, policy Policy, c Command, s Streams) (Result, error) {
	if _, err := p.Probe(ctx); err != nil {
		return Result{}, err
	}
	return p.run.Run(ctx, policy, c, s)
}

// canary is the probe's script. Each line that finds a hole prints it; the last one prints that all is well.
const canary = `
[ "$$" -gt 1 ] || echo hole: the command is process 1
[ ! -e /etc/shadow ] || echo hole: /etc/shadow is there
[ ! -e /root ] || echo hole: the directory of root is there
[ "$(echo /home/* /run/*)" = "/home/* /run/secrets" ] || echo hole: directories of others are there
(: > /usr/toolyard-canary) 2>/dev/null && echo hole: /usr is writable
(: > /toolyard-canary) 2>/dev/null && echo hole: the root is writable
(: > .git/hooks/post-commit) 2>/dev/null && echo hole: .git/hooks is writable
(: > .git/config) 2>/dev/null && echo hole: .git/config is writable
mv .git moved 2>/dev/null && echo hole: .git can be moved
: > canary || echo hole: the workspace is not writable
while read -r interface _; do case $interface in Inter-*|face*|lo:*) ;; *) echo "hole: network interface $interface";; esac; done < /proc/self/net/dev
unshare -U true 2>/dev/null && echo hole: namespaces can be made
echo sound
`

// probeTimeout bounds a probe; a machine that needs longer cannot run commands.
const probeTimeout = 20 * time.Second

// tryOut runs the canary with the policy of a real command.
func tryOut(ctx context.Context, r *runner) (Capabilities, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("toolyard-probe-%d-", os.Getpid()))
	if err != nil {
		return Capabilities{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a directory below the system's temporary one
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return Capabilities{}, err
	}
	if err := os.MkdirAll(filepath.Join(dir, ".git", "refs"), 0o755); err != nil {
		return Capabilities{}, err
	}
	var out bytes.Buffer
	res, err := r.Run(ctx, Policy{Workspace: &Workspace{Dir: dir, Writable: true}, Limits: Limits{Wall: probeTimeout}},
		Command{Argv: []string{"sh", "-c", canary}}, Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		return Capabilities{}, err
	}
	if got := strings.TrimSpace(out.String()); res.Reason != Exited || res.ExitCode != 0 || got != "sound" {
		return Capabilities{}, fmt.Errorf("the sandbox did not hold when it was tried: %s, status %d, signal %d: %s %s",
			res.Reason, res.ExitCode, res.Signal, strings.ReplaceAll(got, "\n", "; "), res.Detail)
	}
	if _, err := os.Stat(filepath.Join(dir, "canary")); err != nil {
		return Capabilities{}, fmt.Errorf("what the command wrote into the workspace is not there: %w", err)
	}
	return Capabilities{Backend: r.name, Layers: res.Layers, Missing: res.Missing}, nil
}
