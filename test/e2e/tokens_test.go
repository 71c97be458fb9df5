//go:build unix

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/tokens"
)

// TestAResultIsLimitedInTokens: toolyard and worker count tokens, the dispatcher says that it does not.
func TestAResultIsLimitedInTokens(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"big.txt": strings.Repeat("漢字\n", 900),
		"in.json": `{"calls":[{"tool":"grep","input":{"pattern":".","path":"big.txt"}}]}`})
	args := []string{"run", "--json", "--workspace", p.dir, "--max-result-tokens", "400",
		filepath.Join(p.dir, "in.json")}
	stdout, stderr, status := run(t, nil, "toolyard", args...)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	r := viewOf(t, stdout).Results[0]
	if n := tokens.New()(r.Output); !r.Truncated || n > 400 ||
		!strings.Contains(fact(r, toolyard.PhasePersistResult).Detail,
			"tokens of o200k_base go to the model, of at most 400") {
		t.Errorf("%d tokens: %+v", n, r)
	}
	stdout, stderr, status = run(t, nil, "dispatcher", args...)
	refused(t, stdout, stderr, status, "--max-result-tokens", "counts no tokens")
	args[slices.Index(args, "400")] = "199"
	_, stderr, status = run(t, nil, "toolyard", args...)
	if status != 2 || !strings.Contains(stderr, "use 200 or more") {
		t.Errorf("a limit that leaves no room: exit status %d, %s", status, stderr)
	}
}
