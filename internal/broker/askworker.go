package broker

import (
	"github.com/toolyard/toolyard"
)

// WorkerID makes a new id for a worker of a pool.
func WorkerID(pool toolyard.Pool) string {
	if pool == "" {
		pool = toolyard.DefaultPool
	}
	return string(pool) + ".worker-" + NewID()
}
