package dispatchercmd

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// TestAPasswordInAURLIsNotShown: neither it nor a token stands in an error, or in what is printed. Where the server is
// does.
func TestAPasswordInAURLIsNotShown(t *testing.T) {
	const at = "127.0.0.1:1"
	for _, who := range []string{"ann:hunter2@", "hunter2@", "ann:hunter2@hunter2@"} {
		for _, args := range [][]string{
			{"workers", "--nats", "nats://" + who + at}, {"workers", "--nats", who + at},
			{"workers", "--nats", "nats://" + at + ",nats://" + who + at},
			{"workers", "--nats", "nats://" + who + at + ":x"}, {"workers", "--nats", "http://" + who + at},
			{"workers", "--server", "http://" + who + at}, {"doctor", "--nats", "nats://" + who + at},
			{"replay", "--nats", "nats://" + who + at, "none"},
		} {
			var out bytes.Buffer
			status := cli.Main(Command(strings.NewReader(""), &out, &out), args, &out)
			if status == 0 || strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), at) {
				t.Errorf("%q: exit status %d, %s", args, status, &out)
			}
		}
		if err := checkRelayURL("--to", "https://"+who+at+"/", false); err == nil ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("relay --to: %v", err)
		}
		cmd := &cobra.Command{Use: "submit"}
		f := systemFlags{}
		f.add(cmd)
		cmd.SetOut(io.Discard)
		if err := cmd.ParseFlags([]string{"--nats", "nats://" + who + at}); err != nil {
			t.Fatal(err)
		}
		if says := f.goesOn(toolyard.BatchKey{Agent: "a", ID: "b"}, true); strings.Contains(says, "hunter2") ||
			!strings.Contains(says, "--nats nats://xxxxx@"+at) {
			t.Errorf("what goes on: %s", says)
		}
		if where := f.where(); strings.Contains(where, "hunter2") {
			t.Errorf("where: %s", where)
		}
	}
}
