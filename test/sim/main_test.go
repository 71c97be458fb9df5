package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"hash"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestMain has garbage collected between histories only, as [membroker.Bubble] does: a history makes some 100 MB of it,
// and a collection in the middle takes longer and changes the order of goroutines.
func TestMain(m *testing.M) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(mostMemory)
	code := m.Run()
	if err := removeCopies(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// mostMemory is from where on garbage is collected in the middle of a history too: no history gets there.
const mostMemory = 1 << 30

var seed = flag.Uint64("seed", 1, "the history that TestSeed plays")

// both is for who looks for what a seed does not decide.
var both = flag.Bool("compare", false, "have TestSeed play its history twice, and show where the two part")

var attackFlag = flag.String("attack", "", "have TestSeed play the attack whose description contains this")

// attacks is the attack that the flag asks for; empty: none.
func attacks() attack {
	for _, a := range slices.Concat(slices.Collect(maps.Keys(plans)), slices.Collect(maps.Keys(directed))) {
		if *attackFlag != "" && strings.Contains(string(a), *attackFlag) {
			return a
		}
	}
	return ""
}

var calm = flag.Bool("calm", false, "play without faults")

var aboutFlag = flag.String("about", "", "have all histories be about the focus whose description contains this")

// about is the focus that the flags ask for; empty: whichever is drawn.
func about() focus {
	for _, f := range focuses {
		if *aboutFlag != "" && strings.Contains(string(f), *aboutFlag) {
			return f
		}
	}
	return ""
}

var (
	teethSeeds = flag.Uint64("teeth", 10, "how many histories TestTeeth plays for each fence beside its hint")
	onlyTooth  = flag.String("tooth", "", "the one fence that TestTeeth takes away; empty: each")
)

var written = flag.String("history", "",
	"a file that gets the ledger, the log and what agents saw of the history that TestSeed plays")

var realSeeds = flag.Int("real-seeds", 2, "how many histories are played on a real nats-server")

// summer sums up a history.
type summer struct{ h hash.Hash }

func newSummer() *summer { return &summer{sha256.New()} }

func (s *summer) add(line string) { _, _ = s.h.Write([]byte(line)) } // it never fails

func (s *summer) hex() string { return hex.EncodeToString(s.h.Sum(nil)[:8]) }
