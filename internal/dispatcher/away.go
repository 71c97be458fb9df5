package dispatcher

import "time"

// lookAgain is how long what did not answer is not asked again: others wait for who asks.
const lookAgain = 10 * time.Second

// awayShards are when shards did not answer.
type awayShards map[int]time.Time

func (a awayShards) has(shard int) bool { return time.Since(a[shard]) < lookAgain }

func (a awayShards) add(shard int) { a[shard] = time.Now() }
