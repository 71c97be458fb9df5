package pool

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestUnsafeToolsGoWhereTheyAreIsolated has two pools offer the same tools, the first of which isolates nothing.
func TestUnsafeToolsGoWhereTheyAreIsolated(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	where := func(pool string) []tool.Tool {
		return []tool.Tool{
			boxed(t, "risky", toolyard.Unsafe, pool),
			make1(t, reader("read"), says(pool)),
		}
	}
	startWorker(t, s, worker.Config{Pool: "a", Tools: where("a")})
	startWorker(t, s, worker.Config{Pool: "b", Tools: where("b"), Isolation: "native"})
	c := startClient(t, s)
	got := results(t, c, toolyard.Batch{Calls: calls("risky", "read")})
	if got[0].Output != "b" || got[1].Output != "a" {
		t.Errorf("the UNSAFE call ran in %q (%s), the read in %q; want b, which isolates, and a, the first",
			got[0].Output, got[0].Error, got[1].Output)
	}
}

// boxed is a tool that runs commands in a sandbox, UNSAFE or not, and says where it ran.
func boxed(t *testing.T, name string, class toolyard.Class, where string) tool.Tool {
	t.Helper()
	d := writer(name)
	d.Class, d.Execution, d.ReadOnly = tool.ClassRule{Static: class}, tool.InSandbox, class == toolyard.ReadOnly
	return make1(t, d, func(context.Context, tool.Env) (string, error) { return where, nil })
}

// TestAPoolThatCannotIsolate: calls that must be isolated never reach its workers.
func TestAPoolThatCannotIsolate(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	inWorker := writer("deploy")
	inWorker.Class = tool.ClassRule{Static: toolyard.Unsafe}
	service := inWorker
	service.Name, service.Execution = "ticket", tool.InService
	startWorker(t, s, worker.Config{NoIsolation: "no isolation: native: raise sysctl user.max_user_namespaces",
		Tools: []tool.Tool{
			boxed(t, "run", toolyard.Unsafe, "x"), boxed(t, "look", toolyard.ReadOnly, "x"),
			make1(t, inWorker, says("x")), make1(t, service, says("served")), make1(t, reader("read"), says("read")),
		}})
	got := results(t, startClient(t, s), toolyard.Batch{Calls: calls("run", "look", "deploy", "ticket", "read")})
	if codes(got) != "setup_required setup_required setup_required ok ok" || got[3].Output != "served" {
		t.Fatalf("got %s: %+v", codes(got), got)
	}
	for i, fix := range []string{"max_user_namespaces", "max_user_namespaces", "declaration"} {
		r := got[i]
		if r.Worker != "" || r.Attempts != 0 || !strings.Contains(r.Error, "cannot isolate") ||
			!strings.Contains(r.Detail, fix) || strings.Contains(r.Detail+r.Error, "\n") {
			t.Errorf("%s, by worker %q after %d attempts: %q (%q)", r.Tool, r.Worker, r.Attempts, r.Error, r.Detail)
		}
	}
}

// TestAPoolOfWhichOneIsolates: a worker that cannot isolate leaves to the other what must be, and takes the rest.
func TestAPoolOfWhichOneIsolates(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	where := func(name string) []tool.Tool {
		return []tool.Tool{boxed(t, "run", toolyard.Unsafe, name), boxed(t, "look", toolyard.ReadOnly, name),
			make1(t, reader("read"), says(name))}
	}
	startWorker(t, s, worker.Config{ID: "bare", Tools: where("bare"), NoIsolation: "it is a test"})
	startWorker(t, s, worker.Config{ID: "able", Tools: where("able"), Isolation: "native",
		Classes: []toolyard.Class{toolyard.ReadOnly, toolyard.Unsafe}})
	c := startClient(t, s)
	if !slices.Equal(classesOf(t, c, "bare"), []toolyard.Class{toolyard.ReadOnly, toolyard.WriteExclusive}) {
		t.Errorf("the worker that cannot isolate takes %v", classesOf(t, c, "bare"))
	}
	if why := workerOf(t, c, "bare").NoIsolation; why != "it is a test" {
		t.Errorf("the worker that cannot isolate says why: %q", why)
	}
	ran := map[string]int{}
	const least, most = 6, 60 // rounds
	for n := 0; n < least || n < most && ran["read in bare"] == 0; n++ {
		order := []string{"run", "look", "look", "look", "read", "read", "read"}
		if n%2 > 0 { // the server may hand the first item to the same worker each time
			slices.Reverse(order)
		}
		for _, r := range results(t, c, toolyard.Batch{Calls: calls(order...)}) {
			if r.IsError || r.Tool != "read" && r.Output != "able" {
				t.Errorf("%s ran in %q: %q %s", r.Tool, r.Output, r.Code, r.Error)
			}
			ran[r.Tool+" in "+r.Output]++
		}
	}
	if ran["read in bare"] == 0 {
		t.Errorf("the other worker ran nothing at all, so it could take nothing: %v", ran)
	}
}

func classesOf(t *testing.T, c *client.Client, id string) []toolyard.Class {
	t.Helper()
	return workerOf(t, c, id).Classes
}

func workerOf(t *testing.T, c *client.Client, id string) client.Worker {
	t.Helper()
	live, err := c.Workers(t.Context())
	must.OK(t, err)
	for _, w := range live {
		if w.ID == id {
			return w
		}
	}
	t.Fatalf("there is no worker %q", id)
	return client.Worker{}
}

// TestUnsandboxedWorkersAreAble: an operator who takes the sandbox away has said so, and no result claims one.
func TestUnsandboxedWorkersAreAble(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	inWorker := writer("deploy")
	inWorker.Class = tool.ClassRule{Static: toolyard.Unsafe}
	startWorker(t, s, worker.Config{Unsandboxed: true, Tools: []tool.Tool{boxed(t, "run", toolyard.Unsafe, "x"),
		make1(t, inWorker, says("y"))}})
	got := results(t, startClient(t, s), toolyard.Batch{Calls: calls("run", "deploy")})
	if codes(got) != "ok ok" || got[0].Isolation != "none" || got[1].Isolation != "none" {
		t.Errorf("got %+v", got)
	}
}

// TestTheLastWorkerThatIsolates leaves while calls wait for it: they end, and nobody else takes them.
func TestTheLastWorkerThatIsolates(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{WorkerWait: time.Second})
	gate, began := make(chan struct{}), make(chan struct{})
	tools := func(where string) []tool.Tool {
		return []tool.Tool{boxed(t, "run", toolyard.Unsafe, where),
			make1(t, writer("first"), func(context.Context, tool.Env) (string, error) {
				close(began)
				<-gate
				return where, nil
			})}
	}
	startWorker(t, s, worker.Config{ID: "bare", Tools: tools("bare")})
	able := startWorker(t, s, worker.Config{ID: "able", Tools: tools("able"), Isolation: "native",
		Classes: []toolyard.Class{toolyard.Unsafe}})
	b, err := startClient(t, s).Submit(t.Context(), toolyard.Batch{Calls: calls("first", "run")})
	must.OK(t, err)
	testenv.Within(t, "the first call runs", began)
	able.end(t)
	close(gate)
	got := collect(t, t.Context(), b)
	if got[0].Output != "bare" || !got[1].IsError || got[1].Worker == "bare" ||
		got[1].Code != toolyard.DependencyUnavailable {
		t.Errorf("got %+v", got)
	}
}

// TestANameThatAProviderChanged has a model call a tool by the name that its provider allows.
func TestANameThatAProviderChanged(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("files.read"), says("all"))}})
	var surface registry.Surface
	surface.Tools = append(surface.Tools, registry.Entry{Declaration: reader("files.read")})
	rule, err := provider.ToolNames(provider.OpenAI)
	must.OK(t, err)
	changed := surface.Names(rule).Sent("files.read")
	if changed == "files.read" {
		t.Fatal("the provider takes the name as it is: nothing is tested")
	}
	if got := results(t, startClient(t, s), toolyard.Batch{Calls: calls(changed)}); got[0].Output != "all" ||
		got[0].Tool != "files.read" {
		t.Errorf("got %+v", got[0])
	}
}
