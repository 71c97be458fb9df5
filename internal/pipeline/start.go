package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/tool"
)

// schedule starts the call. It asks the breaker first, so that a dependency that is down costs no claim. A probe of a
// half-open breaker blocks other calls while it is started.
func (c *call) schedule(ctx context.Context) finding {
	if c.p.saturated() {
		return c.tooManyLeftBehind()
	}
	if c.job.Start == nil {
		return failed(toolyard.InternalError, "Internal error: nothing on this worker can start a call.",
			"the job has no Start")
	}
	if c.p.Breakers != nil {
		name, host := c.dependency()
		report, retry, err := c.p.Breakers.Allow(name)
		if err != nil {
			what := fmt.Sprintf("What the tool %q depends on", c.entry.Name)
			if host != "" {
				what = host
			}
			return finding{fail: &failure{code: toolyard.DependencyUnavailable, detail: err.Error(), retryable: true,
				retryAfterMS: roundUpMS(retry),
				message:      what + " is down; it was not tried."}}
		}
		c.report = report
	}
	release, err := c.job.Start(ctx)
	if err == nil {
		c.release = release
		f := finding{detail: c.job.Waited, noted: c.job.Waited != ""}
		if c.job.Prepare != nil {
			f = c.prepare(ctx)
		}
		// A cancel may have come while the claim was appended; the call must not start then.
		if stop := c.ended(ctx); stop != nil {
			f.fail = stop
		}
		return f
	}
	_, sibling := errors.AsType[ErrSiblingCanceled](err)
	switch {
	case sibling, errors.Is(err, ErrLost), errors.Is(err, ErrCanceled), errors.Is(err, ErrDeadline):
		return finding{fail: c.stopped(err)}
	}
	if stop := c.ended(ctx); stop != nil {
		stop.detail = join(stop.detail, err.Error())
		return finding{fail: stop}
	}
	return finding{fail: &failure{code: toolyard.DependencyUnavailable, message: "The call could not be started.",
		detail: err.Error(), retryable: true}}
}

// prepare does what has to be done before the tool runs.
func (c *call) prepare(ctx context.Context) finding {
	did, err := c.job.Prepare(ctx)
	if err == nil {
		said := join(c.job.Waited, did)
		return finding{noted: said != "", detail: said}
	}
	e := tool.AsError(err)
	f := &failure{code: e.Code, message: "The call was not run: " + e.Message + ".", detail: cause(e),
		retryable: e.Code == toolyard.DependencyUnavailable}
	switch e.Code {
	case toolyard.DependencyUnavailable, toolyard.SetupRequired, toolyard.SandboxViolation:
	default:
		f.code, f.retryable, f.message = toolyard.DependencyUnavailable, true, "The call could not be started."
		f.detail = err.Error()
	}
	return finding{fail: f}
}

// dependency is what the circuit breaker watches. If a tool's host depends on its input and the tool names no
// dependency, each host is a dependency; host is then its name and port. Concurrent calls read both.
func (c *call) dependency() (name, host string) {
	if c.entry.Dependency != "" {
		return c.entry.Dependency, ""
	}
	if c.entry.Specifier.URL != "" {
		if address, ok := policy.Field(c.input(), c.entry.Specifier.URL); ok {
			host = c.withhold(hostPort(address))
		}
	}
	return strings.TrimSpace(c.entry.Name + " " + host), host
}

// Dependency names what a call of a tool depends on, as rates know it: what the tool names, or the host and port that
// the input's URL names; empty if that is nothing.
func Dependency(d *tool.Declaration, input json.RawMessage) string {
	if d.Dependency != "" || d.Specifier.URL == "" {
		return d.Dependency
	}
	address, _ := policy.Field(input, d.Specifier.URL)
	return hostPort(address)
}

// maxHostBytes is the longest name of a host and its port: RFC 1035 allows 253 bytes, and a port has five digits.
const maxHostBytes = 253 + len(":65535")

// hostPort is the host and port that a URL names, in one spelling; empty if it names none.
func hostPort(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	host := net.JoinHostPort(strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), port)
	if len(host) > maxHostBytes {
		return ""
	}
	return host
}

// roundUpMS is a duration in whole milliseconds, never less than the duration.
func roundUpMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
