package natsbroker

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// prefixProgress begins the subject for the progress of a batch's calls: ty.progress.<agent>.<batch>. It is core NATS:
// nothing is stored, and only current subscribers get it.
const prefixProgress = "ty.progress."

// prefixTold begins the subject of what a worker with an account of its own tells: ty.told.<agent>.<batch>. A NATS
// server does not pass what one account imports as a service on to those that import it as a stream, so agents with
// accounts of their own would not hear it.
const prefixTold = "ty.told."

// aboutBatch is the index of what is told of a batch, and of none of its calls.
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

// relayProgress passes on what workers with accounts of their own tell of batches that run here. Only one dispatcher
// does so for a batch, so that the reports of a call keep their order.
func (d *Answerer) relayProgress(m *nats.Msg) {
	key, _ := strings.CutPrefix(m.Subject, prefixTold)
	p, err := parseSubject(prefixReply + key)
	if err != nil || len(m.Data) > broker.MaxProgressBytes || !d.runs(p.key) {
		return
	}
	if err := d.b.nc.Publish(prefixProgress+key, m.Data); err != nil && d.ctx.Err() == nil {
		d.log.Debug("progress was not passed on", "batch", p.key, "error", err)
	}
}

// readProgress reads a message about progress. What cannot be read is nobody's loss: it says nothing that stays.
func readProgress(m *broker.LiveMsg) (p broker.Progress, ok bool) {
	if len(m.Data) > broker.MaxProgressBytes || json.Unmarshal(m.Data, &p) != nil {
		return broker.Progress{}, false
	}
	return p, p.Index >= 0 && p.Index < toolyard.MaxCallsPerBatch || p.Index == aboutBatch && p.Waiting != nil
}
