package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqPeer runs calls as tasks of asynq, on Redis. Asynq has no way to wait for a result. In mode push the handler
// appends its result to a list of Redis, from which the submitter takes it. In mode native the results are asynq's own,
// and the submitter asks for the state of each task.
type asynqPeer struct {
	c         config
	client    *asynq.Client
	server    *asynq.Server
	inspector *asynq.Inspector
	redis     *redis.Client
}

const (
	asynqQueue = "bench"
	// asynqEnqueues is how many tasks are handed in at a time: asynq takes one for each round trip.
	asynqEnqueues = 16
	asynqPoll     = 2 * time.Millisecond
	asynqWait     = 30 * time.Second
	asynqRetries  = 3
)

// asynqLog drops what asynq logs. Errors of tasks come out as results that are missing.
type asynqLog struct{}

func (asynqLog) Debug(...any) {}
func (asynqLog) Info(...any)  {}
func (asynqLog) Warn(...any)  {}
func (asynqLog) Error(...any) {}
func (asynqLog) Fatal(...any) {}

func newAsynq(ctx context.Context, c config) (peer, error) {
	opt := asynq.RedisClientOpt{Addr: c.server}
	cfg := asynq.Config{Concurrency: c.workers, Queues: map[string]int{asynqQueue: 1}, Logger: asynqLog{},
		ShutdownTimeout: time.Second}
	if !c.defaults {
		cfg.TaskCheckInterval = time.Millisecond // the least that it takes
	}
	p := &asynqPeer{
		c: c, client: asynq.NewClient(opt), server: asynq.NewServer(opt, cfg), inspector: asynq.NewInspector(opt),
		redis: redis.NewClient(&redis.Options{Addr: c.server, PoolSize: c.workers + c.inflight + 4}),
	}
	err := p.redis.Ping(ctx).Err()
	if err == nil {
		err = p.server.Start(asynq.HandlerFunc(p.handle))
	}
	if err != nil {
		return nil, errors.Join(err, p.closeClients())
	}
	return p, nil
}

func asynqList(batch string) string { return "bench:results:" + batch }

func (p *asynqPeer) handle(ctx context.Context, t *asynq.Task) error {
	var a call
	if err := json.Unmarshal(t.Payload(), &a); err != nil {
		return fmt.Errorf("%w: %w", asynq.SkipRetry, err)
	}
	if p.c.mode == "native" {
		_, err := t.ResultWriter().Write([]byte(noop(a)))
		return err
	}
	return p.redis.RPush(ctx, asynqList(a.Batch), fmt.Sprintf("%d %s", a.Index, noop(a))).Err()
}

func (p *asynqPeer) runBatch(ctx context.Context, batch string, k int) ([]string, error) {
	opts := []asynq.Option{asynq.Queue(asynqQueue), asynq.MaxRetry(asynqRetries)}
	if p.c.mode == "native" {
		opts = append(opts, asynq.Retention(time.Minute))
	}
	ids := make([]string, k)
	err := each(k, asynqEnqueues, func(i int) error {
		input, err := json.Marshal(p.c.call(batch, i))
		if err != nil {
			return err
		}
		info, err := p.client.EnqueueContext(ctx, asynq.NewTask("noop", input), opts...)
		if err != nil {
			return err
		}
		ids[i] = info.ID
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p.c.mode == "native" {
		return p.poll(ctx, ids)
	}
	return p.pop(ctx, batch, k)
}

func (p *asynqPeer) pop(ctx context.Context, batch string, k int) ([]string, error) {
	got := make([]string, k)
	for left := k; left > 0; {
		v, err := p.redis.BLPop(ctx, asynqWait, asynqList(batch)).Result()
		if err != nil {
			return nil, err
		}
		n, r, _ := strings.Cut(v[1], " ")
		i, err := strconv.Atoi(n)
		if err != nil || i < 0 || i >= k {
			return nil, fmt.Errorf("a result of no call: %q", v[1])
		}
		if got[i] == "" {
			got[i] = r
			left--
		}
	}
	return got, nil
}

func (p *asynqPeer) poll(ctx context.Context, ids []string) ([]string, error) {
	got := make([]string, len(ids))
	for i, id := range ids {
		for {
			info, err := p.inspector.GetTaskInfo(asynqQueue, id)
			if err != nil {
				return nil, err
			}
			if info.State == asynq.TaskStateCompleted {
				got[i] = string(info.Result)
				break
			}
			select {
			case <-time.After(asynqPoll):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	return got, nil
}

func (p *asynqPeer) close() error {
	p.server.Shutdown()
	return p.closeClients()
}

func (p *asynqPeer) closeClients() error {
	return errors.Join(p.client.Close(), p.inspector.Close(), p.redis.Close())
}
