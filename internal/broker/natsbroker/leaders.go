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
	// prefixStepDown is the subject of requests that a stream's leader steps down, without the stream's name.
	prefixStepDown = "$JS.API.STREAM.LEADER.STEPDOWN."
)

// Leaders reads which server leads each stream of the system, and which others may: those whose replica is up to date.
// Streams that have no leader at this time, and those of one replica, are left out.
func (b *Broker) Leaders(ctx context.Context) (out []shard.Led, err error) {
	s := b.Settings()
	kinds := map[string]string{}
	for _, cfg := range definitionsIn(s, 0, nil) {
		for n := range s.ShardCount() {
			kinds[nameIn(n, cfg.Name)] = cfg.Name
		}
	}
	all := b.js.ListStreams(ctx)
	for info := range all.Info() {
		kind, ours := kinds[info.Config.Name]
		if !ours || info.Cluster == nil || info.Cluster.Leader == "" || info.Config.Replicas < 2 {
			continue
		}
		led := shard.Led{Stream: info.Config.Name, Kind: kind, Leader: info.Cluster.Leader,
			Servers: []string{info.Cluster.Leader}}
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

// Lead has another server lead a stream, and waits until one does. Meanwhile the stream stores nothing, for a moment,
// and who writes to it asks again. It fails if another server leads it then than the one that was named.
func (b *Broker) Lead(ctx context.Context, m shard.Move) error {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": m.To}})
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	reply, err := b.nc.RequestWithContext(ctx, prefixStepDown+m.Stream, request)
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
		return fmt.Errorf("the leader of stream %s steps down for %s: %w", m.Stream, m.To, err)
	}
	leader := ""
	for {
		// While there is no leader nobody answers.
		s, err := answered(ctx, func(ctx context.Context) (jetstream.Stream, error) {
			return b.js.Stream(ctx, m.Stream)
		})
		if err == nil && s.CachedInfo().Cluster != nil {
			leader = s.CachedInfo().Cluster.Leader
		}
		switch {
		case leader == m.To:
			return nil
		case err != nil && !MayPass(err) && ctx.Err() == nil:
			return fmt.Errorf("stream %s: %w", m.Stream, err)
		}
		select {
		case <-time.After(leaderLook):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("stream %s is led by %q after %s, and not by %s", m.Stream, leader,
				leaderTimeout, m.To), err)
		}
	}
}
