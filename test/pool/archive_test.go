//go:build unix

package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// storedBytes are the bytes and subjects of the streams that have the logs of batches, and of the archive, as the
// server counts them.
func storedBytes(t testing.TB, s *natsd.Server) (hot, archived, subjects uint64) {
	t.Helper()
	js := testenv.JetStream(t, testenv.Conn(t, s))
	for _, name := range []string{"TY_BATCH", "TY_EVENT", "TY_REPLY", "TY_ARCHIVE"} {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			if name == "TY_ARCHIVE" {
				continue
			}
			t.Fatal(err)
		}
		state := stream.CachedInfo().State
		if name == "TY_ARCHIVE" {
			archived = state.Bytes
			continue
		}
		hot, subjects = hot+state.Bytes, subjects+state.NumSubjects
	}
	return hot, archived, subjects
}

// archiveAll archives batches until so many are.
func archiveAll(t testing.TB, s *natsd.Server, batches int) {
	t.Helper()
	a, err := testenv.Broker(t, s, "/dispatcher/archiver").Archiver(t.Context(), time.Nanosecond, nil)
	must.OK(t, err)
	for done := 0; done < batches; {
		r, err := a.Round(t.Context())
		must.OK(t, err)
		if done += r.Batches; r.Batches == 0 { // the last submissions are not acknowledged yet
			runtime.Gosched()
		}
	}
}

// TestArchivedBatchesAnswerAgain: who asks for the results of an archived batch, or hands it in again, gets what it
// got.
func TestArchivedBatchesAnswerAgain(t *testing.T) {
	s := testenv.Server(t)
	ran := make(chan string, 100)
	made := newTool(t, tool.Typed[struct{ Text string }, string]{Declaration: writer("say"),
		Run: func(_ context.Context, _ tool.Env, in struct{ Text string }) (string, error) {
			ran <- in.Text
			return "said " + in.Text, nil
		}})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{made}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	const batches = 5
	results := func(n int) (out []string) {
		sub := toolyard.Batch{ID: toolyard.BatchID(fmt.Sprint("b", n)), Agent: "a"}
		for i := range 3 {
			sub.Calls = append(sub.Calls, toolyard.Call{Tool: "say", Input: json.RawMessage(fmt.Sprintf(
				`{"Text":"%d of %d"}`, i, n))})
		}
		b := submit(t, c, sub)
		for _, r := range resultsOf(t, b) {
			text := must.JSON(t, r)
			out = append(out, string(text))
		}
		return out
	}
	var before [][]string
	for n := range batches {
		before = append(before, results(n))
	}
	archiveAll(t, s, batches)
	if len(ran) != 3*batches {
		t.Fatalf("%d calls have run", len(ran))
	}
	for n := range batches {
		got, want := strings.Join(results(n), "\n"), strings.Join(before[n], "\n")
		if got != want || len(before[n]) != 3 {
			t.Errorf("batch %d, handed in again, has the results\n%s\nand had\n%s", n, got, want)
		}
	}
	if len(ran) != 3*batches {
		t.Errorf("%d calls have run: some of them again", len(ran))
	}
	if again := results(batches); len(again) != 3 {
		t.Errorf("a new batch has the results %q", again)
	}
}

// BenchmarkArchive says what a call keeps in the streams, and what it keeps when it is archived: batches of ten reads
// of 412 bytes each. The processor time is that of the whole process, which is the server too.
func BenchmarkArchive(b *testing.B) {
	text := strings.Repeat("a line of a file that is read again and again\n", 9)[:412]
	made := newTool(b, tool.Typed[struct {
		Path string `json:"file_path"`
	}, string]{Declaration: reader("read"), Run: func(context.Context, tool.Env, struct {
		Path string `json:"file_path"`
	}) (string, error) {
		return text, nil
	}})
	c, s := benchSystem(b, worker.Config{Mode: policy.Bypass, Tools: []tool.Tool{made},
		Slots: map[toolyard.Class]int{toolyard.ReadOnly: 64}})
	const batches, calls = 1_000, 10
	total, places := 0, make(chan struct{}, 32)
	var hot, left, objects, subjects, subjectsLeft uint64
	var took, used time.Duration
	for b.Loop() {
		hotBefore, archivedBefore, subjectsBefore := storedBytes(b, s)
		var work sync.WaitGroup
		for n := range batches {
			places <- struct{}{}
			work.Go(func() {
				defer func() { <-places }()
				sub := toolyard.Batch{Agent: "a", ID: toolyard.BatchID(broker.NewID())}
				for i := range calls {
					sub.Calls = append(sub.Calls, toolyard.Call{Tool: "read",
						Input: json.RawMessage(fmt.Sprintf(`{"file_path":"src/file%d-%d.txt"}`, n, i))})
				}
				run, err := c.Submit(b.Context(), sub)
				if err != nil {
					b.Error(err)
					return
				}
				for _, err := range run.Results(b.Context()) {
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		work.Wait()
		full, _, all := storedBytes(b, s)
		began, before := time.Now(), processor(b)
		archiveAll(b, s, batches)
		took, used = took+time.Since(began), used+processor(b)-before
		after, archived, remaining := storedBytes(b, s)
		hot, left, objects = hot+full-hotBefore, left+after-hotBefore, objects+archived-archivedBefore
		subjects, subjectsLeft = subjects+all-subjectsBefore, subjectsLeft+remaining-subjectsBefore
		total += batches * calls
	}
	a := float64(total)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(hot)/a, "hot-B/call")
	b.ReportMetric(float64(left)/a, "fences-B/call")
	b.ReportMetric(float64(objects)/a, "objects-B/call")
	b.ReportMetric(float64(subjects)/a, "subjects/call")
	b.ReportMetric(float64(subjectsLeft)/a, "subjects-left/call")
	b.ReportMetric(float64(used.Microseconds())/a, "cpu-us/call")
	b.ReportMetric(float64(took.Microseconds())/a, "us/call")
}
