package dispatchercmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/audit"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/version"
)

// TestAForgedDecisionIsNobodys: a decision that a worker writes on its pool's own chain is put down as nobody's. The
// submission before it is put down as its agent's, which the account has proved.
func TestAForgedDecisionIsNobodys(t *testing.T) {
	s := testenv.Guarded(t)
	creds, _ := s.Creds()
	path := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(path, testenv.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	n, err := startNode(t.Context(), testenv.Log(t), nodeConfig{url: s.ClientURL(), reach: &cli.Reach{Creds: creds},
		audit: log, observed: cli.NewObserved()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	c, err := client.Connect(t.Context(), testenv.ConnAs(t, s, access.Principal{Role: access.Agent, Name: "ann"}),
		client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), toolyard.Batch{Agent: "ann", ID: "b", Open: true,
		Calls: []toolyard.Call{}}); err != nil {
		t.Fatal(err)
	}
	has := func(what ...string) string {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				all := true
				for _, w := range what {
					all = all && strings.Contains(line, w)
				}
				if all {
					return line
				}
			}
			if time.Now().After(end) {
				t.Fatalf("no line has %q:\n%s", what, data)
			}
		}
	}
	has(`"action":"batch.submitted"`, `"by":"ann"`, `"proof":"nats"`, `"batch":"b"`)
	m := nats.NewMsg("ty.event.ann.b.default.0")
	for k, v := range map[string]string{
		"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/client/ann",
		"ce-type": string(events.CallDecided), "ce-datacontenttype": "application/json",
		"ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-tyversion": fmt.Sprint(version.Wire),
	} {
		m.Header.Set(k, v)
	}
	m.Data = []byte(`{"decision":"allow","by":"petra"}`)
	worker := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "default"})
	if r, err := worker.RequestMsg(m, 10*time.Second); err != nil || strings.Contains(string(r.Data), `"error"`) {
		t.Fatalf("the pool's chain takes what its workers write: %v, %v", r, err)
	}
	line := has(`"action":"gap"`, "nobody who may decide has decided so about call 0 of ann/b", `"proof":"nothing"`)
	if strings.Contains(line, "petra") {
		t.Errorf("the forged name is put down: %s", line)
	}
}

// TestDeedsWhileADispatcherStops: a dispatcher is told to stop, and a part of it goes on for a while, as a worker does
// with its calls. What agents do until the end is put down too.
func TestDeedsWhileADispatcherStops(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	path := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(path, testenv.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	n, err := startNode(t.Context(), testenv.Log(t), nodeConfig{url: s.ClientURL(), reach: &cli.Reach{},
		audit: log, observed: cli.NewObserved()})
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	n.run(t.Context(), "a call", func(context.Context) error { <-running; return nil })
	c, err := client.Connect(t.Context(), testenv.Conn(t, s), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.Open(t.Context(), toolyard.Batch{ID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		n.close()
		close(closed)
	}()
	const deeds = 20
	for range deeds {
		if err := st.Append(t.Context(), toolyard.Call{Tool: "read"}); err != nil {
			t.Fatal(err)
		}
	}
	close(running)
	<-closed
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(data), `"action":"calls.appended"`); got != deeds {
		t.Errorf("%d deeds of %d are put down:\n%s", got, deeds, data)
	}
	if strings.Contains(string(data), `"action":"gap"`) {
		t.Errorf("deeds may be missing:\n%s", data)
	}
}
