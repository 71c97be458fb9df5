package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// A person's decision is on the chain of its call, where the workers of the call's pool write as well. So the process
// that decides first stores a proof where only the platform's account can write: the hash of the decision, under its
// id, its call, and the event that it follows. A decision without its proof did not come from a person, and contradicts
// the log.

// proofMark is the first token of the keys of proofs, in the bucket of sessions. No session's key has as many tokens.
const proofMark = "_"

// keyGuarded has the time from which on decisions have proofs, which is when accounts were introduced. Without this key
// there are no accounts.
const keyGuarded = proofMark + ".guarded"

func proofKey(k toolyard.BatchKey, index int, behind uint64, id string) string {
	return proofMark + "." + broker.KeyTokens(k) + "." + strconv.Itoa(index) + "." + strconv.FormatUint(behind, 10) +
		"." + broker.Escape(id)
}

// Guard records that workers and agents have had their own accounts since a time: later decisions need their proofs.
// The dispatcher whose server has the accounts calls it at its start, and again before the record expires
// ([Settings.Lifetime]).
func (b *Broker) Guard(ctx context.Context, since time.Time) error {
	_, err := retry(ctx, func(ctx context.Context) (uint64, error) {
		return b.sessions.Put(ctx, keyGuarded, []byte(since.UTC().Format(time.RFC3339Nano)))
	})
	if err != nil {
		return fmt.Errorf("say that decisions need proofs: %w", err)
	}
	return nil
}

// guardedSince is the time from which on decisions have proofs; the zero time if they need none.
func (b *Broker) guardedSince(ctx context.Context) (time.Time, error) {
	get := func(ctx context.Context) (jetstream.KeyValueEntry, error) { return b.sessions.Get(ctx, keyGuarded) }
	e, err := retry(ctx, get)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		var there bool
		if there, err = b.keyLost(ctx, bucketSession, keyGuarded); err != nil || !there {
			return time.Time{}, err
		}
		e, err = retry(ctx, get)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("look whether decisions need proofs: %w", err)
	}
	return time.Parse(time.RFC3339Nano, string(e.Value()))
}

// prove stores the proof of a decision that will follow an event.
func (b *Broker) prove(ctx context.Context, k toolyard.BatchKey, index int, behind uint64, id string,
	data []byte) error {
	_, err := retry(ctx, func(ctx context.Context) (uint64, error) {
		return b.sessions.PutString(ctx, proofKey(k, index, behind, id), sumOf(data))
	})
	if err != nil {
		return fmt.Errorf("prove a decision about call %d of %s: %w", index, k, err)
	}
	return nil
}

// checkProof returns an [*events.UnreadableError] if a stored decision has no proof.
func (b *Broker) checkProof(ctx context.Context, p *place, m raw) error {
	if b.guest != nil { // a guest reads the log, but does not act on it
		return nil
	}
	id := m.header.Get(headerID)
	behind, err := strconv.ParseUint(m.header.Get(headerExpected), 10, 64)
	if err == nil {
		var e jetstream.KeyValueEntry
		e, err = retry(ctx, func(ctx context.Context) (jetstream.KeyValueEntry, error) {
			return b.sessions.Get(ctx, proofKey(p.key, p.index, behind, id))
		})
		if err == nil && string(e.Value()) == sumOf(m.data) {
			return nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return fmt.Errorf("look for the proof of a decision: %w", err)
		}
	}
	since, err := b.guardedSince(ctx)
	if err != nil {
		return err
	}
	if since.IsZero() || m.time.Before(since) {
		return nil
	}
	return &events.UnreadableError{ID: id, Type: string(events.CallDecided),
		Problem: fmt.Sprintf("nobody who may decide has decided so about call %d of %s", p.index, p.key)}
}
