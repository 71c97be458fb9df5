package admission

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pattern"
)

// Rate bounds how fast calls begin, and how many are in flight, in all dispatchers together. What is 0 is not bounded.
type Rate struct {
	// Calls is how many are in flight: handed to the workers, and not answered yet.
	Calls int
	// PerSecond and PerMinute are how many begin in any second, and in any minute.
	PerSecond, PerMinute int
	// Wait is how long a call waits for its turn at most. 0: [DefaultRateWait].
	Wait time.Duration
}

// NamedRate gives tools or dependencies a rate: those of a name, or with a prefix if it ends in "*". Each of them has
// the rate for itself.
type NamedRate struct {
	Name string
	Rate
}

// The limits of rates.
const (
	DefaultRateWait  = 30 * time.Second       // for which a call waits for its turn
	MaxRateWait      = time.Hour              // that a rate may have calls wait
	MaxRateWaiting   = 10_000                 // calls that wait in one dispatcher for a rate
	rateYield        = 500 * time.Millisecond // for which room is left to another dispatcher
	rateRetryAtLeast = time.Second            // that a model is told to wait
)

// ParseRate reads the rate of tools or dependencies: NAME=KEY:N,KEY:N, of the keys calls, calls-per-second,
// calls-per-minute and wait-ms.
func ParseRate(text string) (r NamedRate, err error) {
	name, list, ok := strings.Cut(text, "=")
	r.Name = name
	if !ok || list == "" {
		return r, fmt.Errorf("%q: write NAME=KEY:N,KEY:N", text)
	}
	if err := pattern.Check(name); err != nil {
		return r, fmt.Errorf("%q: the name: %w", text, err)
	}
	wait := 0
	err = parseKeys(text, list, []key{{"calls", &r.Calls, MaxQuota}, {"calls-per-second", &r.PerSecond, MaxQuota},
		{"calls-per-minute", &r.PerMinute, MaxQuota}, {"wait-ms", &wait, int(MaxRateWait.Milliseconds())}})
	r.Wait = time.Duration(wait) * time.Millisecond
	if err == nil && r.Calls+r.PerSecond+r.PerMinute == 0 {
		err = fmt.Errorf("%q bounds nothing: name calls, calls-per-second or calls-per-minute", text)
	}
	return r, err
}

// key is one of the keys of a grant or a rate, 1 to most.
type key struct {
	name string
	to   *int
	most int
}

// parseKeys reads KEY:N,KEY:N. Each key may be there once.
func parseKeys(text, list string, keys []key) error {
	names := make([]string, len(keys))
	for n, k := range keys {
		names[n] = k.name
	}
	seen := map[string]bool{}
	for _, one := range strings.Split(list, ",") {
		name, value, _ := strings.Cut(one, ":")
		n := -1
		for i, k := range keys {
			if k.name == name && !seen[name] {
				n = i
			}
		}
		if n < 0 {
			return fmt.Errorf("%q: %q is none of the keys %s, or there twice", text, name, strings.Join(names, ", "))
		}
		seen[name] = true
		v, err := strconv.Atoi(value)
		if err != nil || v < 1 || v > keys[n].most {
			return fmt.Errorf("%q: %s is %q; use 1 to %d", text, name, value, keys[n].most)
		}
		*keys[n].to = v
	}
	return nil
}

// ratePrefix begins the scopes of rates, which no scope of a quota does, and dependencyPrefix those of dependencies.
const (
	ratePrefix       = "rate of "
	dependencyKind   = "dependency"
	dependencyPrefix = ratePrefix + dependencyKind + " "
)

// ofRate reports whether a scope is that of a rate.
func (s Scope) ofRate() bool { return strings.HasPrefix(string(s), ratePrefix) }

// Text names the scope without what tells it from those of quotas.
func (s Scope) Text() string { return strings.TrimPrefix(string(s), ratePrefix) }

// rated is one rate that a call is under.
type rated struct {
	scope Scope
	rate  Rate
}

// RateKey is what the rates of a call follow from. Dependency is empty for a call that has none.
type RateKey struct {
	Agent            toolyard.Agent
	Tool, Dependency string
}

// Rates reports whether there are rates.
func (g *Grants) Rates() bool {
	if len(g.Tools)+len(g.Dependencies) > 0 {
		return true
	}
	for _, list := range [][]Grant{g.Agents, g.Teams} {
		for i := range list {
			if list[i].CallsPerSecond > 0 {
				return true
			}
		}
	}
	return false
}

// rates returns the rates that a call is under: of its tool, its dependency, its agent and its agent's team.
func (g *Grants) rates(k RateKey) (out []rated) {
	named := func(kind, name string, list []NamedRate) {
		for i := range list {
			if name != "" && pattern.Matches(list[i].Name, name) {
				out = append(out, rated{Scope(ratePrefix + kind + " " + name), list[i].Rate})
				return
			}
		}
	}
	named("tool", k.Tool, g.Tools)
	named(dependencyKind, k.Dependency, g.Dependencies)
	for _, s := range g.of(k.Agent) {
		if s.quota.CallsPerSecond > 0 {
			out = append(out, rated{ratePrefix + s.scope, Rate{PerSecond: s.quota.CallsPerSecond}})
		}
	}
	return out
}

// RatesOf says which rates a call is under, for people: "tool web_fetch: 2 calls in flight, 5 a second".
func (g *Grants) RatesOf(k RateKey) (out []string) {
	for _, r := range g.rates(k) {
		out = append(out, r.scope.Text()+": "+r.rate.String())
	}
	return out
}

// String says what the rate bounds.
func (r Rate) String() string {
	var out []string
	for _, b := range []struct {
		n    int
		what string
	}{{r.Calls, "calls in flight"}, {r.PerSecond, "a second"}, {r.PerMinute, "a minute"}} {
		if b.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", b.n, b.what))
		}
	}
	return strings.Join(out, ", ")
}

// wait is how long a call waits for its turn at most.
func (r Rate) wait() time.Duration {
	if r.Wait > 0 {
		return r.Wait
	}
	return DefaultRateWait
}
