package natsbroker

import (
	"context"
	"fmt"
	"strconv"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// deathsKey is beside the proofs of a batch in the bucket of sessions, where only dispatchers write.
func deathsKey(k toolyard.BatchKey) string { return proofMark + "." + broker.KeyTokens(k) + ".deaths" }

// Deaths reads how many dispatchers in a row have ended soon after they took a batch up.
func (b *Broker) Deaths(ctx context.Context, k toolyard.BatchKey) (int, error) {
	n, _, _, err := load[int](ctx, b.sessions, deathsKey(k))
	if err != nil {
		return 0, fmt.Errorf("read how many dispatchers ended with batch %s: %w", k, err)
	}
	return n, nil
}

// SetDeaths stores what Deaths reads.
func (b *Broker) SetDeaths(ctx context.Context, k toolyard.BatchKey, n int) error {
	_, err := retry(ctx, func(ctx context.Context) (uint64, error) {
		return b.sessions.PutString(ctx, deathsKey(k), strconv.Itoa(n))
	})
	if err != nil {
		return fmt.Errorf("store how many dispatchers ended with batch %s: %w", k, err)
	}
	return nil
}
