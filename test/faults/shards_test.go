//go:build unix

package faults

import (
	"fmt"
	"testing"

	"github.com/toolyard/toolyard/internal/failpoint"
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
