package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/internal/version"
)

// TestVersion: every command has "version" and --version, and both say the same release and wire version.
func TestVersion(t *testing.T) {
	say := func(args ...string) string {
		var out bytes.Buffer
		root := &cobra.Command{Use: "prog", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return nil }}
		root.SetOut(&out)
		if status := Main(root, args, io.Discard); status != ExitOK {
			t.Fatalf("%v: status %d", args, status)
		}
		return out.String()
	}
	v := version.Read()
	if got, want := say("--version"), "prog version "+versionLine(v)+"\n"; got != want {
		t.Errorf("--version: %q, want %q", got, want)
	}
	if got := say("version"); !strings.HasPrefix(got, "release: "+v.Release+"\n") ||
		!strings.Contains(got, v.Go+", "+v.Platform) {
		t.Errorf("version: %q", got)
	}
	var read version.Info
	if err := json.Unmarshal([]byte(say("version", "--json")), &read); err != nil || read != v {
		t.Errorf("version --json: %+v, %v, want %+v", read, err, v)
	}
}

func TestVersionOfACheckout(t *testing.T) {
	var out bytes.Buffer
	if err := printVersion(&out, version.Info{Release: "v1.2.3", Commit: "0123abcd", CommitTime: "2026-11-23T10:00:00Z",
		Modified: true, Go: "go1.26.8", Platform: "linux/amd64", Wire: 7}, false); err != nil {
		t.Fatal(err)
	}
	const want = "release: v1.2.3\ncommit:  0123abcd of 2026-11-23T10:00:00Z, with changes\n" +
		"build:   go1.26.8, linux/amd64\nwire:    7\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
