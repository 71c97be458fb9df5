package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	from  = flag.Uint64("from", 0, "the first history that TestSimulation plays")
	seeds = flag.Uint64("seeds", histories, "how many histories TestSimulation plays")
	twice = flag.Uint64("twice", playedTwice, "how many of them it plays twice")
	// A process of several plays each history whose number has this rest.
	player  = flag.Uint64("player", 0, "which of the players this process is")
	players = flag.Uint64("players", 1, "how many players there are")
	sumFile = flag.String("sums", "", "a file that gets what this process has played")
)

// compare plays one history twice and shows where the two part.
func compare(t *testing.T, seed uint64) {
	t.Helper()
	var a, b bytes.Buffer
	first := inMemory(t, seed, options{calm: *calm, about: about(), trace: &a})
	if second := inMemory(t, seed, options{calm: *calm, about: about(), trace: &b}); second.hash == first.hash {
		return
	}
	one, two := strings.SplitAfter(a.String(), "\n"), strings.SplitAfter(b.String(), "\n")
	for i := range min(len(one), len(two)) {
		if one[i] != two[i] {
			t.Fatalf("after %d lines:\n%s\nthe first time:\n%s\nthe second time:\n%s", i,
				strings.Join(one[max(0, i-15):i], ""),
				strings.Join(one[i:min(i+6, len(one))], ""), strings.Join(two[i:min(i+6, len(two))], ""))
		}
	}
}

// sums are what was played.
type sums struct {
	Histories, Lines, Steps int
	Twice, Same             int
	Plays                   played
	Hashes                  []string // of one process
}

// TestSimulation plays many histories, with as many processes as there are processors: all invariants hold in all of
// them, and each one that is played twice is the same history, line by line.
func TestSimulation(t *testing.T) {
	began, all := time.Now(), sums{Plays: played{}}
	if isSteady || isRaced {
		all.play(t)
	} else {
		all.share(t)
	}
	t.Logf("%d histories: %d lines in the ledger, %d steps, in %s; %d of %d are the same again", all.Histories,
		all.Lines, all.Steps, time.Since(began).Round(time.Millisecond), all.Same, all.Twice)
	switch {
	case *sumFile != "":
		if err := os.WriteFile(*sumFile, raw(all), 0o600); err != nil {
			t.Error(err)
		}
	case !*calm && *aboutFlag == "":
		all.Plays.check(t, uint64(all.Histories))
	}
}

// play plays the histories of one process.
func (all *sums) play(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines that are ready at one instant run in their order
	opt := options{calm: *calm, about: about()}
	for n := *player; n < *seeds; n += *players {
		r := inMemory(t, *from+n, opt)
		if len(r.problems) > 0 {
			t.Error(r)
		}
		all.Histories, all.Steps, all.Lines = all.Histories+1, all.Steps+r.steps, all.Lines+r.lines
		all.Plays.add(r)
		all.Hashes = append(all.Hashes, r.hash)
		if n >= *twice {
			continue
		}
		all.Twice++
		again := inMemory(t, *from+n, opt)
		if again.hash == r.hash {
			all.Same++
			continue
		}
		parts := fmt.Sprintf("seed %d has the hashes %s and %s, with %d and %d steps; "+
			"go test ./test/sim -run TestSeed -v -seed %d -compare shows where the two part", r.seed, r.hash, again.hash,
			r.steps, again.steps, r.seed)
		// One play in some hundreds is not steady, and nobody knows why yet: a third one must be as one of the two.
		if third := inMemory(t, *from+n, opt); third.hash == r.hash || third.hash == again.hash {
			t.Log(parts)
		} else {
			t.Error(parts)
		}
	}
}

// share has several processes play the histories, and adds up what they have played.
func (all *sums) share(t *testing.T) {
	program := built(t, "steady")
	var running sync.WaitGroup
	var mu sync.Mutex
	for n := range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			file := filepath.Join(t.TempDir(), "sums")
			err := again(t, t.Output(), program, "TestSimulation", fmt.Sprint("-from=", *from),
				fmt.Sprint("-seeds=", *seeds), fmt.Sprint("-twice=", *twice), fmt.Sprint("-player=", n),
				fmt.Sprint("-players=", runtime.GOMAXPROCS(0)), "-sums="+file)
			var part sums
			if data, readErr := os.ReadFile(file); readErr != nil {
				err = errors.Join(err, readErr)
			} else {
				err = errors.Join(err, json.Unmarshal(data, &part))
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			all.add(part)
		})
	}
	running.Wait()
	if all.Histories != int(*seeds) {
		t.Errorf("%d histories were played, and should be %d", all.Histories, *seeds)
	}
}

// add adds what one process has played.
func (all *sums) add(part sums) {
	all.Histories, all.Lines, all.Steps = all.Histories+part.Histories, all.Lines+part.Lines, all.Steps+part.Steps
	all.Twice, all.Same = all.Twice+part.Twice, all.Same+part.Same
	for what, n := range part.Plays {
		all.Plays[what] += n
	}
}
