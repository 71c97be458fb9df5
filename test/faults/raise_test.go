//go:build unix

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// raiseWait is how long a raise takes at most: it waits for a minute at least.
const raiseWait = 5 * time.Minute

// raise runs the command that raises the number of shards, and returns it when it is over.
func (s *system) raise(shards int, failpoints string) *process {
	s.t.Helper()
	p := s.launch("raise", failpoints, "dispatcher", "settings", "--nats", s.url, fmt.Sprint("shards=", shards))
	p.planned = true
	s.until(raiseWait, "the raise is over", p.ended)
	return p
}

// moved is a batch of the n-th workspace whose queue is in another shard when there are more shards.
func moved(few, many, n int) toolyard.Batch {
	for i := 0; ; i++ {
		w := toolyard.Workspace(fmt.Sprint("moved-", i))
		if at := shard.OfWorkspace(w); at.Shard(few) != at.Shard(many) {
			if n--; n < 0 {
				b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(w), Workspace: w}
				for range 2 {
					b.Calls = append(b.Calls, toolyard.Call{Tool: "write", Input: raw(map[string]int{"work_ms": 5})},
						toolyard.Call{Tool: "look", Input: raw(map[string]int{"work_ms": 5})})
				}
				return b
			}
		}
	}
}

// fenced is a batch whose id is in another shard when there are more shards.
func fenced(few, many int) toolyard.Batch {
	for i := 0; ; i++ {
		b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(fmt.Sprint("fenced-", i)), Workspace: "dan",
			Calls: []toolyard.Call{{Tool: "write", Input: raw(map[string]int{"work_ms": 5})}}}
		if at := shard.OfBatch(b.Key()); at.Shard(few) != at.Shard(many) {
			return b
		}
	}
}

// TestARaiseDiesAtEachStep (H2): a system gets more shards under load. The command is killed behind each of its steps
// and run again. Meanwhile a client dies when it has fenced an id in its former shard, a dispatcher when it has sealed
// a former ticket queue, and a worker in the middle of an exclusive call's effect.
func TestARaiseDiesAtEachStep(t *testing.T) {
	cell(t, "H2", func(s *system) rules {
		few, many := 1, 4
		if s.seed%2 == 0 {
			few, many = 2, 3
		}
		s.settings.Shards = few
		s.basic()
		_, dispatcher := s.twoOfEach("", fmt.Sprint(failpoint.QueueSealed, "=kill"))
		l := s.load(mix{pause: time.Second})
		for _, step := range []failpoint.Name{failpoint.ShardsMade, failpoint.ShardsAnnounced} {
			s.killedAt(s.raise(many, fmt.Sprint(step, "=kill")), step)
			s.progress(5)
		}
		worker := s.worker("worker-late", fmt.Sprint(failpoint.EffectBegun, "=kill@3"))
		s.killedAt(s.raise(many, fmt.Sprint(failpoint.ShardsServed, "=kill")), failpoint.ShardsServed)
		s.progress(5)
		s.killedAt(s.raise(many, fmt.Sprint(failpoint.ShardsOpen, "=kill")), failpoint.ShardsOpen)
		b := fenced(few, many)
		file := filepath.Join(s.dir, "fenced.json")
		must.OK(s.t, os.WriteFile(file, raw(b), 0o600))
		s.killedAt(s.launch("submit", fmt.Sprint(failpoint.IDFenced, "=kill"), "dispatcher", "submit", "--nats", s.url,
			"--agent", string(b.Agent), "--id", string(b.ID), file), failpoint.IDFenced)
		l.extra(b)
		for n := 0; !dispatcher.ended(); n++ {
			l.extra(moved(few, many, n))
		}
		s.killedAt(dispatcher, failpoint.QueueSealed)
		s.killedAt(worker, failpoint.EffectBegun)
		if p := s.raise(many, ""); p.cmd.ProcessState.ExitCode() != 0 || p.said("shards") != fmt.Sprint(many) {
			s.t.Errorf("the raise, when all is done, ends with %s and says %q: %s", p.cmd.ProcessState,
				p.said("shards"), p.tail())
		}
		if p := s.raise(few, ""); p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.logged(), "only grows") {
			s.t.Errorf("fewer shards: %s: %s", p.cmd.ProcessState, p.tail())
		}
		s.progress(20)
		s.faultOver()
		s.dispatcher("successor", "", "--shards", fmt.Sprint(many))
		s.worker("successor", "")
		l.finish()
		claimIsSettled(s, l, worker)
		used := map[int]bool{}
		for _, sub := range l.submissions {
			at, err := s.b.ShardOf(s.context(), sub.Key())
			must.OK(s.t, err)
			used[at] = true
		}
		if at, err := s.b.ShardOf(s.context(), b.Key()); err != nil || at < few || len(used) < 2 {
			s.t.Errorf("batch %s is in shard %d of %d, and all are in %v: %v", b.ID, at, many, used, err)
		}
		return rules{harmed: []*process{worker}}
	})
}
