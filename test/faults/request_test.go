//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/test/faults/ledger"
)

// repeated makes n calls of one tool.
func repeated(tool string, n int, input map[string]any) (out []toolyard.Call) {
	for range n {
		out = append(out, toolyard.Call{Tool: tool, Input: raw(input)})
	}
	return out
}

// TestFirstHeartbeatIsLost (R1): a thousand calls take longer than the call ack wait, and the first heartbeat of each
// delivery is lost. Hardly any call starts twice.
func TestFirstHeartbeatIsLost(t *testing.T) {
	cell(t, "R1", func(s *system) rules {
		s.basic()
		var once onceLost
		direct := s.url
		p := proxyTo(s.t, s.hostPort(direct), func() lost { return progressLost{&once} })
		s.url = p.url
		s.together(func() { s.worker("worker-a", "", "--read-slots", "250") },
			func() { s.worker("worker-b", "", "--read-slots", "250") })
		s.url = direct
		s.together(func() { s.dispatcher("dispatcher-a", "") }, func() { s.dispatcher("dispatcher-b", "") })
		l := s.load(mix{quiet: true})
		const calls = 1_000
		took := s.settings.CallAckWait + time.Second
		// A busy machine runs a thousand calls in minutes.
		const limit = 4 * time.Minute
		storm := l.extraMix(toolyard.Batch{Agent: "dan", ID: "storm", Workspace: "dan",
			Calls:   repeated("look", calls, map[string]any{"work_ms": took.Milliseconds()}),
			Options: toolyard.Options{MaxConcurrency: calls, TimeoutMS: limit.Milliseconds()}},
			mix{quiet: true, timeout: limit})
		l.finish()
		lines, err := ledger.Read(s.ledger())
		must.OK(s.t, err)
		begun := 0
		for _, line := range lines {
			if line.Key() == storm.Key() && line.Kind == ledger.Begin {
				begun++
			}
		}
		if begun*10 > calls*11 {
			s.t.Errorf("%d calls were begun %d times", calls, begun)
		}
		if items := calls / batch.MaxItemCalls; once.count() < items {
			s.t.Errorf("%d signs of life were lost, less than one of each of %d items", once.count(), items)
		}
		return rules{}
	})
}

// TestToolsMisbehave (R2): tools panic, end their worker, and return far too much or no JSON; names hold a NUL.
func TestToolsMisbehave(t *testing.T) {
	cell(t, "R2", func(s *system) rules {
		s.basic()
		worker := s.worker("worker", "")
		poisoned := []*process{s.worker("poisoned", "", "--pool", "poison", "--deadly")}
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})

		// Whoever runs a worker starts it again.
		supervising, stop := context.WithCancel(s.context())
		var supervisor sync.WaitGroup
		supervisor.Go(func() {
			for p := poisoned[0]; ; {
				select {
				case <-supervising.Done():
					return
				case <-p.done:
				}
				if supervising.Err() != nil {
					return
				}
				p.planned = true
				if p.cmd.ProcessState.ExitCode() != 3 {
					s.t.Errorf("%s ended with %s", p.name, p.cmd.ProcessState)
					return
				}
				p = s.worker("poisoned", "", "--pool", "poison", "--deadly")
				poisoned = append(poisoned, p)
			}
		})
		const much = 10 << 20
		sub := l.extra(toolyard.Batch{
			Agent: "dan", ID: "poison", Workspace: "dan", Options: toolyard.Options{OnError: toolyard.Continue},
			Calls: slices.Concat(
				repeated("panic_look", 1, nil), repeated("big", 1, map[string]any{"bytes": much}),
				[]toolyard.Call{{Tool: "bad_json"}},
				repeated("odd_text", 1, nil), repeated("exit", 1, nil), repeated("panic_write", 1, nil),
				repeated("exit_write", 1, nil), repeated("write", 1, nil)),
		})
		for i, want := range []toolyard.Code{
			toolyard.ExecutionFailed, toolyard.OK, toolyard.ResultMappingFailed, toolyard.OK, toolyard.OutcomeUnknown,
			toolyard.ExecutionFailed, toolyard.OutcomeUnknown, toolyard.OK,
		} {
			if r := sub.Results[i]; r.Code != want || r.IsError && (r.Error == "" || r.Detail == "") {
				s.t.Errorf("%s ended as %q (%s; %s), want %q and a cause", r.Tool, r.Code, r.Error, r.Detail, want)
			}
		}
		if r := sub.Results[1]; !r.Truncated || r.Blob == "" || len(r.Output) > 100_000 {
			s.t.Errorf("%d bytes became a result of %d, truncated %v, behind %q", much, len(r.Output), r.Truncated,
				r.Blob)
		}
		if n := sub.Results[4].Attempts; n != 3 {
			s.t.Errorf("a read that ends its worker was started %d times, want 3", n)
		}
		if n := sub.Results[6].Attempts; n != 1 {
			s.t.Errorf("a write that ends its worker was started %d times, want 1", n)
		}
		stop()
		supervisor.Wait()
		if worker.ended() {
			s.t.Errorf("the worker with the other tools has ended with %s", worker.cmd.ProcessState)
		}
		// A name with a NUL is refused before it is stored, and when somebody stores it all the same.
		if _, err := s.c.Submit(s.context(), toolyard.Batch{Agent: "dan", ID: "nul\x00",
			Calls: repeated("look", 1, nil)}); !isInput(err) {
			s.t.Errorf("a batch id with a NUL: %v", err)
		}
		m := nats.NewMsg("ty.batch.dan.nul=00")
		for k, v := range map[string]string{"ce-specversion": "1.0", "ce-type": "dev.toolyard.batch.submitted.v1",
			"ce-source": "/test", "ce-id": "nul", "content-type": "application/json"} {
			m.Header.Set(k, v)
		}
		m.Data = []byte(`{"calls":[{"tool":"look"}]}`)
		if _, err := s.js.PublishMsg(s.context(), m); err != nil {
			s.t.Fatal(err)
		}
		s.until(faultWait, "a stored name with a NUL is refused", func() bool {
			reply, err := s.js.Stream(s.context(), "TY_REPLY")
			must.OK(s.t, err)
			last, err := reply.GetLastMsgForSubject(s.context(), "ty.reply.dan.nul=00")
			return err == nil && last.Header.Get("ce-type") == "dev.toolyard.batch.refused.v1"
		})
		s.faultOver()
		l.finish()
		codes := map[string][]toolyard.Code{}
		for _, r := range sub.Results {
			codes[r.Tool] = append(codes[r.Tool], r.Code)
		}
		return rules{harmed: poisoned, codes: codes, foreign: []toolyard.BatchKey{{Agent: "dan", ID: "nul\x00"}}}
	})
}

func isInput(err error) bool {
	_, ok := errors.AsType[*toolyard.InputError](err)
	return ok
}

// TestBatchIsSubmittedAgain (R3): agents submit the same batch again: many at once, when it is over, after the window
// in which JetStream remembers message ids, and when the submission has left its stream.
func TestBatchIsSubmittedAgain(t *testing.T) {
	cell(t, "R3", func(s *system) rules {
		s.basic()
		s.twoOfEach("", "")
		l := s.load(mix{})
		b := toolyard.Batch{Agent: "dan", ID: "again", Workspace: "dan", Calls: mixed(s.rand, true),
			Options: toolyard.Options{TimeoutMS: batchTimeout.Milliseconds()}}
		hand := func(c *client.Client) []toolyard.Result {
			sub, err := c.Submit(s.context(), b)
			if err != nil {
				s.t.Errorf("the same batch again: %v", err)
				return nil
			}
			var out []toolyard.Result
			for r, err := range sub.Results(s.context()) {
				if err != nil {
					s.t.Errorf("the results of the same batch: %v", err)
					return out
				}
				out = append(out, r)
			}
			return out
		}
		first, second := s.client(), s.client()
		var mu sync.Mutex
		var again [][]toolyard.Result
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				got := hand([]*client.Client{first, second}[i%2])
				mu.Lock()
				defer mu.Unlock()
				again = append(again, got)
			})
		}
		sub := l.extra(b)
		all.Wait()
		again = append(again, hand(second)) // when it is over

		stream, err := s.js.Stream(s.context(), "TY_BATCH")
		must.OK(s.t, err)
		cfg := stream.CachedInfo().Config
		cfg.Duplicates = 100 * time.Millisecond
		if _, err := s.js.UpdateStream(s.context(), cfg); err != nil {
			s.t.Fatal(err)
		}
		since := time.Now()
		s.until(faultWait, "the window has passed", func() bool { return time.Since(since) > 3*cfg.Duplicates })
		again = append(again, hand(first))
		sub.Again = again

		// The submission is gone, as it is when its age has come, and the rest is not: that is said, and nothing runs.
		gone := toolyard.Batch{Agent: "dan", ID: "gone", Workspace: "dan", Calls: repeated("write", 2, nil)}
		l.extra(gone)
		must.OK(s.t, stream.Purge(s.context(), jetstream.WithPurgeSubject("ty.batch.dan.gone")))
		old, err := second.Submit(s.context(), gone)
		must.OK(s.t, err)
		s.refused(old)
		s.faultOver()
		l.finish()
		return rules{}
	})
}

// refused checks that a batch whose submission was gone is answered with what its log holds, or with a refusal, and
// with nothing else.
func (s *system) refused(b *client.Batch) {
	s.t.Helper()
	for r, err := range b.Results(s.context()) {
		refused := new(client.RefusedError)
		switch {
		case err == nil && !r.IsError: // what was stored
		case errors.As(err, &refused) && strings.Contains(refused.Detail, "used before"):
		default:
			s.t.Errorf("a batch whose submission was gone is answered with %+v, %v", r, err)
		}
	}
}

// TestPublishAnswersAreLost (R4): dispatchers, workers and agents lose the answer to each of their publishes once.
func TestPublishAnswersAreLost(t *testing.T) {
	cell(t, "R4", func(s *system) rules {
		s.basic()
		var once onceLost
		direct := s.url
		p := proxyTo(s.t, s.hostPort(direct), func() lost { return &ackLost{once: &once, sent: map[string]string{}} })
		s.url = p.url
		s.twoOfEach("", "")
		// Each answer that is lost takes two seconds, one after the other: one batch of each agent is enough.
		l := s.load(mix{quiet: true, shape: func(r *rand.Rand) []toolyard.Call {
			return slices.Concat(repeated("look", 2, nil), repeated("look_once", 1, nil),
				repeated([]string{"write", "put"}[r.IntN(2)], 1, nil))
		}})
		l.finish()
		if once.count() < 50 {
			s.t.Errorf("only %d answers were lost", once.count())
		}
		s.url = direct
		return rules{settle: time.Minute, told: 5 * time.Second}
	})
}

// TestAgentIsCutOff (C1): an agent loses its connection in the middle of one batch and is killed in the middle of
// another. Who comes back sees the same results from the first on, and goes on.
func TestAgentIsCutOff(t *testing.T) {
	cell(t, "C1", func(s *system) rules {
		s.basic()
		s.twoOfEach("", "")
		l := s.load(mix{})
		calls := slices.Concat(repeated("write", 3, map[string]any{"work_ms": 100}),
			repeated("look", 4, map[string]any{"work_ms": 200}), repeated("write", 3, map[string]any{"work_ms": 100}))

		nc := s.dial()
		c, err := client.Connect(s.context(), nc, client.Options{})
		must.OK(s.t, err)
		b := toolyard.Batch{Agent: "dan", ID: "cut", Workspace: "dan", Calls: calls,
			Options: toolyard.Options{TimeoutMS: batchTimeout.Milliseconds()}}
		handed, err := c.Submit(s.context(), b)
		must.OK(s.t, err)
		cut := 1 + s.rand.IntN(len(calls)-1)
		var seen []toolyard.Result
		for r, err := range handed.Results(s.context()) {
			must.OK(s.t, err)
			if seen = append(seen, r); len(seen) == cut {
				break
			}
		}
		nc.Close()
		sub := l.extra(b)
		if string(raw(seen)) != string(raw(sub.Results[:len(seen)])) {
			s.t.Errorf("Q2: before the cut the agent saw\n%s\nand after it\n%s", raw(seen),
				raw(sub.Results[:len(seen)]))
		}

		killed := toolyard.Batch{Agent: "dan", ID: "killed", Workspace: "dan", Calls: calls,
			Options: toolyard.Options{TimeoutMS: batchTimeout.Milliseconds()}}
		file := filepath.Join(s.dir, "killed.json")
		must.OK(s.t, os.WriteFile(file, raw(killed), 0o600))
		agent := s.launch("agent", "", "dispatcher", "submit", "--nats", s.url, file)
		written := ledger.NewReader(s.ledger())
		s.until(faultWait, "the agent's batch is under way", func() bool {
			lines, err := written.New()
			return err == nil && slices.ContainsFunc(lines, func(l ledger.Line) bool {
				return l.Key() == killed.Key() &&
					l.Kind == ledger.Effect
			})
		})
		agent.kill()
		dir, err := bin()
		must.OK(s.t, err)
		cmd := exec.CommandContext(s.context(), filepath.Join(dir, "dispatcher"), "submit", "--nats", s.url, "--json",
			file)
		cmd.Env = append(os.Environ(), "TOOLYARD_DATA="+s.data())
		out, err := cmd.Output()
		var view toolyard.BatchView
		if err := errors.Join(err, json.Unmarshal(out, &view)); err != nil {
			s.t.Fatalf("the agent that came back: %v\n%s", err, out)
		}
		again := l.extra(killed)
		if string(raw(view.Results)) != string(raw(again.Results)) {
			s.t.Errorf("Q2: the agent that came back has\n%s\nand the stream has\n%s", raw(view.Results),
				raw(again.Results))
		}
		s.faultOver()
		l.finish()
		return rules{}
	})
}
