package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A history is the same each time when the order in which goroutines run is. Three things decide that order beside the
// server in memory: what Go's runtime draws at random, the clock of the machine, and maps whose keys are pointers. So
// histories are played in a build of this package, of tag steady, in which a bubble draws from its own virtual time,
// nothing looks at the machine's clock, and those maps are gone through in the order in which they were filled.
//
// steadied are the changes. Each text stands once in its file; if it does not, Go or nats.go has a new version, and the
// change is to be made anew for it.
var steadied = []edit{
	// The cases of a select that are ready at once, timers of one instant, and the seed and the start of a walk through
	// a map. They hang on the bubble's virtual time, so a seed still decides them, and each in another way. Timers hang
	// on the order in which they were made, not on that of their draws: a select adds its timers in that of their
	// addresses. What is drawn for maps does not hang on how often: what a process does only once makes maps too.
	{goroot + "runtime/synctest.go", "	active  int // other sources of activity\n", `	active  int // other sources of activity

	timersMade, selects, draws uint64
	drawnAt                    int64
}

//go:nosplit
func (bubble *synctestBubble) mix(n uint64) uint64 {
	x := n*0x9e3779b97f4a7c15 ^ uint64(bubble.now)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

//go:nosplit
func (bubble *synctestBubble) draw() uint64 {
	if bubble.drawnAt != bubble.now {
		bubble.drawnAt, bubble.draws = bubble.now, 0
	}
	bubble.draws++
	return bubble.mix(bubble.draws)
}

func selectRandN(n uint32) uint32 {
	if bubble := getg().bubble; bubble != nil {
		bubble.selects++
		return uint32(bubble.mix(bubble.selects) >> 32 * uint64(n) >> 32)
	}
	return cheaprandn(n)
}

func (bubble *synctestBubble) number() uint64 {
	bubble.timersMade++
	return bubble.timersMade
`},
	{goroot + "runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := selectRandN(uint32(norder + 1))"},
	{goroot + "runtime/time.go", "	rand    uint32 // randomizes order of timers at same instant; only set when isFake",
		"	rand    uint32 // randomizes order of timers at same instant; only set when isFake\n	made uint64"},
	{goroot + "runtime/time.go", "		if gp.bubble != nil {\n			t.isFake = true\n",
		"		if gp.bubble != nil {\n			t.isFake = true\n			t.made = gp.bubble.number()\n"},
	{goroot + "runtime/time.go", "	if bubble := getg().bubble; bubble != nil {\n		t.isFake = true\n",
		"	if bubble := getg().bubble; bubble != nil {\n		t.isFake = true\n		t.made = bubble.number()\n"},
	{goroot + "runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(getg().bubble.mix(t.made))"},
	{goroot + "runtime/rand.go", "func rand() uint64 {\n", `func rand() uint64 {
	if bubble := getg().bubble; bubble != nil {
		return bubble.draw()
	}
`},
	{goroot + "runtime/rand.go", "func maps_rand() uint64 {\n", `func maps_rand() uint64 {
	if bubble := getg().bubble; bubble != nil {
		return bubble.mix(0)
	}
`},
	// The keys of the hashes of maps, which are those of the process.
	{goroot + "runtime/alg.go", "hashkey[i] = uintptr(bootstrapRand())",
		"hashkey[i] = uintptr(i+1)*0x9e3779b97f4a7c15 | 1"},
	{goroot + "runtime/alg.go", "key[i] = bootstrapRand()", "key[i] = uint64(i+1) * 0x9e3779b97f4a7c15"},
	// A goroutine that has run for ten milliseconds would stand back, and one that has waited a millisecond for a lock
	// would be served first: on a busy machine that may be any.
	{goroot + "runtime/proc.go", "		} else if pd.schedwhen+forcePreemptNS <= now {\n			preemptone(pp)\n",
		`		} else if pd.schedwhen+forcePreemptNS <= now {
			if mp := pp.m.ptr(); mp == nil || mp.curg == nil || mp.curg.bubble == nil {
				preemptone(pp)
			}
`},
	{goroot + "internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 60"},
	// A context ends its children in the order in which they were made.
	{goroot + "context/context.go", "children map[canceler]struct{} // set to nil by the first cancel call",
		"children map[canceler]int // set to nil by the first cancel call\n	made int"},
	{goroot + "context/context.go", "p.children = make(map[canceler]struct{})", "p.children = make(map[canceler]int)"},
	{goroot + "context/context.go", "p.children[child] = struct{}{}",
		"p.made++\n			p.children[child] = p.made"},
	{goroot + "context/context.go", "	for child := range c.children {\n",
		"	for _, child := range inOrder(c.children) {\n"},
	{goroot + "context/context.go", "// cancel closes c.done, cancels each of c's children, and, if\n",
		`func inOrder(children map[canceler]int) []canceler {
	out := make([]canceler, 0, len(children))
	for c, made := range children {
		i := len(out)
		for out = append(out, c); i > 0 && children[out[i-1]] > made; i-- {
			out[i] = out[i-1]
		}
		out[i] = c
	}
	return out
}

// cancel closes c.done, cancels each of c's children, and, if
`},
	// A connection tells those who follow its state in the order in which they began to.
	{natsGo + "nats.go", "statListeners map[Status]map[chan Status]struct{}",
		"statListeners map[Status]map[chan Status]int\n	statMade int"},
	{natsGo + "nats.go", "nc.statListeners = make(map[Status]map[chan Status]struct{})",
		"nc.statListeners = make(map[Status]map[chan Status]int)"},
	{natsGo + "nats.go", "nc.statListeners[status] = make(map[chan Status]struct{})",
		"nc.statListeners[status] = make(map[chan Status]int)"},
	{natsGo + "nats.go", "nc.statListeners[status][ch] = struct{}{}",
		"nc.statMade++\n	nc.statListeners[status][ch] = nc.statMade"},
	{natsGo + "nats.go", "	for ch := range nc.statListeners[s] {\n", `	var listeners []chan Status
	for ch, made := range nc.statListeners[s] {
		i := len(listeners)
		for listeners = append(listeners, ch); i > 0 && nc.statListeners[s][listeners[i-1]] > made; i-- {
			listeners[i] = listeners[i-1]
		}
		listeners[i] = ch
	}
	for _, ch := range listeners {
`},
}

// Where the files are that are changed, beside the repository's own.
const (
	goroot = "GOROOT/src/"
	natsGo = "github.com/nats-io/nats.go/"
)

// steady are the changes that make histories steady.
func steady() (out []change) {
	for _, e := range steadied {
		out = append(out, change{edit: e, whose: "a steady history"})
	}
	return out
}

// built builds this package for steady histories, with some more changes, and returns the path of the program.
func built(t *testing.T, tags string, more ...change) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "steady.test")
	if err := build(t.Context(), dir, program, tags, more); err != nil {
		t.Fatal(err)
	}
	return program
}

func build(ctx context.Context, dir, program, tags string, more []change) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	goDir, err := ask(ctx, "env", "GOROOT")
	if err != nil {
		return err
	}
	// -overlay takes no file of a module, so nats.go is copied as a whole
	module := strings.TrimSuffix(natsGo, "/")
	nats := filepath.Join(dir, "nats.go")
	modFile, err := replaced(ctx, root, dir, module, nats)
	if err != nil {
		return err
	}
	path, err := overlay(func(file string) string {
		if name, ok := strings.CutPrefix(file, goroot); ok {
			return filepath.Join(goDir, "src", name)
		}
		if name, ok := strings.CutPrefix(file, natsGo); ok {
			return filepath.Join(nats, name)
		}
		return filepath.Join(root, file)
	}, dir, append(steady(), more...))
	if err != nil {
		return err
	}
	// without -trimpath, what depends on nats.go would be compiled each time: its directory has another name
	_, err = ask(ctx, "test", "-c", "-trimpath", "-tags", tags, "-modfile", modFile, "-overlay", path, "-o", program,
		".")
	return err
}

// replaced copies a module to a directory, and writes a go.mod to dir that has it there.
func replaced(ctx context.Context, root, dir, module, to string) (modFile string, err error) {
	from, err := ask(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	modFile = filepath.Join(dir, "go.mod")
	mod = fmt.Appendf(mod, "\nreplace %s => %s\n", module, to)
	return modFile, errors.Join(os.WriteFile(modFile, mod, 0o600),
		os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
}

// ask runs go, outside of any workspace, and returns what it says.
func ask(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var out, wrong strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, wrong.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// again runs one test of a program that [built] has made, with the flags of this one and those in args. It writes what
// the program says to out.
func again(t *testing.T, out io.Writer, program, test string, args ...string) error {
	t.Helper()
	all := []string{"-test.run=^" + test + "$", "-test.timeout=0"}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			all = append(all, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	cmd := exec.CommandContext(t.Context(), program, append(all, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}
