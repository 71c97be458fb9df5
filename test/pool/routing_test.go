package pool

import (
	"context"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestUnsafeToolsGoWhereTheyAreIsolated has two pools offer the same tools, the first of which isolates nothing.
func TestUnsafeToolsGoWhereTheyAreIsolated(t *testing.T) {
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	where := func(pool string) []tool.Tool {
		d := writer("risky")
		d.Class = tool.ClassRule{Static: toolyard.Unsafe}
		return []tool.Tool{
			make1(t, d, func(context.Context, tool.Env) (string, error) { return pool, nil }),
			make1(t, reader("read"), says(pool)),
		}
	}
	startWorker(t, s, worker.Config{Pool: "a", Tools: where("a")})
	startWorker(t, s, worker.Config{Pool: "b", Tools: where("b"), Isolation: "native"})
	c := startClient(t, s)
	got := results(t, c, toolyard.Batch{Calls: calls("risky", "read")})
	if got[0].Output != "b" || got[1].Output != "a" {
		t.Errorf("the UNSAFE call ran in %q (%s), the read in %q; want b, which isolates, and a, the first", got[0].Output, got[0].Error, got[1].Output)
	}
}

// TestANameThatAProviderChanged has a model call a tool by the name that its provider allows.
func TestANameThatAProviderChanged(t *testing.T) {
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("files.read"), says("all"))}})
	var surface registry.Surface
	surface.Tools = append(surface.Tools, registry.Entry{Declaration: reader("files.read")})
	rule, err := provider.ToolNames(provider.OpenAI)
	if err != nil {
		t.Fatal(err)
	}
	changed := surface.Names(rule).Sent("files.read")
	if changed == "files.read" {
		t.Fatal("the provider takes the name as it is: nothing is tested")
	}
	if got := results(t, startClient(t, s), toolyard.Batch{Calls: calls(changed)}); got[0].Output != "all" || got[0].Tool != "files.read" {
		t.Errorf("got %+v", got[0])
	}
}
