package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/snapshot"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// seen is a store of snapshots that notes which names it finds in a workspace.
type seen struct {
	Snapshots
	names []string
}

func (s *seen) look(root *place.Root) {
	s.names = nil
	entries, err := os.ReadDir(root.Dir())
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		s.names = append(s.names, e.Name())
	}
}

func (s *seen) Take(_ context.Context, root *place.Root, _ snapshot.Key) (snapshot.Info, error) {
	s.look(root)
	return snapshot.Info{}, nil
}

func (s *seen) Overlay(_ context.Context, root *place.Root, _ snapshot.Key, _ string, _ []snapshot.Ran) (*place.Root,
	error) {
	s.look(root)
	return place.Hold(root.Dir(), nil)
}

// TestWhatAKilledWorkerLeftIsUndoneBeforeACall: no snapshot and no overlay has it, and what the call itself writes then
// is not taken for the killed command's.
func TestWhatAKilledWorkerLeftIsUndoneBeforeACall(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]broker.Delivery{
		"kept":        {Requested: events.Requested{Snapshot: true}},
		"not kept":    {},
		"an overlay":  {Requested: events.Requested{Overlay: &events.Overlay{}}},
		"named locks": {Requested: events.Requested{Locks: []tool.Lock{{Name: "file:x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// The placeholders and the record of a command in a workspace that is no repository.
			record, err := json.Marshal(map[string]any{"mode": 0o755, "absent": []string{".npmrc"},
				"made": []protect.Place{{Path: ".git", Make: protect.File, Content: protect.GitBar}}})
			must.OK(t, err)
			for file, content := range map[string]string{
				protect.MarkDir + "/run": string(record), ".git": "", "a": "b",
			} {
				at := filepath.Join(dir, file)
				must.OK(t, os.MkdirAll(filepath.Dir(at), 0o755))
				must.OK(t, os.WriteFile(at, []byte(content), 0o644))
			}
			root, err := place.Hold(dir, nil)
			must.OK(t, err)
			store := &seen{}
			w := &Worker{cfg: Config{ID: "w", Snapshots: store}, tools: &toolbox{},
				roots: map[toolyard.Workspace]*place.Root{"ws": root}}
			d.Workspace, d.Ticket = "ws", 7
			r := &running{d: &d, logs: slog.Default(),
				call: events.RequestedCall{Judgement: tool.Judgement{Class: toolyard.WriteExclusive}}}
			lift, err := w.layOver(t.Context(), r)
			must.OK(t, err)
			defer lift()
			if prepare := w.prepare(r); prepare != nil {
				if _, err := prepare(t.Context()); err != nil {
					t.Error(err)
				}
			}
			for _, name := range store.names {
				if name != "a" {
					t.Errorf("the store sees %q", store.names)
				}
			}
			if (store.names == nil) != (!d.Snapshot && d.Overlay == nil) {
				t.Errorf("the store sees %q", store.names)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("in the workspace are %v, %v", left, err)
			}
			if err := root.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
