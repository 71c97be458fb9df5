package pool

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
)

// BenchmarkStored measures what one batch of read_file and write_file stores, for docs/sizing.md: by how much messages
// and bytes of the streams grow, as their states say. A read is of five lines, 95 bytes; a write is of six bytes.
func BenchmarkStored(b *testing.B) {
	tools, err := builtin.All(builtin.Options{})
	must.OK(b, err)
	root := b.TempDir()
	text := strings.Repeat("a line of nineteen\n", 5)
	must.OK(b, os.WriteFile(filepath.Join(root, "f"), []byte(text), 0o600))
	must.OK(b, os.WriteFile(filepath.Join(root, "long"), []byte(strings.Repeat(text, 100)), 0o600))
	c, s := benchSystem(b, worker.Config{Mode: policy.Bypass, Tools: tools,
		Workspaces: map[toolyard.Workspace]string{"w": root}})
	js := testenv.JetStream(b, testenv.Conn(b, s))
	stored := func(b *testing.B, stream string) (messages, bytes uint64) {
		info := testenv.Stream(b, js, stream)
		state := info.CachedInfo().State
		return state.Msgs, state.Bytes
	}
	for _, row := range []struct {
		name  string
		calls string
	}{
		{"1_read", "r"}, {"10_reads", strings.Repeat("r", 10)}, {"100_reads", strings.Repeat("r", 100)},
		{"1_write", "w"}, {"10_writes", strings.Repeat("w", 10)}, {"2_reads_1_write_2_reads", "rrwrr"},
		{"10_reads_of_10_kB", strings.Repeat("l", 10)},
	} {
		b.Run(row.name, func(b *testing.B) {
			var grown [3][2]uint64
			streams := []string{"TY_BATCH", "TY_EVENT", "TY_REPLY"}
			for b.Loop() {
				var before [3][2]uint64
				for i, name := range streams {
					before[i][0], before[i][1] = stored(b, name)
				}
				runStored(b, c, row.calls)
				for i, name := range streams {
					messages, bytes := stored(b, name)
					grown[i][0] += messages - before[i][0]
					grown[i][1] += bytes - before[i][1]
				}
			}
			n := float64(b.N)
			var messages, bytes uint64
			for i, name := range []string{"submission", "event", "reply"} {
				b.ReportMetric(float64(grown[i][0])/n, name+"-msgs")
				b.ReportMetric(float64(grown[i][1])/n, name+"-B")
				messages, bytes = messages+grown[i][0], bytes+grown[i][1]
			}
			b.ReportMetric(float64(messages)/n, "msgs")
			b.ReportMetric(float64(bytes)/n, "B")
			b.ReportMetric(float64(bytes)/n/float64(len(row.calls)), "B/call")
		})
	}
}

// runStored runs a batch of reads and writes, and waits until its events are stored.
func runStored(b *testing.B, c *client.Client, calls string) {
	b.Helper()
	batch := toolyard.Batch{Agent: "agent-1", Workspace: "w"}
	for i, kind := range calls {
		name, input := "read_file", map[string]string{"file_path": "f"}
		switch kind {
		case 'l':
			input = map[string]string{"file_path": "long"}
		case 'w':
			name, input = "write_file", map[string]string{"file_path": fmt.Sprintf("g%d", i), "content": "six by"}
		}
		text := must.JSON(b, input)
		batch.Calls = append(batch.Calls, toolyard.Call{Tool: name, Input: text})
	}
	sub := submit(b, c, batch)
	for r, err := range sub.Results(b.Context()) {
		if err != nil || r.IsError {
			b.Fatal(cmp.Or(err, fmt.Errorf("result %d: %s", r.Index, r.Error)))
		}
	}
	testenv.Until(b, "the batch is over", func() bool {
		view, err := sub.View(b.Context())
		return err == nil && view.Status == "completed"
	})
}
