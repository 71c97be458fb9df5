package pool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// TestAWriteThatNoAttemptHasStarted: the dependency of a write is down, so that none of its three attempts starts its
// tool. Its result says so, it has used nothing of a budget, and its group has not changed the workspace.
func TestAWriteThatNoAttemptHasStarted(t *testing.T) {
	bubble.Run(t, broker.Settings{MaxStoreBytes: 256 << 20}, func(e *bubble.Env) {
		release, probing := make(chan struct{}), make(chan struct{})
		wrote, none := 0, false
		fails, probe, write := reader("fails"), reader("probe"), writer("write")
		for _, d := range []*tool.Declaration{&fails, &probe} {
			d.Dependency, d.UsesWorkspace = "database", &none
		}
		write.Dependency, fails.Idempotent = "database", &none
		w, err := worker.New(e.Broker("w"), worker.Config{ID: "w", Origin: registry.Toolset, Mode: policy.Bypass,
			Log: e.Log(), DrainGrace: time.Second, Tools: []tool.Tool{
				make1(t, fails, func(context.Context, tool.Env) (string, error) {
					return "", tool.Unavailable(errors.New("refused"), "the database does not answer")
				}),
				make1(t, probe, func(context.Context, tool.Env) (string, error) {
					close(probing)
					<-release
					return "done", nil
				}),
				make1(t, write, func(context.Context, tool.Env) (string, error) { wrote++; return "done", nil }),
			}})
		must.OK(e.T, err)
		e.Start(w)
		budget, err := admission.ParseBudget("agent *=calls:100")
		must.OK(e.T, err)
		cfg := dispatcher.Config{ID: "d", Log: e.Log(), Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}}
		cfg.Quotas.Budgets = admission.Budgets{budget}
		e.Start(dispatcher.New(e.Broker("d"), cfg))
		b := e.Broker("client")
		submit := func(a toolyard.Agent, name string) toolyard.BatchKey {
			sub := toolyard.Batch{Agent: a, Calls: calls(name)}
			sub.Normalize(toolyard.BatchID(broker.NewID()))
			must.OK(e.T, b.Submit(e.Context(), sub))
			return sub.Key()
		}
		end := func(k toolyard.BatchKey) (s batch.State) {
			e.Eventually("the batch is complete", func() bool {
				s, err = b.Fold(e.Context(), k)
				return err == nil && s.Completed
			})
			return s
		}
		for range 5 { // which trips the breaker
			end(submit("other", "fails"))
		}
		time.Sleep(31 * time.Second) // virtual: it is half open then
		first := submit("other", "probe")
		<-probing
		k := submit("writer", "write")
		s := end(k)
		close(release)
		end(first)
		c := s.Calls[0]
		if wrote != 0 || c.Result.Code != toolyard.DependencyUnavailable {
			e.Fatalf("the test is not about that: it ran %d times, %+v", wrote, c.Result)
		}
		if r := c.Result; r.Attempts != 0 || strings.Contains(r.Error, "may or may not have taken effect") {
			e.Errorf("no attempt was started, and it says %d attempts: %q", r.Attempts, r.Error)
		}
		accounts, err := b.Budgets(e.Context(), "writer", toolyard.DefaultSession)
		must.OK(e.T, err)
		a := accounts["agent writer"]
		if used, _ := a.Total(); used.Calls != 0 {
			e.Errorf("no call was started, and %d are used of the budget", used.Calls)
		}
		if s.MayHaveChanged(0) {
			e.Error("an undo says that the group may have changed the workspace")
		}
	})
}
