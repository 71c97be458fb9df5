package dispatchercmd

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
)

// TestGoesOn: the commands that are named reach the same system, as a shell reads them, and hold no secret.
func TestGoesOn(t *testing.T) {
	for _, tt := range []struct {
		args []string
		key  toolyard.BatchKey
		want string
	}{
		{nil, toolyard.BatchKey{Agent: "a", ID: "b"}, " --agent a b"},
		{nil, toolyard.BatchKey{ID: "b"}, " b"},
		{nil, toolyard.BatchKey{Agent: "it's me", ID: "-b"}, ` --agent 'it'\''s me' -- -b`},
		{[]string{"--nats", "nats://h:1", "--creds", "a file"}, toolyard.BatchKey{Agent: "a", ID: "b"},
			" --nats nats://h:1 --creds 'a file' --agent a b"},
		{[]string{"--server", "https://h", "--token", "secret", "--data", "d"}, toolyard.BatchKey{Agent: "a", ID: "b"},
			" --server https://h --agent a b"},
	} {
		var sys systemFlags
		root, cmd := &cobra.Command{Use: "dispatcher"}, &cobra.Command{Use: "submit"}
		root.AddCommand(cmd)
		sys.add(cmd)
		if err := cmd.Flags().Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		for stored, is := range map[bool]string{true: " goes on", false: " may have been handed in"} {
			want := "batch " + strings.TrimPrefix(tt.key.String(), "/") + is + "; to follow it, or to end it:\n" +
				"  dispatcher watch" + tt.want + "\n  dispatcher cancel" + tt.want + "\n"
			if got := sys.goesOn(tt.key, stored); got != want {
				t.Errorf("%q:\n%s\nwant\n%s", tt.args, got, want)
			}
		}
	}
}
