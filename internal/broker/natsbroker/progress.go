package natsbroker

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// prefixProgress begins the subject for the progress of a batch's calls: ty.progress.<agent>.<batch>. It is core NATS:
// nothing is stored, and only current subscribers get it.
const prefixProgress = "ty.progress."

// progressBuffer is how many reports wait for a reader of progress. More are dropped.
const progressBuffer = 256

// aboutBatch is the index of a report about a batch as a whole.
const aboutBatch = -1

// TellWaiting publishes that a batch waits for its turn.
func (b *Broker) TellWaiting(k toolyard.BatchKey, w broker.Waiting) error {
	return b.Report(k, broker.Progress{Index: aboutBatch, Waiting: &w})
}

// Report publishes the progress of a call. It does not wait.
func (b *Broker) Report(k toolyard.BatchKey, p broker.Progress) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	if len(data) > broker.MaxProgressBytes {
		return fmt.Errorf("progress of call %d of %s has %d bytes; at most %d are sent", p.Index, k, len(data),
			broker.MaxProgressBytes)
	}
	if err := b.nc.Publish(prefixProgress+broker.KeyTokens(k), data); err != nil {
		return fmt.Errorf("tell progress: %w", err)
	}
	return nil
}

// progressFeed is the progress of the calls of one batch, from its creation on. Reports may be missing.
type progressFeed struct {
	c   chan *broker.LiveMsg
	sub *nats.Subscription
}

// FollowProgress starts a feed of the progress of a batch's calls.
func (b *Broker) FollowProgress(k toolyard.BatchKey) (broker.ProgressFeed, error) {
	f := &progressFeed{c: make(chan *broker.LiveMsg, progressBuffer)}
	var err error
	if f.sub, err = b.nc.ChanSubscribe(prefixProgress+broker.KeyTokens(k), f.c); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", prefixProgress+broker.KeyTokens(k), err)
	}
	return f, nil
}

func (f *progressFeed) Copies() <-chan *broker.LiveMsg { return f.c }

func (f *progressFeed) Read(m *broker.LiveMsg) (p broker.Progress, ok bool) { return readProgress(m) }

// readProgress reads a progress message. One that cannot be read is ignored, since progress is not stored.
func readProgress(m *broker.LiveMsg) (p broker.Progress, ok bool) {
	if len(m.Data) > broker.MaxProgressBytes || json.Unmarshal(m.Data, &p) != nil {
		return broker.Progress{}, false
	}
	return p, p.Index >= 0 && p.Index < toolyard.MaxCallsPerBatch || p.Index == aboutBatch && p.Waiting != nil
}

// Stop ends the feed.
func (f *progressFeed) Stop() error {
	if err := f.sub.Unsubscribe(); err != nil {
		return fmt.Errorf("unsubscribe from %s: %w", f.sub.Subject, err)
	}
	return nil
}
