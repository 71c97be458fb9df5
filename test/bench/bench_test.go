package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
)

// runLine runs the command, and returns the line that it prints.
func runLine(t *testing.T, args ...string) (l line) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), args, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &l); err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	return l
}

// TestPeers: a run of 20 batches gives a line with a figure in each field. Runs check every result themselves.
func TestPeers(t *testing.T) {
	dir, err := testenv.Binaries("", "cmd/dispatcher")
	if err != nil {
		t.Fatal(err)
	}
	const batches, k = 20, 10
	for _, tt := range []struct {
		peer, mode string
		stored     float64 // messages a call at least, 0 for none
	}{
		{"inprocess", "channel", 0},
		{"wal", "fsync", 0},
		{"nats", "js", 2},
		{"nats", "js3", 3},
		{"nats", "js4", 3 + 1.0/k},
		{"nats", "js5", 2 + 2.0/k},
		{"toolyard", "free", 5.0 / k}, // a submission, a plan, an item, its results and a reply
	} {
		t.Run(tt.peer+" "+tt.mode, func(t *testing.T) {
			args := []string{tt.peer, "-mode", tt.mode, "-batch", fmt.Sprint(k), "-calls", fmt.Sprint(batches * k),
				"-dir", t.TempDir(), "-dispatcher", filepath.Join(dir, "dispatcher")}
			if tt.stored > 0 {
				args = append(args, "-server", testenv.Server(t).ClientURL())
			}
			l := runLine(t, args...)
			if l.Peer != tt.peer || l.Mode != tt.mode || l.Calls != batches*k || l.P50 < 0 || l.P99 < l.P50 ||
				l.CallsPerS <= 0 || l.Stored < tt.stored || (l.Kept > 0) != (tt.stored > 0) {
				t.Errorf("line %+v", l)
			}
		})
	}
}

// TestRate: batches begin at random times, whoever is done, and all of them are counted.
func TestRate(t *testing.T) {
	l := runLine(t, "inprocess", "-batch", "2", "-inflight", "4", "-rate", "1000", "-for", "100ms")
	if l.Rate != 1000 || l.Calls < 2 || l.Calls%2 != 0 || l.P50 <= 0 {
		t.Errorf("line %+v", l)
	}
	var out bytes.Buffer
	for _, args := range [][]string{
		{"-rate", "-1", "-for", "1s"}, {"-rate", "1"}, {"-rate", "1", "-for", "1s", "-gap", "1s"},
	} {
		if err := run(t.Context(), append([]string{"inprocess"}, args...), strings.NewReader(""), &out); err == nil {
			t.Errorf("no error for %q", args)
		}
	}
}

// liar is a peer whose results are what lie makes of the right ones.
type liar struct{ lie func([]string) []string }

func (l liar) runBatch(_ context.Context, batch string, k int) ([]string, error) {
	right := make([]string, k)
	for i := range right {
		right[i] = result(batch, i)
	}
	return l.lie(right), nil
}

func (liar) close() error { return nil }

// TestResultsAreChecked: a peer that loses, mixes up or changes a result gives no figures.
func TestResultsAreChecked(t *testing.T) {
	c := config{batch: 3, inflight: 2, calls: 30}
	for name, tt := range map[string]struct {
		lie func([]string) []string
		ok  bool
	}{
		"right":   {func(r []string) []string { return r }, true},
		"missing": {func(r []string) []string { return r[:2] }, false},
		"swapped": {func(r []string) []string { return []string{r[1], r[0], r[2]} }, false},
		"changed": {func(r []string) []string { return []string{r[0], r[1], r[2] + "x"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := measure(t.Context(), "liar", c, func(context.Context, config) (peer, error) {
				return liar{tt.lie}, nil
			})
			if (err == nil) != tt.ok {
				t.Errorf("line %+v, error %v", l, err)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	p, err := parseStat("7 (a) b (c)) S 3 7 7 0 -1 4194560 1 2 3 4 100 20 5 1 20 0 1 0 99")
	if want := (process{parent: 3, cpu: 1260 * time.Millisecond}); err != nil || p != want {
		t.Errorf("%+v, %v; want %+v", p, err, want)
	}
	if p, err := parseStat("7 (x) S 3"); err == nil {
		t.Errorf("%+v of a line that is cut", p)
	}
}
