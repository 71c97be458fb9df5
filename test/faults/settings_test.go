//go:build unix

package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// smallStore is the smallest store that a system may have.
const smallStore = 64 << 20

// change changes the system's settings as an operator does, and returns the process when it is over.
func (s *system) change(what ...string) *process {
	s.t.Helper()
	p := s.launch("settings", "", "dispatcher", append([]string{"settings", "--nats", s.url}, what...)...)
	p.planned = true
	s.until(startWait, "the settings command has ended", p.ended)
	return p
}

// changed does so, and has it succeed.
func (s *system) changed(what ...string) {
	s.t.Helper()
	if p := s.change(what...); p.cmd.ProcessState.ExitCode() != 0 {
		s.t.Fatalf("settings %v: %s: %s", what, p.cmd.ProcessState, p.tail())
	}
}

// wide makes calls whose results fill a store.
func wide(n int) toolyard.Batch {
	b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(fmt.Sprint("wide-", n)), Workspace: "dan"}
	for i := range 4 {
		b.Calls = append(b.Calls, toolyard.Call{Tool: "big", Input: raw(map[string]int{"bytes": 400_000 + 10*n + i})})
	}
	return b
}

// growing fills a small store under load until new batches are refused, and then makes the store larger and the
// lifetime of batches longer, several times, with batches under way.
func (s *system) growing(start func()) {
	s.t.Helper()
	s.settings.MaxStoreBytes = smallStore
	start()
	s.twoOfEach("", "")
	d := s.processes[len(s.processes)-1]
	l := s.load(mix{full: true})
	l.side = s.client()
	var wides sync.WaitGroup
	for n := range 8 { // of 1.6 MB each, and there are 8 MiB
		wides.Go(func() { l.extraMix(wide(n), mix{quiet: true, full: true}) })
	}
	s.until(faultWait, "the log says that the store is full", func() bool {
		return strings.Contains(d.logged(), "the store is nearly full")
	})
	for n := range 4 {
		s.changed(fmt.Sprint("max-store-bytes=", smallStore<<(n+1)), fmt.Sprint("batch-lifetime=", 80+n, "h"))
	}
	now := broker.Settings{MaxStoreBytes: smallStore << 4}
	s.until(faultWait, "every dispatcher knows", func() bool {
		n := 0
		for _, p := range s.processes {
			if strings.Contains(p.logged(), fmt.Sprint("max_store_bytes=", now.MaxStoreBytes)) {
				n++
			}
		}
		return n == 2
	})
	s.until(faultWait, "there is room again", func() bool {
		return strings.Contains(d.logged(), "the store has room again")
	})
	wides.Wait()
	s.progress(20)
	s.faultOver()
	l.finish()
	// the old values beside the new ones
	old := s.launch("old", "", "dispatcher", "serve", "--nats", s.url, "--listen", "127.0.0.1:0", "--max-store-bytes",
		fmt.Sprint(smallStore))
	old.planned = true
	s.until(startWait, "a dispatcher with the old values has ended", old.ended)
	if text := old.logged(); old.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(text, "dispatcher settings") {
		s.t.Errorf("a dispatcher with the old values ends with %s: %s", old.cmd.ProcessState, text)
	}
	short := s.change("batch-lifetime=1h")
	if text := short.logged(); short.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(text, "stop all of them") {
		s.t.Errorf("a shorter lifetime under load ends with %s: %s", short.cmd.ProcessState, text)
	}
}

// unstored is what a long output may end as in a full store: a worker does not wait for room without end.
var unstored = map[string][]toolyard.Code{"big": {toolyard.ResultTooLarge}}

// TestFullStoreGrows: the streams run full under load, and grow while batches are under way.
func TestFullStoreGrows(t *testing.T) {
	cell(t, "full", func(s *system) rules {
		s.growing(func() { s.basic() })
		return rules{codes: unstored}
	})
}

// TestFullStoreGrowsOnThreeServers: the same where each stream is on three servers.
func TestFullStoreGrowsOnThreeServers(t *testing.T) {
	cell(t, "fullcluster", func(s *system) rules {
		s.growing(func() { s.threeNodes() })
		return rules{settle: time.Minute, codes: unstored}
	})
}
