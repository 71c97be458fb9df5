package natsbroker

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestIndexKeys writes entries with names of all bytes as keys, and reads them back.
func TestIndexKeys(t *testing.T) {
	// Other processes read it: raise version.Wire with every change.
	written := broker.Entry{
		ID: "b 1", Agent: "ann", Session: "s", Workspace: "w", Status: toolyard.StatusCompleted, Calls: 40,
		Submitted: time.UnixMilli(1_790_000_000_000), Changed: time.UnixMilli(1_790_000_060_000), Place: 1_000_000,
		Revision: 77,
	}
	const stands = "$KV.ty_index.over.completed.1p.0.ann.s.g0.b=201.w.14.mubbs7i8.mubbthsw.25"
	if got, err := indexSubject(&written); err != nil || got != stands {
		t.Errorf("an entry stands at %q, %v; want %q", got, err, stands)
	}
	r := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		b := make([]byte, 1+r.IntN(20))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return string(b)
	}
	for range 5_000 {
		e := broker.Entry{
			ID: toolyard.BatchID(name()), Agent: toolyard.Agent(name()), Session: toolyard.Session(name()),
			Workspace: toolyard.Workspace(name()), Status: toolyard.StatusWaiting, Calls: r.IntN(20_000),
			Submitted: time.UnixMilli(r.Int64N(1 << 45)).UTC(), Changed: time.UnixMilli(-r.Int64N(1 << 45)).UTC(),
			Place: 1 + r.Uint64N(math.MaxUint64)>>r.IntN(64), Revision: r.Uint64(),
		}
		if e.Place == 0 {
			continue
		}
		subject, err := indexSubject(&e)
		must.OK(t, err)
		key := strings.TrimPrefix(subject, prefixIndex)
		if strings.ContainsAny(key, "*> \t\r\n") || strings.Count(key, ".") != indexTokens-1 {
			t.Fatalf("%+v stands at %q", e, subject)
		}
		if back, err := parseIndexSubject(subject); err != nil || back != e {
			t.Fatalf("%+v is read back from %q as %+v, %v", e, subject, back, err)
		}
	}
	for _, bad := range []broker.Entry{
		{ID: "b", Agent: "a", Session: "s", Workspace: "w", Status: toolyard.StatusRunning},
		{ID: "b", Agent: "a", Session: "s", Status: toolyard.StatusRunning, Place: 1},
		{ID: "b", Session: "s", Workspace: "w", Status: toolyard.StatusRunning, Place: 1},
		{ID: "b", Agent: "a", Session: "s", Workspace: "w", Place: 1},
	} {
		if subject, err := indexSubject(&bad); err == nil {
			t.Errorf("%+v stands at %q; want an error", bad, subject)
		}
	}
	e := broker.Entry{ID: "b", Agent: "a", Session: "s", Workspace: "w", Status: toolyard.StatusRunning, Place: 1}
	good, err := indexSubject(&e)
	must.OK(t, err)
	if back, err := parseIndexSubject(good + ".later.version"); err != nil || back.Key() != e.Key() {
		t.Errorf("a later version's entry is read as %+v, %v", back, err)
	}
	for _, bad := range []string{
		"", prefixIndex, prefixIndex + "agent.session.batch", strings.TrimPrefix(good, prefixIndex),
		strings.Replace(good, "live", "over", 1), strings.Replace(good, ".0.0.", ".0.g.", 1),
		strings.Replace(good, ".a.", ".=61.", 1),
	} {
		if e, err := parseIndexSubject(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, e)
		}
	}
}

// TestWalks goes through places at random densities: each is in one span, the spans come from the newest down, and
// there are few.
func TestWalks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2_000 {
		oldest := r.Uint64N(100_000)
		newest := oldest + r.Uint64N(1_000_000)
		entries := 0
		if r.IntN(2) == 0 {
			entries = r.IntN(1_000)
		}
		w := walk{oldest: oldest, newest: newest}
		left, spans := newest, 0
		for s, ok := w.next(); ok; s, ok = w.next() {
			if s.last != left || s.first > s.last || s.first < max(oldest, 1) {
				t.Fatalf("of %d to %d, %d to %d come behind %d", oldest, newest, s.first, s.last, left)
			}
			if n := s.last - s.first + 1; n > 1<<(lowBits+middleBits) || s.middle != "*" && n > 1<<lowBits {
				t.Fatalf("%+v has %d places", s, n)
			}
			for _, place := range []uint64{s.first, s.last} {
				if in := spanOf(place, s.middle == "*"); in.high != s.high || in.middle != s.middle {
					t.Fatalf("place %d is in %+v, not in %+v", place, in, s)
				}
			}
			left, spans = s.first-1, spans+1
			w.advance(s, entries)
		}
		if left != max(oldest, 1)-1 {
			t.Fatalf("of %d to %d, those up to %d were left out", oldest, newest, left)
		}
		if most := int((newest-oldest)>>(lowBits+middleBits)) + quietPlaces>>lowBits + 3; entries == 0 && spans > most {
			t.Fatalf("%d to %d, where nothing is, took %d spans, want %d at most", oldest, newest, spans, most)
		}
	}
	for _, w := range []walk{{}, {oldest: 0, newest: 0}, {oldest: 8, newest: 7}, {oldest: 1, newest: 0}} {
		if s, ok := w.next(); ok {
			t.Errorf("%+v has the span %+v", w, s)
		}
	}
}
