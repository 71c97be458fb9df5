package failpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The kinds of action.
const (
	kill  = "kill"
	stop  = "stop"
	delay = "delay"
	note  = "note"
)

// action is what happens at a place.
type action struct {
	kind  string
	delay time.Duration
	at    int // the hit at which it is taken; 0 means each
}

// plan is what the environment asks for. Its methods may be called from many goroutines.
type plan struct {
	log     string
	actions map[Name]action
	mu      sync.Mutex
	hits    map[Name]int
}

// due is an action that is to be taken now.
type due struct {
	name   Name
	action action
	hits   int
	log    string
}

// parse reads the environment. It fails on everything that it does not know.
func parse(text, log string) (*plan, error) {
	p := &plan{log: log, actions: map[Name]action{}, hits: map[Name]int{}}
	if text == "" {
		return p, nil
	}
	for _, part := range strings.Split(text, ";") {
		name, what, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q: write name=action", part)
		}
		if !slices.Contains(Names, Name(name)) {
			return nil, fmt.Errorf("there is no failpoint %q", name)
		}
		if _, ok := p.actions[Name(name)]; ok {
			return nil, fmt.Errorf("%s stands twice", name)
		}
		a, err := parseAction(what)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.actions[Name(name)] = a
	}
	return p, nil
}

func parseAction(text string) (a action, err error) {
	what, at, counted := strings.Cut(text, "@")
	a.at = 1
	switch {
	case at == "*":
		a.at = 0
	case counted:
		if a.at, err = strconv.Atoi(at); err != nil || a.at < 1 {
			return a, fmt.Errorf("%q: write a number from 1 on or * behind @", text)
		}
	}
	kind, arg, hasArg := strings.Cut(what, ":")
	a.kind = kind
	switch {
	case (kind == kill || kind == stop || kind == note) && !hasArg:
		return a, nil
	case kind == delay && hasArg:
		if a.delay, err = time.ParseDuration(arg); err != nil || a.delay <= 0 {
			return a, fmt.Errorf("%q: delay needs a positive time", text)
		}
		return a, nil
	}
	return a, fmt.Errorf("%q is no action; use kill, stop, delay:TIME or note", text)
}

// hit counts, and reports what is to be done now.
func (p *plan) hit(n Name) (due, bool) {
	a, ok := p.actions[n]
	if !ok {
		return due{}, false
	}
	p.mu.Lock()
	p.hits[n]++
	hits := p.hits[n]
	p.mu.Unlock()
	return due{name: n, action: a, hits: hits, log: p.log}, a.at == 0 || a.at == hits
}
