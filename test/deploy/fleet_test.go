//go:build docker

package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

const (
	// pause is between two looks at something that another process changes, and between two tries of a submission.
	pause = 200 * time.Millisecond
	// further is how many batches each door must complete after a change: the last one began after the change.
	further = 3
	// ledger is the file of the workspace where each UNSAFE call leaves a line.
	ledger = "ledger"
)

// TestFleet runs the fleet of compose.yaml as an operator does, while agents hand in batches over HTTP, MCP and NATS.
// It kills one of each kind, scales, and replaces all images by those of the next version. In the end each batch has
// each result once, its log is consistent, and no command ran twice.
func TestFleet(t *testing.T) {
	f := newFleet(t)
	f.compose("up", "--detach", "--wait")
	t.Run("hardened", f.hardened)
	t.Run("sandbox", f.sandbox)
	t.Run("doors are locked", f.locked)
	t.Run("stream", f.stream)
	t.Run("another agent", f.another)

	l := f.load()
	l.progress(t, "the fleet is up")
	for _, service := range []string{"worker", "worker-unsafe", "dispatcher", "nats1"} {
		id := f.containers(service)[0]
		f.docker("kill", "--signal", "KILL", id)
		if service != "worker-unsafe" { // the others wait for the only one
			l.progress(t, "a container of "+service+" is killed")
		}
		f.compose("up", "--detach", "--wait", "--no-recreate")
		l.progress(t, "a container of "+service+" is back")
	}

	f.compose("up", "--detach", "--wait", "--no-recreate", "--scale", "worker=5")
	f.workers(t, "5 workers and one for UNSAFE", func(w []client.Worker) bool { return len(w) == 6 })
	l.progress(t, "there are five workers")
	f.compose("up", "--detach", "--wait", "--no-recreate")
	f.workers(t, "2 workers and one for UNSAFE", func(w []client.Worker) bool { return len(w) == 3 })
	l.progress(t, "there are two workers")

	before := f.workers(t, "three workers", func(w []client.Worker) bool { return len(w) == 3 })[0].WireVersion
	f.upgrade(t, l)
	f.workers(t, "the new version alone", func(w []client.Worker) bool {
		return len(w) == 3 && !slices.ContainsFunc(w, func(w client.Worker) bool { return w.WireVersion <= before })
	})
	l.progress(t, "all is of the new version")

	keys := l.stop()
	f.verify(t, keys, l.cut)

	f.compose("down", "--timeout", "60")
	f.compose("up", "--detach", "--wait")
	if _, err := f.agent(t).Batch(keys[0]).View(t.Context()); err != nil {
		t.Errorf("after down and up, the first batch: %v", err)
	}
}

// upgrade does what deploy/README.md says.
func (f *fleet) upgrade(t *testing.T, l *load) {
	f.tag = "test-next"
	f.compose("run", "--rm", "-T", "secrets")
	for _, node := range []string{"nats1", "nats2", "nats3"} {
		f.compose("up", "--detach", "--wait", "--no-deps", node)
	}
	l.progress(t, "the NATS nodes are replaced")
	f.compose("up", "--detach", "--wait", "--no-deps", "--no-recreate", "--scale", "dispatcher=4",
		"--scale", "worker=4", "--scale", "worker-unsafe=2", "dispatcher", "worker", "worker-unsafe")
	l.progress(t, "both versions run")
	f.compose("up", "--detach", "--wait")
}

// hardened: each container has what x-container says, and a bound on memory and processes.
func (f *fleet) hardened(t *testing.T) {
	for _, id := range f.containers() {
		var found []struct {
			Name   string
			Config struct{ User string }
			Mounts []struct{ Source, Destination string }

			HostConfig struct {
				ReadonlyRootfs, Privileged bool
				CapDrop, SecurityOpt       []string
				Memory, PidsLimit          int64
			}
		}
		if err := json.Unmarshal(f.docker("inspect", id), &found); err != nil || len(found) != 1 {
			t.Fatalf("docker inspect: %d containers, %v", len(found), err)
		}
		c, h := found[0], found[0].HostConfig
		locked := slices.ContainsFunc(h.SecurityOpt, func(o string) bool {
			return strings.HasPrefix(o, "no-new-privileges")
		})
		if !locked || c.Config.User != "65532:65532" || !h.ReadonlyRootfs || h.Privileged || h.Memory == 0 ||
			h.PidsLimit == 0 || !slices.Equal(h.CapDrop, []string{"ALL"}) {
			t.Errorf("%s: %+v", c.Name, c)
		}
		for _, m := range c.Mounts {
			if strings.HasPrefix(m.Destination, "/var/run") || strings.Contains(m.Source, "docker.sock") {
				t.Errorf("%s has %+v", c.Name, m)
			}
		}
	}
}

// sandbox: commands are isolated with the settings of compose.yaml, and would not be without them.
func (f *fleet) sandbox(t *testing.T) {
	const none, native = "isolation: none", "isolation: native"
	if out := f.compose("run", "--rm", "--no-deps", "-T", "worker", "check"); !strings.HasPrefix(out, native) {
		t.Errorf("with the settings of compose.yaml: %s", out)
	}
	out := string(f.docker("run", "--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges",
		"--tmpfs=/tmp:uid=65532,gid=65532,mode=700", "toolyard-worker:test", "check"))
	if !strings.HasPrefix(out, none) {
		t.Errorf("with Docker's own settings: %s", out)
	}
}

// locked: without a token, HTTP answers nothing, and without credentials NATS does not.
func (f *fleet) locked(t *testing.T) {
	c, err := client.ConnectHTTP(t.Context(), "http://"+f.address, client.HTTPOptions{Token: "nobody", MaxRetries: -1})
	if err == nil {
		_, err = c.Submit(t.Context(), batch("stranger"))
	}
	if e, ok := errors.AsType[*client.HTTPError](err); !ok || e.Status != 401 {
		t.Errorf("with a wrong token: %v", err)
	}
	out, err := f.try(nil, "run", "--rm", "-T", "--env=TOOLYARD_CREDS=", "cli", "workers")
	if err == nil || !strings.Contains(out, "credentials") {
		t.Errorf("without credentials: %v, %s", err, out)
	}
}

// another: an agent that is made later hands in batches over NATS, when the nodes have reloaded, and over HTTP.
func (f *fleet) another(t *testing.T) {
	f.compose("run", "--rm", "-T", "secrets", "--agent=reviewer")
	f.compose("kill", "--signal=HUP", "nats1", "nats2", "nats3")
	token := f.compose("run", "--rm", "-T", "secrets", "print", "agent.reviewer.token")
	document := must.JSON(t, batch("reviewed"))
	for done := false; !done; { // a node reloads some time after the signal
		out, err := f.try(document, "run", "--rm", "--no-deps", "-T",
			"--env=TOOLYARD_CREDS=/secrets/agent.reviewer.creds", "cli", "submit", "--agent=reviewer", "-")
		switch {
		case err == nil:
			done = true
		case !strings.Contains(out, "Authorization Violation") || t.Context().Err() != nil:
			t.Fatalf("over NATS: %v: %s", err, out)
		}
	}
	c, err := client.ConnectHTTP(t.Context(), "http://"+f.address, client.HTTPOptions{Token: token})
	must.OK(t, err)
	view, err := c.Batch(toolyard.BatchKey{Agent: "reviewer", ID: "reviewed"}).View(t.Context())
	if err != nil || view.Status != toolyard.StatusCompleted {
		t.Errorf("over HTTP: %s, %v", view.Status, err)
	}
	_, err = c.Batch(toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: "stream"}).View(t.Context())
	if e, ok := errors.AsType[*client.HTTPError](err); !ok || e.Status != 404 {
		t.Errorf("another's batch: %v", err)
	}
}

// fleet is what compose.yaml describes.
type fleet struct {
	t *testing.T

	top, tag, token, address string
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, top: os.Getenv("TOP"), tag: "test"}
	if f.top == "" {
		t.Fatal("TOP does not name the repository; run \"make deploy-test\"")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	f.address = free.Addr().String()
	must.OK(t, free.Close())
	f.down()
	t.Cleanup(func() {
		if t.Failed() {
			out, err := f.try(nil, "logs", "--tail", "50")
			t.Logf("%s\n%v", out, err)
		}
		f.down()
	})
	f.compose("run", "--rm", "-T", "secrets")
	f.token = f.compose("run", "--rm", "-T", "secrets", "print", "agent.token")
	return f
}

// down removes everything, also what a former run has left.
func (f *fleet) down() {
	if out, err := f.try(nil, "--profile=*", "down", "--volumes", "--remove-orphans", "--timeout=1"); err != nil {
		f.t.Errorf("docker compose down: %v\n%s", err, out)
	}
}

// try runs docker compose, and returns what it prints.
func (f *fleet) try(input []byte, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(f.top, "bin/docker-compose"), append([]string{"--project-name=toolyard-test",
		"--progress=quiet", "--file=" + filepath.Join(f.top, "deploy/compose.yaml")}, args...)...)
	cmd.Env = append(os.Environ(), "DEPLOY_TAG="+f.tag, "DEPLOY_ADDRESS="+f.address)
	cmd.Stdin = bytes.NewReader(input)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return out.String() + problem.String(), err
	}
	return out.String(), nil
}

func (f *fleet) compose(args ...string) string {
	f.t.Helper()
	begin := time.Now()
	out, err := f.try(nil, args...)
	if err != nil {
		f.t.Fatalf("docker compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	f.t.Logf("%6.1f s  docker compose %s", time.Since(begin).Seconds(), strings.Join(args, " "))
	return out
}

func (f *fleet) docker(args ...string) []byte {
	f.t.Helper()
	out, err := exec.Command("docker", args...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		f.t.Fatalf("docker %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// containers are the ids of those that run for some services, or for all.
func (f *fleet) containers(services ...string) []string {
	f.t.Helper()
	out, err := f.try(nil, append([]string{"ps", "--quiet"}, services...)...)
	ids := strings.Fields(out)
	if err != nil || len(ids) == 0 {
		f.t.Fatalf("docker compose ps %v: %v: %s", services, err, out)
	}
	return ids
}

// agent is a client of the agent default.
func (f *fleet) agent(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.ConnectHTTP(t.Context(), "http://"+f.address, client.HTTPOptions{Token: f.token})
	must.OK(t, err)
	return c
}

// workers waits until the live workers are as they should be.
func (f *fleet) workers(t *testing.T, want string, is func([]client.Worker) bool) []client.Worker {
	t.Helper()
	c := f.agent(t)
	for {
		found, err := c.Workers(t.Context())
		if err == nil && is(found) {
			return found
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("want %s, and there are %+v, %v", want, found, err)
		case <-time.After(pause):
		}
	}
}

// load is agents that hand in one batch after the other.
type load struct {
	cancel context.CancelFunc
	agents sync.WaitGroup
	doors  []string
	done   chan string // the door of each batch that is completed

	mu   sync.Mutex
	keys []toolyard.BatchKey
	cut  map[string]bool // ids of batches that were handed in again
}

func (f *fleet) load() *load {
	ctx, cancel := context.WithCancel(f.t.Context())
	l := &load{cancel: cancel, done: make(chan string, 1<<20), cut: map[string]bool{}}
	f.t.Cleanup(func() { l.stop() })
	doors := map[string]func(context.Context, string) error{"mcp": f.mcp(), "nats": f.nats}
	for i := range 3 {
		doors[fmt.Sprintf("http%d", i)] = f.http(f.agent(f.t))
	}
	for name, submit := range doors {
		l.doors = append(l.doors, name)
		l.agents.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("%s-%d", name, n)
				l.mu.Lock()
				l.keys = append(l.keys, toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: toolyard.BatchID(id)})
				l.mu.Unlock()
				l.repeat(ctx, f.t, id, submit)
				l.done <- name
			}
		})
	}
	return l
}

// repeat hands a batch in until its results are there. Once begun, that goes on when the load is to stop.
func (l *load) repeat(ctx context.Context, t *testing.T, id string, submit func(context.Context, string) error) {
	reported := false
	for t.Context().Err() == nil {
		err := submit(t.Context(), id)
		if err == nil {
			return
		}
		if !reported {
			t.Logf("%s is handed in again: %.300s", id, err)
			reported = true
			l.mu.Lock()
			l.cut[id] = true
			l.mu.Unlock()
		}
		select {
		case <-t.Context().Done():
		case <-time.After(pause):
		}
	}
}

// progress waits until each door has completed further batches.
func (l *load) progress(t *testing.T, after string) {
	t.Helper()
	for range len(l.done) {
		<-l.done
	}
	begin, count := time.Now(), map[string]int{}
	for slices.ContainsFunc(l.doors, func(door string) bool { return count[door] < further }) {
		select {
		case door := <-l.done:
			count[door]++
		case <-t.Context().Done():
			t.Fatalf("%s, and these batches were completed: %v", after, count)
		}
	}
	t.Logf("%6.1f s  %s: %v", time.Since(begin).Seconds(), after, count)
}

// stop ends the load when all batches are completed, and returns them.
func (l *load) stop() []toolyard.BatchKey {
	l.cancel()
	l.agents.Wait()
	return l.keys
}
