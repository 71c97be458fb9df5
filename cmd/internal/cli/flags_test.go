package cli_test

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/cmd/internal/dispatchercmd"
	"github.com/toolyard/toolyard/cmd/internal/workercmd"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

var update = flag.Bool("update", false, "rewrite the lists of flags that each command knows of the other")

// TestTheOtherCommandKnowsTheFlags: one environment may have the settings of both commands, so each has a list of the
// flags of both.
func TestTheOtherCommandKnowsTheFlags(t *testing.T) {
	for list, cmd := range map[string]*cobra.Command{
		"flags-dispatcher.txt": dispatchercmd.Command(nil, io.Discard, io.Discard),
		"flags-worker.txt":     workercmd.Command(io.Discard, io.Discard),
	} {
		want := strings.Join(cli.FlagNames(cmd), "\n") + "\n"
		if *update {
			must.OK(t, os.WriteFile(list, []byte(want), 0o644))
		}
		have := must.Read(t, list)
		if string(have) != want {
			t.Errorf("%s is out of date: run go test ./cmd/internal/cli -update", list)
		}
	}
}
