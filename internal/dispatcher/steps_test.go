package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
)

// TestABatchRuns from its submission to its last reply.
func TestABatchRuns(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		y.work()
		k := y.submit("read", "read", "write", "read", "unknown")
		if got := y.codes(k); got != "ok ok ok ok unknown_tool" {
			y.Errorf("the results are %s", got)
		}
		if s := y.fold(k); s.Owner != "d" || s.Takeovers != 0 || len(s.Started) != 3 {
			y.Errorf("owner %q after %d takeovers, %d groups were started", s.Owner, s.Takeovers, len(s.Started))
		}
	})
}

// TestLostAnswers: whichever answers of the server to the owner are lost, the batch has the same results, and no call
// runs twice.
func TestLostAnswers(t *testing.T) {
	for steps := 0; steps < 100; steps += 15 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.dispatcher("d")
				y.work()
				k := y.submit("read", "read", "write", "read")
				time.Sleep(time.Duration(steps) * bubble.StepTime)
				y.Server.LoseAnswers("d", 3)
				if got := y.codes(k); got != "ok ok ok ok" || y.ran.Load() != 4 {
					y.Errorf("the results are %s, and %d calls ran", got, y.ran.Load())
				}
			})
		})
	}
}

// TestAFullStream is waited for: what is accepted goes on when there is room again.
func TestAFullStream(t *testing.T) {
	for _, stream := range []string{"TY_EVENT", "TY_CALL", "TY_REPLY", "KV_ty_ticket"} {
		t.Run(stream, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.dispatcher("d")
				y.work()
				k := y.submit("read", "write")
				y.Server.Fill(stream, true)
				time.Sleep(10 * time.Second)
				if s := y.fold(k); s.Completed {
					y.Fatal("the batch is complete although a stream is full")
				}
				y.Server.Fill(stream, false)
				if got := y.codes(k); got != "ok ok" || y.ran.Load() != 2 {
					y.Errorf("the results are %s, and %d calls ran", got, y.ran.Load())
				}
				if s := y.fold(k); s.Takeovers != 0 {
					y.Errorf("%d takeovers", s.Takeovers)
				}
			})
		})
	}
}

// TestAnotherOwner: an owner that finds another's event on the batch chain stops, and writes nothing more. When that
// one falls silent the batch is delivered again.
func TestAnotherOwner(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submit("write")
		d := y.take(toolyard.WriteExclusive)
		s := y.fold(k)
		if _, err := y.b.Append(y.Context(), k, batch.ChainBatch, "", 0, s.BatchSeq,
			events.Adopted{Owner: "other", Takeover: 1}); err != nil {
			y.Fatal(err)
		}
		time.Sleep(time.Second)
		if s := y.fold(k); s.Owner != "other" {
			y.Fatalf("%q owns the batch", s.Owner)
		}
		y.run(d)
		if got := y.codes(k); got != "ok" {
			y.Errorf("the results are %s", got)
		}
		if s := y.fold(k); s.Owner != "d" || s.Takeovers != 2 {
			y.Errorf("owner %q after %d takeovers", s.Owner, s.Takeovers)
		}
	})
}

// TestADispatcherThatIsStopped, wherever it is: the next one goes on, and no call runs twice.
func TestADispatcherThatIsStopped(t *testing.T) {
	stop := func(t *testing.T, at string, reached func(y *yard, s *batch.State, d func() bool) bool) {
		t.Run(at, func(t *testing.T) {
			inYard(t, func(y *yard) {
				first := y.dispatcher("d")
				k := y.submit("write")
				y.Eventually(at, func() bool {
					s := y.fold(k)
					return reached(y, &s, func() bool { y.run(y.take(toolyard.WriteExclusive)); return true })
				})
				first.End()
				y.work()
				y.dispatcher("next")
				if got := y.codes(k); got != "ok" || y.ran.Load() > 1 {
					y.Errorf("the results are %s, and the call ran %d times", got, y.ran.Load())
				}
			})
		})
	}
	stop(t, "before it is planned", func(*yard, *batch.State, func() bool) bool { return true })
	stop(t, "planned", func(_ *yard, s *batch.State, _ func() bool) bool { return s.Plan != nil })
	stop(t, "started", func(_ *yard, s *batch.State, _ func() bool) bool { return len(s.Started) == 1 })
	stop(t, "finished", func(_ *yard, s *batch.State, finish func() bool) bool {
		return len(s.Started) == 1 && finish()
	})
}
