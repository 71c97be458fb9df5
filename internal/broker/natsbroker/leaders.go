package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/shard"
)

const (
	// leaderTimeout bounds the wait for the new leader of one stream.
	leaderTimeout = 30 * time.Second
	// leaderLook is how often it is looked at meanwhile.
	leaderLook = 50 * time.Millisecond
	// prefixStepDown is the subject of requests that a stream's leader steps down, without the stream's name, and
	// prefixConsumerStepDown that of a consumer's, without the names of stream and consumer.
	prefixStepDown         = "$JS.API.STREAM.LEADER.STEPDOWN."
	prefixConsumerStepDown = "$JS.API.CONSUMER.LEADER.STEPDOWN."
)

// Leaders reads which server leads each stream of the system, and which others may: those whose replica is up to date.
// Streams that have no leader at this time, and those of one replica, are left out.
func (b *Broker) Leaders(ctx context.Context) (out []shard.Led, err error) {
	s := b.Settings()
	streams := map[string]shard.Led{}
	for _, cfg := range definitionsIn(s, 0, nil) {
		for n := range s.ShardCount() {
			name := nameIn(n, cfg.Name)
			streams[name] = shard.Led{Stream: name, Shard: n, Kind: cfg.Name}
		}
	}
	all := b.js.ListStreams(ctx)
	for info := range all.Info() {
		led, ours := streams[info.Config.Name]
		if !ours || info.Cluster == nil || info.Cluster.Leader == "" || info.Config.Replicas < 2 {
			continue
		}
		led.Leader, led.Servers = info.Cluster.Leader, []string{info.Cluster.Leader}
		for _, r := range info.Cluster.Replicas {
			if r.Current && !r.Offline {
				led.Servers = append(led.Servers, r.Name)
			}
		}
		out = append(out, led)
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return out, nil
}

// ConsumersOf reads which server leads each consumer that these streams keep. Those that have no leader at this time,
// and those of one replica, are left out.
func (b *Broker) ConsumersOf(ctx context.Context, streams []shard.Led) (out []shard.Consumer, err error) {
	for _, l := range streams {
		s, err := b.js.Stream(ctx, l.Stream)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", l.Stream, err)
		}
		all, err := consumersOf(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, info := range all {
			if info.Cluster != nil && info.Cluster.Leader != "" && len(info.Cluster.Replicas) > 0 {
				out = append(out, shard.Consumer{Stream: l.Stream, Name: info.Name, Leader: info.Cluster.Leader})
			}
		}
	}
	return out, nil
}

// Lead has another server lead a stream or a consumer, and waits until one does. Meanwhile a stream stores nothing and
// a consumer gives nothing, for a moment, and who needs it asks again. It fails if another server leads it then than
// the one that was named.
func (b *Broker) Lead(ctx context.Context, m shard.Move) error {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	what, subject := "stream "+m.Stream, prefixStepDown+m.Stream
	if m.Consumer != "" {
		what = fmt.Sprintf("consumer %s of %s", m.Consumer, m.Stream)
		subject = prefixConsumerStepDown + m.Stream + "." + m.Consumer
	}
	request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": m.To}})
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	reply, err := b.nc.RequestWithContext(ctx, subject, request)
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err == nil {
		err = json.Unmarshal(reply.Data, &answer)
	}
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	if err != nil {
		// It may lead by now, and a consumer may have gone with its workers.
		leader, now := b.leaderOf(ctx, m)
		if leader == m.To || errors.Is(now, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return fmt.Errorf("the leader of %s steps down for %s: %w", what, m.To, err)
	}
	for leader := ""; ; {
		// While there is no leader nobody answers.
		now, err := answered(ctx, func(ctx context.Context) (string, error) { return b.leaderOf(ctx, m) })
		if err == nil {
			leader = now
		}
		switch {
		case leader == m.To:
			return nil
		case err != nil && !MayPass(err) && ctx.Err() == nil:
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-time.After(leaderLook):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is led by %q after %s, and not by %s", what, leader, leaderTimeout, m.To),
				err)
		}
	}
}

// leaderOf says which server leads what is to be moved; empty if that is not known.
func (b *Broker) leaderOf(ctx context.Context, m shard.Move) (string, error) {
	var cluster *jetstream.ClusterInfo
	if m.Consumer == "" {
		s, err := b.js.Stream(ctx, m.Stream)
		if err != nil {
			return "", err
		}
		cluster = s.CachedInfo().Cluster
	} else {
		c, err := b.js.Consumer(ctx, m.Stream, m.Consumer)
		if err != nil {
			return "", err
		}
		cluster = c.CachedInfo().Cluster
	}
	if cluster == nil {
		return "", nil
	}
	return cluster.Leader, nil
}
