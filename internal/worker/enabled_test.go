package worker

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestAToolThatDoesNotSayWhetherItIsEnabled: the worker lives on beside a tool whose Enabled does not return, and ends
// when it is told to. The tool is not offered until it answers, and not asked twice at a time.
func TestAToolThatDoesNotSayWhetherItIsEnabled(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		var asked atomic.Int32
		answers := make(chan bool)
		var deaf, other, ends atomic.Bool // what their functions do
		tools := make([]tool.Tool, 0, 3)
		for name, enabled := range map[string]func() bool{
			"asks": func() bool {
				if !deaf.Load() {
					return true
				}
				asked.Add(1)
				return <-answers
			},
			"other": other.Load,
			"ends": func() bool {
				if ends.Load() {
					runtime.Goexit()
				}
				return true
			},
		} {
			made, err := tool.New(tool.Typed[struct{}, string]{
				Declaration: tool.Declaration{Name: name, Description: "A tool of a test.", ReadOnly: true,
					Class: tool.ClassRule{Static: toolyard.ReadOnly}},
				Run:     func(context.Context, tool.Env, struct{}) (string, error) { return "done", nil },
				Enabled: enabled,
			})
			must.OK(e.T, err)
			tools = append(tools, made)
		}
		w, err := New(e.Broker("w"), Config{ID: "w", Tools: tools, Log: e.Log()})
		must.OK(e.T, err)
		part, reader := e.Start(w), e.Broker("reader")
		e.Cleanup(func() { close(answers) })
		offers := func(n int) func() bool {
			return func() bool {
				workers, err := reader.Workers(e.Context())
				return err == nil && len(workers) == 1 && workers[0].Tools == n
			}
		}
		e.Eventually("two are offered", offers(2))
		term, _ := w.registered.holds()
		deaf.Store(true)
		e.Eventually("the tool is not offered", offers(1))
		other.Store(true)
		e.Eventually("another one is", offers(2))
		ends.Store(true)
		e.Eventually("one whose function ends its goroutine is not", offers(1))
		time.Sleep(time.Minute)
		if now, ok := w.registered.holds(); !ok || now != term {
			e.Errorf("the worker counted as dead meanwhile: alive %v, in term %d, before %d", ok, now, term)
		}
		if n := asked.Load(); n != 1 {
			e.Errorf("the tool was asked %d times", n)
		}
		deaf.Store(false)
		answers <- true
		e.Eventually("the tool is offered again", offers(2))
		deaf.Store(true)
		e.Eventually("the tool is not offered", offers(1))
		part.End()
	})
}

// TestASlowEnabledKeepsItsToolOffered: a function that takes longer than a heartbeat waits for it, and says yes each
// time, does not have its tool come and go.
func TestASlowEnabledKeepsItsToolOffered(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		slow, err := tool.New(tool.Typed[struct{}, string]{
			Declaration: tool.Declaration{Name: "slow", Description: "A tool of a test.", ReadOnly: true,
				Class: tool.ClassRule{Static: toolyard.ReadOnly}},
			Run:     func(context.Context, tool.Env, struct{}) (string, error) { return "done", nil },
			Enabled: func() bool { time.Sleep(enabledWait + enabledWait/2); return true },
		})
		must.OK(e.T, err)
		w, err := New(e.Broker("w"), Config{ID: "w", Tools: []tool.Tool{slow}, Log: e.Log()})
		must.OK(e.T, err)
		part, reader := e.Start(w), e.Broker("reader")
		offered := func() bool {
			workers, err := reader.Workers(e.Context())
			return err == nil && len(workers) == 1 && workers[0].Tools == 1
		}
		e.Eventually("the tool is offered", offered)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if !offered() {
				e.Fatal("the tool is not offered any more")
			}
		}
		part.End()
	})
}
