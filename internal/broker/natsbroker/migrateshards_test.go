package natsbroker_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
)

// layoutOne is a change to the form of a version that wrote layout 1 and had a setting that may be passed over.
func layoutOne(c *jetstream.StreamConfig) {
	c.Metadata["toolyard.layout"] = "1"
	c.Metadata["toolyard.settings"] = strings.Replace(c.Metadata["toolyard.settings"], "{", `{"cells":4,`, 1)
}

// TestMigrateKeepsTheMap: a system of an older layout was given more shards, and is migrated then. Versions that would
// not read the map of shards still do not join, and the settings still say how many shards it was made with.
func TestMigrateKeepsTheMap(t *testing.T) {
	testenv.OneShard(t)
	o := madeByOther(t, broker.Settings{}, layoutOne)
	if _, _, err := natsbroker.Raise(t.Context(), o.nc, broker.Settings{Shards: 2}, 0,
		func(natsbroker.Raising) {}); err != nil {
		t.Fatal(err)
	}
	before := o.batches().Metadata
	if got := before["toolyard.min_reader"]; got != strconv.Itoa(version.Raises) {
		t.Fatalf("after the raise, %s may join", got)
	}
	must.OK(t, natsbroker.Migrate(t.Context(), o.nc))
	after := o.batches().Metadata
	if after["toolyard.layout"] != "2" {
		t.Errorf("the layout is %s", after["toolyard.layout"])
	}
	if got := after["toolyard.min_reader"]; got != before["toolyard.min_reader"] {
		t.Errorf("version %s may join; before it was %s", got, before["toolyard.min_reader"])
	}
	var was, is map[string]any
	for text, to := range map[string]*map[string]any{before["toolyard.settings"]: &was,
		after["toolyard.settings"]: &is} {
		must.OK(t, json.Unmarshal([]byte(text), to))
	}
	for _, setting := range []string{"shards", "cells"} {
		if is[setting] != was[setting] {
			t.Errorf("the setting %s is %v, and was %v", setting, is[setting], was[setting])
		}
	}
	b, err := o.open(broker.Settings{})
	must.OK(t, err)
	if n := b.Settings().ShardCount(); n != 2 {
		t.Errorf("there are %d shards", n)
	}
}

// TestMigrateBesideADispatcherOfSomeShards: it fails also where the other dispatcher takes no batches of shard 0.
func TestMigrateBesideADispatcherOfSomeShards(t *testing.T) {
	testenv.OneShard(t)
	o := madeByOther(t, broker.Settings{Shards: 2}, layoutOne)
	b, err := o.open(broker.Settings{})
	must.OK(t, err)
	if b, err = b.Serve(shard.Set{1}); err != nil {
		t.Fatal(err)
	}
	subs, err := b.Submissions()
	must.OK(t, err)
	defer subs.Stop()
	go func() { _, _ = subs.Next(t.Context()) }() // it ends with the test
	testenv.Until(t, "the other dispatcher waits for batches", func() bool {
		c, err := o.js.Consumer(t.Context(), "TY1_BATCH", "dispatchers")
		return err == nil && c.CachedInfo().NumWaiting > 0
	})
	if err := natsbroker.Migrate(t.Context(), o.nc); err == nil ||
		!strings.Contains(err.Error(), "another dispatcher runs") {
		t.Errorf("beside it: %v", err)
	}
}
