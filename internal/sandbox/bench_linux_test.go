//go:build linux && (amd64 || arm64)

package sandbox

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func BenchmarkStart(b *testing.B) {
	command := []string{"/bin/true"}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			must.OK(b, exec.Command(command[0]).Run())
		}
	})
	for _, box := range backends() {
		if _, err := box.Probe(b.Context()); err != nil {
			b.Logf("%s: %v", box.Name(), err)
			continue
		}
		dir := b.TempDir()
		ws := &Workspace{Dir: dir, Writable: true}
		for _, c := range []struct {
			name  string
			ws    *Workspace
			pause time.Duration
		}{{"no workspace", nil, think}, {"read-only", &Workspace{Dir: dir}, think}, {"writable", ws, think},
			{"burst", ws, 0}} {
			b.Run(box.Name()+"/"+c.name, func(b *testing.B) {
				benchmark(b, box, Policy{Workspace: c.ws}, command,
					c.pause)
			})
		}
	}
}

// think is the pause of a model between two calls, as short as it never is: the time in which a spare is made ready. A
// burst has none.
const think = 25 * time.Millisecond

// benchmark reports medians, of runs that take turns with plain ones: the machine's other work meets both.
func benchmark(b *testing.B, box Sandbox, p Policy, command []string, pause time.Duration) {
	var plain, boxed []time.Duration
	for b.Loop() {
		time.Sleep(pause)
		began := time.Now()
		must.OK(b, exec.Command(command[0]).Run())
		plain = append(plain, time.Since(began))
		began = time.Now()
		if res, err := box.Run(b.Context(), p, Command{Argv: command}, Streams{}); err != nil || res.ExitCode != 0 {
			b.Fatal(res, err)
		}
		boxed = append(boxed, time.Since(began))
	}
	b.ReportMetric(0, "ns/op") // it would be the pauses
	slices.Sort(plain)
	slices.Sort(boxed)
	b.ReportMetric(float64(boxed[len(boxed)/2].Microseconds()), "median-µs")
	b.ReportMetric(float64(plain[len(plain)/2].Microseconds()), "plain-median-µs")
	b.ReportMetric(float64(boxed[len(boxed)/2])/float64(plain[len(plain)/2]), "times-plain")
}
