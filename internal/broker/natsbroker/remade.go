package natsbroker

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
)

// Settings are those of the system that was saved, by its batch stream's backup.
func (b *StreamBackup) Settings() (broker.Settings, error) {
	var cfg jetstream.StreamConfig
	if err := json.Unmarshal(b.Config, &cfg); err != nil {
		return broker.Settings{}, fmt.Errorf("the configuration of stream %s: %w", streamBatch, err)
	}
	o, err := readOrigin(cfg.Metadata)
	return o.settings, err
}

// Remake changes what was saved of the streams, by their names, to be restored in a system with other replicas and
// waits. What depends on neither stays as it was, also what this version does not know. Consumers come back with the
// waits that they were saved with, and get the others when somebody first uses them. now are the settings that are
// written down; the system has so many shards, more than they say if their number was raised.
func Remake(saved map[string]*StreamBackup, now broker.Settings, shards int) error {
	of := now
	of.Shards = shards
	all, err := definitions(of)
	if err != nil {
		return err
	}
	defined := map[string]jetstream.StreamConfig{}
	for _, d := range append(optional(of), all...) {
		defined[d.Name] = d
	}
	for name, b := range saved {
		d, ok := defined[name]
		if !ok {
			return fmt.Errorf("stream %s is none of Toolyard's", name)
		}
		if err := b.become(d, now); err != nil {
			return fmt.Errorf("the configuration of stream %s: %w", name, err)
		}
	}
	return nil
}

// become changes the configuration to what a definition has of replicas and waits.
func (b *StreamBackup) become(d jetstream.StreamConfig, now broker.Settings) (err error) {
	fields := map[string]json.RawMessage{}
	var have jetstream.StreamConfig
	if err := errors.Join(json.Unmarshal(b.Config, &fields), json.Unmarshal(b.Config, &have)); err != nil {
		return err
	}
	set := map[string]any{"num_replicas": d.Replicas, "allow_direct": d.AllowDirect}
	if have.SubjectDeleteMarkerTTL != 0 {
		set["subject_delete_marker_ttl"] = d.SubjectDeleteMarkerTTL
	}
	if d.Name == streamBatch {
		if have.Metadata[metadataSettings], err = rewritten(have.Metadata[metadataSettings], now); err != nil {
			return err
		}
		set["metadata"] = have.Metadata
	}
	for name, value := range set {
		if fields[name], err = json.Marshal(value); err != nil {
			return err
		}
	}
	b.Config, err = json.Marshal(fields)
	return err
}
