//go:build unix

package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/shard"
)

// TestProcessesOfFourShardsDie (H1): a system has four shards. A worker dies in the middle of an exclusive call's
// effect, and a dispatcher between two groups, under load. Batches and their workspaces are in different shards.
func TestProcessesOfFourShardsDie(t *testing.T) {
	const shards = 4
	cell(t, "H1", func(s *system) rules {
		s.settings.Shards = shards
		s.basic()
		worker, dispatcher := s.twoOfEach(fmt.Sprintf("%s=kill@%d", failpoint.EffectBegun, 1+s.rand.IntN(3)),
			fmt.Sprintf("%s=kill@%d", failpoint.GroupOver, 1+s.rand.IntN(3)))
		l := s.load(mix{})
		s.killedAt(worker, failpoint.EffectBegun)
		s.killedAt(dispatcher, failpoint.GroupOver)
		s.faultOver()
		s.dispatcher("successor", "")
		s.worker("successor", "")
		l.finish()
		claimIsSettled(s, l, worker)
		used := map[int]bool{}
		for _, sub := range l.submissions {
			used[s.settings.ShardOf(sub.Key())] = true
		}
		if len(used) < 2 {
			s.t.Errorf("the batches are in %d of %d shards", len(used), shards)
		}
		return rules{harmed: []*process{worker}}
	})
}

// inShard is the n-th batch of dan's that belongs to a shard of so many.
func inShard(at, shards, n int) toolyard.Batch {
	for i := 0; ; i++ {
		b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(fmt.Sprint("dan-", i)), Workspace: "dan",
			Calls: []toolyard.Call{{Tool: "write", Input: raw(map[string]int{"work_ms": 5})},
				{Tool: "look", Input: raw(map[string]int{"work_ms": 5})}}}
		if shard.OfBatch(b.Key()).Shard(shards) == at {
			if n--; n < 0 {
				return b
			}
		}
	}
}

// TestDispatchersOfSomeShardsDie (H3): of a system of two shards each dispatcher takes the batches of one. One dies
// between two groups, under load. Batches of its shard wait for another dispatcher, and those of the other shard run.
// Meanwhile a raise waits, because nobody would take the batches of the new shard, and dies.
func TestDispatchersOfSomeShardsDie(t *testing.T) {
	const shards, dead = 2, 1
	cell(t, "H3", func(s *system) rules {
		s.settings.Shards = shards
		s.basic()
		s.twoWorkers("")
		var victim *process
		s.together(func() { s.dispatcher("dispatcher-0", "", "--serve-shards", "0") }, func() {
			victim = s.dispatcher("dispatcher-1", fmt.Sprintf("%s=kill@%d", failpoint.GroupOver, 1+s.rand.IntN(3)),
				"--serve-shards", fmt.Sprint(dead))
		})
		l := s.load(mix{})
		s.killedAt(victim, failpoint.GroupOver)
		late := inShard(dead, shards, 0)
		late.Options.TimeoutMS = batchTimeout.Milliseconds() // as extra says, which hands it in again
		if _, err := s.c.Submit(s.context(), late); err != nil {
			s.t.Fatal(err)
		}
		l.extra(inShard(1-dead, shards, 0))
		raise := s.launch("raise", "", "dispatcher", "settings", "--nats", s.url, fmt.Sprint("shards=", shards+1))
		s.until(faultWait, "the raise waits for who takes the batches of the new shard", func() bool {
			return strings.Contains(raise.logged(), fmt.Sprint("no dispatcher takes batches of shard ", shards))
		})
		l.extra(inShard(1-dead, shards, 1))
		raise.kill()
		if v, err := s.c.Batch(late.Key()).View(s.context()); err != nil || len(v.Groups) > 0 {
			s.t.Errorf("a batch of the shard without a dispatcher has %d groups: %v", len(v.Groups), err)
		}
		s.faultOver()
		s.dispatcher("successor", "", "--serve-shards", fmt.Sprint(dead))
		l.extra(late)
		l.finish()
		used := map[int]bool{}
		for _, sub := range l.submissions {
			at, err := s.b.ShardOf(s.context(), sub.Key())
			if err != nil {
				s.t.Fatal(err)
			}
			used[at] = true
		}
		if len(used) != shards {
			s.t.Errorf("the batches are in %v; want both shards", used)
		}
		return rules{}
	})
}
