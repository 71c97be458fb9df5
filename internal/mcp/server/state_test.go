package server

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func sampleBatch() *toolyard.Batch {
	return &toolyard.Batch{Agent: "a", Calls: []toolyard.Call{{Tool: "t", Input: []byte(`{"x":1}`)}}}
}

func TestAStateComesBackAsItWas(t *testing.T) {
	s, now := newSealer([]byte("0123456789abcdef")), time.Unix(1_000_000, 0)
	in := pendingOf(sampleBatch(), "b", client.Approval{ID: "a.b.0"}, now.Add(time.Minute))
	state, err := s.seal(in)
	must.OK(t, err)
	out, err := s.open(state, now)
	if err != nil || out.Batch != "b" || out.Approval != "a.b.0" || !out.isOf(sampleBatch()) {
		t.Errorf("got %+v (%v)", out, err)
	}
	if _, err := newSealer([]byte("0123456789abcdef")).open(state, now); err != nil {
		t.Errorf("a server with the same key: %v", err)
	}
	if _, err := newSealer([]byte("another key, as long")).open(state, now); !errors.Is(err, errState) {
		t.Errorf("a server with another key: %v", err)
	}
	if _, err := s.open(state, now.Add(2*time.Minute)); !errors.Is(err, errState) {
		t.Errorf("when it is too old: %v", err)
	}
}

// TestNoByteOfAStateCanBeChanged: nor left out, nor added.
func TestNoByteOfAStateCanBeChanged(t *testing.T) {
	s, now := newSealer([]byte("0123456789abcdef")), time.Unix(1_000_000, 0)
	state, err := s.seal(pendingOf(sampleBatch(), "b", client.Approval{ID: "a.b.0"}, now.Add(time.Minute)))
	must.OK(t, err)
	for i := range state {
		for _, other := range []string{state[:i] + state[i+1:], state[:i] + string(state[i]^1) +
			state[i+1:], state[:i] + "A" + state[i:]} {
			if _, err := s.open(other, now); err == nil {
				t.Fatalf("%q was taken for %q", other, state)
			}
		}
	}
	if _, err := s.open(state+strings.Repeat("A", MaxStateBytes), now); err == nil {
		t.Error("one that is too long was taken")
	}
}

// TestTheLongestNamesFit: escaped as they may be.
func TestTheLongestNamesFit(t *testing.T) {
	s, now := newSealer([]byte("0123456789abcdef")), time.Unix(1_000_000, 0)
	name := strings.Repeat("<", toolyard.MaxNameBytes)
	b := &toolyard.Batch{Agent: toolyard.Agent(name), Calls: []toolyard.Call{{Tool: name, Input: []byte(`{}`)}}}
	id := broker.ApprovalID(toolyard.BatchKey{Agent: b.Agent, ID: toolyard.BatchID(name)}, toolyard.MaxCallsPerBatch)
	state, err := s.seal(pendingOf(b, toolyard.BatchID(name), client.Approval{ID: id}, now))
	must.OK(t, err)
	if _, err := s.open(state, now); err != nil {
		t.Errorf("a state of %d bytes: %v", len(state), err)
	}
}

func TestAStateIsOfOneCall(t *testing.T) {
	p := pendingOf(sampleBatch(), "b", client.Approval{ID: "a.b.0"}, time.Now())
	for name, change := range map[string]func(*toolyard.Batch){
		"agent": func(b *toolyard.Batch) { b.Agent = "other" },
		"tool":  func(b *toolyard.Batch) { b.Calls[0].Tool = "other" },
		"input": func(b *toolyard.Batch) { b.Calls[0].Input = []byte(`{"x":2}`) },
	} {
		b := sampleBatch()
		change(b)
		if p.isOf(b) {
			t.Errorf("it is taken for a call of another %s", name)
		}
	}
}

// FuzzState: only what was sealed is taken, whatever comes.
func FuzzState(f *testing.F) {
	s, now := newSealer([]byte("0123456789abcdef")), time.Unix(1_000_000, 0)
	state, err := s.seal(pendingOf(sampleBatch(), "b", client.Approval{ID: "a.b.0"}, now.Add(time.Minute)))
	must.OK(f, err)
	for _, seed := range []string{state, "", ".", "e30.", "e30." +
		base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)), state + "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if p, err := s.open(in, now); err == nil && in != state {
			t.Errorf("%q was taken as %+v", in, p)
		}
	})
}

// TestAQuestionIsOpenForAsLongAsItsCallWaits: when that ends is by the clock of the NATS server, and the log says so. A
// server whose clock is ahead does not take an answer in time for one that comes too late.
func TestAQuestionIsOpenForAsLongAsItsCallWaits(t *testing.T) {
	s := bare(t)
	b := s.cfg.Client.Batch(toolyard.BatchKey{Agent: "a", ID: "b"})
	res, err := s.question(t.Context(), nil, sampleBatch(), b, client.Approval{ID: "a.b.0", Tool: "t",
		Input: []byte("{}"), Expires: time.Now().Add(-time.Minute)})
	must.OK(t, err)
	if _, err := s.state.open(res.RequestState, time.Now()); err != nil {
		t.Errorf("the answer is refused: %v", err)
	}
}
