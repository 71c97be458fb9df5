package dispatchercmd

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/cmd/internal/cli"
)

var update = flag.Bool("update", false, "rewrite the list of flags that the other command knows")

// TestTheOtherCommandKnowsTheFlags: one environment may have the settings of both commands, so each has a list of the
// flags of both.
func TestTheOtherCommandKnowsTheFlags(t *testing.T) {
	const list = "../cli/flags-dispatcher.txt"
	want := strings.Join(cli.FlagNames(Command(nil, io.Discard, io.Discard)), "\n") + "\n"
	if *update {
		if err := os.WriteFile(list, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is out of date: run go test ./cmd/internal/dispatchercmd -update", list)
	}
}
