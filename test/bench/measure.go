package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// line is the output of one run.
type line struct {
	Peer      string  `json:"peer"`
	Mode      string  `json:"mode"`
	Level     string  `json:"level,omitempty"`
	Batch     int     `json:"batch"`
	Inflight  int     `json:"inflight"`
	Workers   int     `json:"workers"`
	Payload   int     `json:"payload_bytes"`
	GapMS     float64 `json:"gap_ms"`
	Defaults  bool    `json:"defaults"`
	Rate      float64 `json:"rate,omitempty"`
	Calls     int     `json:"calls"`
	CallsPerS float64 `json:"calls_per_s"`
	P50       float64 `json:"batch_ms_p50"`
	P99       float64 `json:"batch_ms_p99"`
	Max       float64 `json:"batch_ms_max"`
	// ClientCPU is of this process and those that it started: Toolyard's dispatcher, BullMQ's two Node processes.
	ClientCPU float64 `json:"client_cpu_us_per_call"`
	BrokerCPU float64 `json:"broker_cpu_us_per_call"`
	// Stored and Kept are of JetStream only: messages that it stored, and bytes that it still has when all is done.
	Stored float64 `json:"stored_msgs_per_call,omitempty"`
	Kept   float64 `json:"kept_bytes_per_call,omitempty"`
	// Disk is by how much one server's blocks of messages grew on disk: less than Kept if they are compressed. The
	// block that each stream writes to never is.
	Disk float64 `json:"disk_bytes_per_call,omitempty"`
	// Resident is the memory of the server, and of the dispatcher, in MiB: before the open batches, before the others,
	// and when all is done.
	Resident resident3 `json:"server_resident_mib"`
	Ours     resident3 `json:"dispatcher_resident_mib"`
	Idle     int       `json:"idle_batches,omitempty"`
	Load1    float64   `json:"load1"`
}

// resident3 is the memory of a process at three moments.
type resident3 [3]float64

// keeper is a peer that has open batches, and a process beside this one.
type keeper interface {
	open(ctx context.Context, n int) error
	process() int
}

// storer is a peer that says what its server has stored so far.
type storer interface {
	stored(context.Context) (storedSum, error)
}

// measure starts a peer, runs batches, and returns what it took.
func measure(ctx context.Context, name string, c config, start func(context.Context, config) (peer, error)) (
	l line, err error,
) {
	p, err := start(ctx, c)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	tag := fmt.Sprintf("%x", time.Now().UnixNano())
	for i := range c.warmup {
		if err := once(ctx, p, fmt.Sprintf("%sw%d", tag, i), c.batch); err != nil {
			return l, fmt.Errorf("warm-up: %w", err)
		}
	}
	var residents, ours resident3
	look := func(at int) (err error) {
		if residents[at], err = resident(c.brokers...); err != nil {
			return err
		}
		if k, ok := p.(keeper); ok {
			ours[at], err = resident(k.process())
		}
		residents[at], ours[at] = round(residents[at]), round(ours[at])
		return err
	}
	if err := look(0); err != nil {
		return l, err
	}
	if c.idle > 0 {
		if err := p.(keeper).open(ctx, c.idle); err != nil {
			return l, err
		}
	}
	if err := look(1); err != nil {
		return l, err
	}
	before, err := take(ctx, p, c)
	if err != nil {
		return l, err
	}
	took, wall, err := runBatches(ctx, p, c, tag)
	if err != nil {
		return l, err
	}
	after, err := take(ctx, p, c)
	if err != nil {
		return l, err
	}
	if err := look(2); err != nil {
		return l, err
	}
	n := len(took) * c.batch
	each := func(total float64) float64 { return round(total / float64(n)) }
	slices.Sort(took)
	l = line{
		Peer: name, Mode: c.mode, Level: c.level, Batch: c.batch, Inflight: c.inflight, Workers: c.workers,
		Payload: c.payload, GapMS: ms(c.gap), Defaults: c.defaults, Rate: c.rate, Calls: n,
		CallsPerS: round(float64(n) / wall.Seconds()),
		P50:       round(ms(quantile(took, 0.50))), P99: round(ms(quantile(took, 0.99))),
		Max:       round(ms(took[len(took)-1])),
		ClientCPU: each(float64((after.client - before.client).Microseconds())),
		BrokerCPU: each(float64((after.broker - before.broker).Microseconds())),
		Stored:    each(float64(after.stored.messages) - float64(before.stored.messages)),
		Kept:      each(float64(after.stored.bytes) - float64(before.stored.bytes)),
		Disk:      each(float64(after.disk-before.disk) / float64(c.replicas)),
		Resident:  residents, Ours: ours, Idle: c.idle,
	}
	l.Load1, err = load1()
	return l, err
}

// usage is what has been used and stored up to a moment.
type usage struct {
	client, broker time.Duration
	stored         storedSum
	disk           int64
}

func take(ctx context.Context, p peer, c config) (u usage, err error) {
	if u.client, err = cpu(os.Getpid()); err != nil {
		return u, err
	}
	if u.broker, err = cpu(c.brokers...); err != nil {
		return u, err
	}
	if s, ok := p.(storer); ok {
		if u.stored, err = s.stored(ctx); err == nil {
			u.disk, err = blocksIn(c.dir)
		}
	}
	return u, err
}

// runBatches returns how long each batch took, and all of them.
func runBatches(ctx context.Context, p peer, c config, tag string) ([]time.Duration, time.Duration, error) {
	batches := int64((c.calls + c.batch - 1) / c.batch)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		mu   sync.Mutex
		took []time.Duration
	)
	start := time.Now()
	due := make(chan time.Time, c.inflight) // when batches begin, if there is a rate
	if c.rate > 0 {
		wg.Go(func() {
			defer close(due)
			arrive(ctx, c, start, due)
		})
	} else {
		close(due)
	}
	for range c.inflight {
		wg.Go(func() {
			for began := range due {
				if err := once(ctx, p, fmt.Sprintf("%sb%d", tag, next.Add(1)), c.batch); err != nil {
					cancel(err)
					return
				}
				d := time.Since(began)
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
			for c.rate == 0 && ctx.Err() == nil {
				if c.gap > 0 {
					time.Sleep(rand.N(2 * c.gap))
				}
				i := next.Add(1)
				// The first batch runs in any case, so that there is something to tell.
				if i > 1 && (c.span == 0 && i > batches || c.span > 0 && time.Since(start) >= c.span) {
					return
				}
				began := time.Now()
				if err := once(ctx, p, fmt.Sprintf("%sb%d", tag, i), c.batch); err != nil {
					cancel(err)
					return
				}
				d := time.Since(began)
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return took, time.Since(start), context.Cause(ctx)
}

// arrive sends when batches are due: at random times, so many a second in the mean, for as long as batches are started.
// A batch that finds nobody free waits, and that counts.
func arrive(ctx context.Context, c config, at time.Time, due chan<- time.Time) {
	end := at.Add(c.span)
	for n := 0; ; n++ {
		at = at.Add(time.Duration(rand.ExpFloat64() / c.rate * float64(time.Second)))
		if n > 0 && at.After(end) { // the first batch runs in any case
			return
		}
		time.Sleep(time.Until(at))
		select {
		case due <- at:
		case <-ctx.Done():
			return
		}
	}
}

// once runs a batch and checks that every result is there, and in its place.
func once(ctx context.Context, p peer, batch string, k int) error {
	got, err := p.runBatch(ctx, batch, k)
	if err != nil {
		return fmt.Errorf("batch %s: %w", batch, err)
	}
	if len(got) != k {
		return fmt.Errorf("batch %s: %d results of %d", batch, len(got), k)
	}
	for i, g := range got {
		if want := result(batch, i); g != want {
			return fmt.Errorf("batch %s: result %d is %q, not %q", batch, i, g, want)
		}
	}
	return nil
}

// quantile is the least value that is no less than the part q of all.
func quantile[T any](sorted []T, q float64) T {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(0, min(i, len(sorted)-1))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func round(f float64) float64 { return math.Round(f*100) / 100 }
