package dispatcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/catalog"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// offer stores a toolset of tools with these names, and returns its hash.
func offer(e *bubble.Env, b *natsbroker.Broker, names ...string) string {
	e.Helper()
	var entries []registry.Entry
	for _, name := range names {
		entries = append(entries, registry.Entry{Origin: registry.Toolset, Declaration: tool.Declaration{Name: name,
			Description: "A tool of a test.", InputSchema: []byte(`{"type":"object"}`),
			Class: tool.ClassRule{Static: toolyard.ReadOnly}}})
	}
	reg, err := registry.Registry{}.Register(entries...)
	must.OK(e.T, err)
	s, err := registry.Assemble(reg, nil)
	must.OK(e.T, err)
	encoded, err := s.Encode()
	if err == nil {
		err = b.PutSurface(e.Context(), s.Hash, encoded)
	}
	must.OK(e.T, err)
	return s.Hash
}

// TestPoolsThatAreGoneAreForgotten: of pools that come and go, as those that are named after a build or a customer, the
// last tools are known for as long as the pools have work queues, and no longer: they would take room from the tools of
// pools that are there. What a pool has offered is known while its workers are started anew, and the default pool,
// whose queues stay, keeps it.
func TestPoolsThatAreGoneAreForgotten(t *testing.T) {
	const pools = 40
	settings := broker.Settings{MaxStoreBytes: 256 << 20, Lifetime: 10 * time.Minute, Slack: time.Minute}
	bubble.Run(t, settings, func(e *bubble.Env) {
		b := e.Broker("test")
		d := New(e.Broker("d"), Config{ID: "d", Log: e.Log(), Planner: planner(), StoreEvery: 20 * time.Second})
		e.Start(d)
		come := func(pool toolyard.Pool) {
			e.Helper()
			w := broker.Worker{ID: string(pool) + ".w", Pool: pool, Classes: toolyard.Classes,
				Toolset: offer(e, b, "of_"+strings.ReplaceAll(string(pool), "-", "_"))}
			must.OK(e.T, b.Beat(e.Context(), w))
			e.Eventually("the worker is seen", func() bool { return d.workers.registered(w.ID) })
			must.OK(e.T, b.Gone(e.Context(), w.ID))
			e.Eventually("the worker is gone", func() bool { return !d.workers.registered(w.ID) })
		}
		known := func() (n int) {
			reg, err := d.workers.tools(catalog.Ask{})
			must.OK(e.T, err)
			for _, name := range reg.Names() {
				if strings.HasPrefix(name, "of_") {
					n++
				}
			}
			return n
		}
		come(toolyard.DefaultPool)
		for n := range pools {
			come(toolyard.Pool(fmt.Sprintf("build-%d", n)))
		}
		if n := known(); n != pools+1 {
			t.Errorf("tools of %d pools are known whose workers have just gone, want %d", n, pools+1)
		}
		time.Sleep(b.Settings().KeptFor() / 2)
		come("build-0")
		time.Sleep(b.Settings().KeptFor()/2 + time.Minute)
		if n := known(); n != 2 {
			t.Errorf("tools of %d pools are known, want 2: that of the default pool, and of the one that was there "+
				"since", n)
		}
		time.Sleep(b.Settings().KeptFor() / 2)
		if n := known(); n != 1 {
			t.Errorf("tools of %d pools are known, want that of the default pool", n)
		}
	})
}
