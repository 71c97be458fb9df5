package natsbroker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
)

// bucketUsage has what dispatchers use of quotas, for each other: keys that live for seconds. It is there when a
// dispatcher has quotas, and is not part of a backup.
const bucketUsage = "ty_usage"

// ReportUsage stores what a dispatcher uses of quotas; it expires after the worker TTL.
func (b *Broker) ReportUsage(ctx context.Context, dispatcher string, r broker.UsageReport) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode a report of quotas: %w", err)
	}
	msg := nats.NewMsg("$KV." + bucketUsage + "." + broker.Escape(dispatcher))
	msg.Data = value
	if _, err := b.js.PublishMsg(ctx, msg, jetstream.WithMsgTTL(b.Settings().WorkerTTL),
		jetstream.WithRetryAttempts(0)); err != nil {
		return fmt.Errorf("report quotas: %w", err)
	}
	return nil
}

// EndUsage removes a dispatcher's report.
func (b *Broker) EndUsage(ctx context.Context, dispatcher string) error {
	kv, err := b.js.KeyValue(ctx, bucketUsage)
	if err == nil {
		err = kv.Purge(ctx, broker.Escape(dispatcher), jetstream.PurgeTTL(b.Settings().WorkerTTL))
	}
	if err != nil {
		return fmt.Errorf("end a report of quotas: %w", err)
	}
	return nil
}

// usageBucket is the bucket of the reports, which is made when there is a quota.
func usageBucket(s broker.Settings) jetstream.StreamConfig {
	return bucket(s, bucketUsage, smallBytes(s), 0, s.WorkerTTL)
}

// WatchUsage calls see with every report and with each later change, until ctx ends. It makes the bucket if it is not
// there.
func (b *Broker) WatchUsage(ctx context.Context, see func(broker.UsageChange, error)) error {
	kv, err := b.optionalBucket(ctx, bucketUsage, usageBucket)
	if err != nil {
		return err
	}
	return b.watchKeys(ctx, kv, nil, keyWatch{
		see: func(e jetstream.KeyValueEntry) {
			id, err := broker.Unescape(e.Key())
			c := broker.UsageChange{Dispatcher: id, Revision: e.Revision()}
			if err == nil && e.Operation() == jetstream.KeyValuePut {
				c.Report = &broker.UsageReport{}
				err = json.Unmarshal(e.Value(), c.Report)
			}
			see(c, err)
		},
		vanished: func(key string) {
			id, err := broker.Unescape(key)
			see(broker.UsageChange{Dispatcher: id}, err)
		},
		state: func(s broker.WatchState) { see(broker.UsageChange{State: s}, nil) },
	})
}
