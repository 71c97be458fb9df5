package sandbox

import (
	"errors"
	"strings"
	"testing"
)

func TestTheZeroValuesAreTheStrictest(t *testing.T) {
	if got := (Capabilities{}).Isolation(); got != IsolationNone {
		t.Errorf("zero capabilities: isolation %q, want %q", got, IsolationNone)
	}
	if got := (Capabilities{Backend: "bwrap"}).Isolation(); got != IsolationNone {
		t.Errorf("a backend without a layer: isolation %q, want %q", got, IsolationNone)
	}
	// The positive control: something that holds is named.
	if got := (Capabilities{Backend: "bwrap", Layers: []string{"userns"}}).Isolation(); got != "bwrap" {
		t.Errorf("a backend with a layer: isolation %q, want bwrap", got)
	}
	var r Refuse
	if r.Name() != "refuse" || r.Isolation() != IsolationNone {
		t.Errorf("zero Refuse: name %q, isolation %q", r.Name(), r.Isolation())
	}
}

func TestRefuseSaysInOneLineWhatToDo(t *testing.T) {
	c, err := Refuse{}.Probe(t.Context())
	if !errors.Is(err, ErrNoIsolation) {
		t.Fatalf("Probe: %v, want an error that wraps ErrNoIsolation", err)
	}
	if c.Isolation() != IsolationNone {
		t.Errorf("isolation %q beside an error", c.Isolation())
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "worker check") {
		t.Errorf("the error is not one line with a way out: %q", text)
	}
}
