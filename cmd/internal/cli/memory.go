package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/internal/heap"
)

// DefaultGCPercent is how much a long-running command's heap may grow at most between two collections, in percent of
// what is in use, if it is larger than [heap.Busy]. Go's own default is 100.
const DefaultGCPercent = 200

// containerShare is how much of a container's memory limit the Go runtime aims to stay under. The rest is for what it
// does not count: stacks of C code, mapped files, and the commands that tools run.
const containerShare = 0.9

// Memory is the settings of the garbage collector.
type Memory struct {
	gcPercent int
	limit     int64
}

// Add defines the flags.
func (m *Memory) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicResources)()
	f.IntVar(&m.gcPercent, "gc-percent", 0, fmt.Sprintf("how much the heap may grow between two garbage collections, "+
		"in percent of what is in use: more costs memory and saves processor time (default: GOGC, or what is "+
		"allocated within some seconds, up to %d MiB or %d percent)", heap.Busy>>20, DefaultGCPercent))
	BytesVar(f, &m.limit, "memory-limit", fmt.Sprintf("collect garbage more often when this process uses nearly so "+
		"many bytes, like 2GiB (default: GOMEMLIMIT, or %.0f%% of the container's memory limit, if there is one)",
		containerShare*100))
}

// Apply sets the garbage collector. A flag comes before the Go runtime's own variables GOGC and GOMEMLIMIT, and those
// before the defaults.
func (m *Memory) Apply(log *slog.Logger) error {
	if m.gcPercent < 0 {
		return Usagef("--gc-percent %d: use a positive number", m.gcPercent)
	}
	if m.limit < 0 {
		return Usagef("--memory-limit %d: use a positive number of bytes", m.limit)
	}
	if _, set := os.LookupEnv("GOGC"); m.gcPercent > 0 {
		heap.Fix(m.gcPercent)
	} else if !set {
		heap.Adapt(DefaultGCPercent)
	}
	if m.limit > 0 {
		debug.SetMemoryLimit(m.limit)
		return nil
	}
	limit, err := memlimit.Set(memlimit.WithRatio(containerShare))
	switch {
	case errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported): // no container
	case err != nil:
		log.Warn("the container's memory limit is not known; --memory-limit names one", "error", err)
	case limit < math.MaxInt64:
		log.Debug("memory limit", "bytes", limit)
	}
	return nil
}
