package dispatchercmd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// TestWhichBatchIsMeant: a name with a slash is AGENT/ID, or an id that has one; with --agent the id comes first.
func TestWhichBatchIsMeant(t *testing.T) {
	long := strings.Repeat("x", toolyard.MaxNameBytes)
	for _, tt := range []struct {
		name, agent string
		named       bool
		there       string // the batches that are
		want, says  string // says: of a usage error
	}{
		{name: "a/b", agent: "default", there: "a b", want: "a b"},
		{name: "a/b", agent: "default", there: "default a/b", want: "default a/b"},
		{name: "a/b", agent: "default", there: "a b, default a/b", want: "a b"},
		{name: "a/b", agent: "default", named: true, there: "a b, default a/b", want: "default a/b"},
		{name: "a/b", agent: "a", named: true, there: "a b", want: "a b"},
		{name: "a/b", agent: "c", named: true, there: "a b", says: `is of agent "a", and --agent says "c"`},
		{name: "a/b/c", agent: "default", there: "a/b c", want: "a/b c"},
		{name: "a/b/c", agent: "default", there: "a b/c", want: "a b/c"},
		{name: "a/b", agent: "default", want: "a b"}, // whose watch says that there is none
		{name: "a/", agent: "default", want: "default a/"},
		{name: long + "/" + long, agent: "default", there: long + " " + long, want: long + " " + long},
	} {
		if err := checkBatchName(tt.name); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		got, err := meant(toolyard.BatchKey{Agent: toolyard.Agent(tt.agent), ID: toolyard.BatchID(tt.name)}, tt.named,
			func(k toolyard.BatchKey) (toolyard.BatchKey, error) {
				for _, one := range strings.Split(tt.there, ", ") {
					if one == fmt.Sprintf("%s %s", k.Agent, k.ID) {
						return k, nil
					}
				}
				return k, client.ErrNoBatch
			})
		if tt.says != "" {
			if _, ok := errors.AsType[*cli.UsageError](err); !ok || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s of %s: %v", tt.name, tt.agent, err)
			}
			continue
		}
		if is := fmt.Sprintf("%s %s", got.Agent, got.ID); err != nil || is != tt.want {
			t.Errorf("%s of %s (named: %t), where there are %q: %s (%v), want %s", tt.name, tt.agent, tt.named,
				tt.there, is, err, tt.want)
		}
	}
	for _, bad := range []string{"", long + "x", "/" + long + "x", "\x00/b"} {
		if checkBatchName(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
