//go:build unix

package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAClosedOutputIsNoError: a command whose output nobody reads to its end, as in "| head -1", ends without a word,
// as others do that print.
func TestAClosedOutputIsNoError(t *testing.T) {
	t.Parallel()
	d := dispatcher(t, "--with-worker", "--workspace", "default="+t.TempDir())
	const one = `{"id":"one","calls":[{"id":"1","tool":"glob","input":{"pattern":"*"}}]}`
	p := newPlace(t, map[string]string{"batch": `{"calls":[{"id":"1","tool":"glob","input":{"pattern":"*"}}]}`})
	at := []string{"--nats", d.says["nats"]}
	if _, stderr, status := p.run(strings.NewReader(one), nil, append([]string{"submit", "-"}, at...)...); status != 0 {
		t.Fatal(stderr)
	}
	log := filepath.Join(p.dir, "events")
	if _, stderr, status := p.run(nil, nil, "run", "--events", log, "batch"); status != 0 {
		t.Fatal(stderr)
	}
	of := func(args ...string) []string { return append(args, at...) }
	for _, args := range [][]string{
		{"--version"}, {"tools"}, {"tools", "--json"}, {"tools", "--lint"}, {"tools", "--format", "anthropic"},
		{"explain", "batch"}, {"explain", "--json", "batch"},
		{"run", "batch"}, {"run", "--json", "batch"}, {"run", "--format", "openai", "batch"},
		{"replay", log}, {"replay", "--json", log},
		of("submit", "batch"), of("submit", "--json", "batch"), of("watch", "one"), of("watch", "--json", "one"),
		of("watch", "--all"), of("replay", "one"),
		of("batches"), of("batches", "--json"), of("workers"), of("workers", "--json"),
		of("session", "default"), of("session", "--json", "default"),
	} {
		unreadBy(t, p, "dispatcher", args...)
	}
	unreadBy(t, p, "worker", "check")
}

// unreadBy runs a command whose output is closed.
func unreadBy(t *testing.T, p place, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	r, w, err := os.Pipe()
	must.OK(t, err)
	must.OK(t, r.Close())
	defer func() { _ = w.Close() }()
	cmd := p.command(ctx, nil, nil, args...)
	cmd.Path = filepath.Join(bin, program)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	_ = cmd.Run() // its status is looked at
	if status := cmd.ProcessState.ExitCode(); status != 141 || stderr.Len() > 0 {
		t.Errorf("%s %s: status %d, %q", program, strings.Join(args, " "), status, &stderr)
	}
}
