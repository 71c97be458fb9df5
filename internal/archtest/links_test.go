package archtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Reasons for what a package must not link.
const (
	whySDK    = "a provider's form is a few structs of ours; its SDK links the whole API, and is the oracle of tests only"
	whyEvents = "an event is a dozen headers; the SDK links json-iterator and two codecs, and is the oracle of tests only"
	whyMethod = "it looks methods up by name, and so keeps the linker from dropping any: a third of the dispatcher's size"
	whyServer = "a fleet's agents and tools connect to a server and are none"
	whyAgent  = "an agent hands in calls and runs none"
	whyMain   = "it is for commands: a library has no flags and no files of settings"
	whyFace   = "it is for the dispatcher's doors"
	whyTest   = "it is for tests"
)

// standardNamed are the packages of the standard library that rows of links name.
var standardNamed = []string{"os/exec", "testing", "html/template"}

// links says what a package must not link, itself or through others. Direct imports say little: one file imports a facade, and
// the facade everything. A denied path stands for all below it.
var links = []struct {
	pkg    string
	needs  []string // it links these: the positive control
	denied map[string]string
}{
	{"client", []string{"github.com/nats-io/nats.go/jetstream", "internal/provider/anthropic", "internal/broker"}, map[string]string{
		"github.com/anthropics/anthropic-sdk-go": whySDK, "github.com/openai/openai-go": whySDK, "google.golang.org/genai": whySDK,
		"google.golang.org/grpc": whySDK, "go.opentelemetry.io": whySDK,
		"github.com/cloudevents/sdk-go": whyEvents, "github.com/json-iterator/go": whyMethod, "github.com/modern-go/reflect2": whyMethod,
		"go.yaml.in/yaml": whyMain, "github.com/spf13/cobra": whyMain, "github.com/spf13/pflag": whyMain, "internal/manifest": whyMain,
		"github.com/nats-io/nats-server": whyServer, "github.com/nats-io/jwt": whyServer, "internal/natsd": whyServer,
		"github.com/danielgtaylor/huma": whyFace, "github.com/modelcontextprotocol/go-sdk": whyFace, "github.com/prometheus": whyFace,
		"google.golang.org/protobuf": whyFace,
		"gvisor.dev/gvisor":          whyAgent, "mvdan.cc/sh": whyAgent, "github.com/sony/gobreaker": whyAgent, "os/exec": whyAgent,
		"internal/pipeline": whyAgent, "internal/sandbox": whyAgent, "internal/builtin": whyAgent, "internal/worker": whyAgent,
		"internal/dispatcher": whyAgent, "internal/testenv": whyTest, "testing": whyTest,
	}},
	{"worker", []string{"github.com/nats-io/nats.go/jetstream", "internal/pipeline", "internal/worker"}, map[string]string{
		"github.com/anthropics/anthropic-sdk-go": whySDK, "github.com/openai/openai-go": whySDK, "google.golang.org/genai": whySDK,
		"google.golang.org/grpc": whySDK, "go.opentelemetry.io": whySDK,
		"github.com/cloudevents/sdk-go": whyEvents, "github.com/json-iterator/go": whyMethod, "github.com/modern-go/reflect2": whyMethod,
		"go.yaml.in/yaml": whyMain, "github.com/spf13/cobra": whyMain, "github.com/spf13/pflag": whyMain, "internal/manifest": whyMain,
		"github.com/nats-io/nats-server": whyServer, "github.com/nats-io/jwt": whyServer, "internal/natsd": whyServer,
		"github.com/danielgtaylor/huma": whyFace, "github.com/modelcontextprotocol/go-sdk": whyFace, "github.com/prometheus": whyFace,
		"google.golang.org/protobuf": whyFace,
		"internal/dispatcher":        "it runs calls and orders none", "internal/testenv": whyTest, "testing": whyTest,
	}},
	{"cmd/dispatcher", []string{"internal/dispatcher", "github.com/nats-io/nats-server/v2/server"}, mainsDeny},
	{"cmd/worker", []string{"internal/worker", "internal/manifest"}, mainsDeny},
}

// mainsDeny is what made the commands three times as heavy as they are.
var mainsDeny = map[string]string{
	"github.com/anthropics/anthropic-sdk-go": whySDK, "github.com/openai/openai-go": whySDK, "google.golang.org/genai": whySDK,
	"google.golang.org/grpc": whySDK, "go.opentelemetry.io": whySDK,
	"github.com/cloudevents/sdk-go": whyEvents, "github.com/json-iterator/go": whyMethod, "github.com/modern-go/reflect2": whyMethod,
	"html/template": whyMethod, "github.com/evanw/esbuild": whyTest, "internal/testenv": whyTest, "internal/sim": whyTest, "testing": whyTest,
}

// toolLinks is all that package tool links beside the standard library: an author's tests build in a second.
var toolLinks = []string{"", "tool", "github.com/google/jsonschema-go/jsonschema"}

// linked are the packages outside the standard library that a package links on a system, and those of the standard library that a
// row of links names. This module's have their path below its root.
func linked(t *testing.T, pkg, goos string) (list []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}} {{with .Module}}{{.Main}} {{.Path}}{{end}}", "./"+pkg)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps ./%s: %v", pkg, err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 3 && f[2] == "true":
			list = append(list, strings.TrimPrefix(strings.TrimPrefix(f[0], f[3]), "/"))
		case f[1] != "true" || slices.Contains(standardNamed, f[0]):
			list = append(list, f[0])
		}
	}
	return list
}

// deniedLinks says which of the linked packages are denied, and why.
func deniedLinks(list []string, denied map[string]string) (problems []string) {
	for _, p := range list {
		for path, why := range denied {
			if matches(path+"/...", p) {
				problems = append(problems, fmt.Sprintf("links %s: %s", p, why))
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// TestLinked looks at what is linked in the end, which imports alone do not show.
func TestLinked(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		for _, l := range links {
			list := linked(t, l.pkg, goos)
			for _, p := range l.needs {
				if !slices.Contains(list, p) {
					t.Errorf("%s on %s does not link %s: the list of what it links, or the row, is wrong", l.pkg, goos, p)
				}
			}
			for _, p := range deniedLinks(list, l.denied) {
				t.Errorf("%s on %s %s", l.pkg, goos, p)
			}
		}
		if list := linked(t, "tool", goos); !slices.Equal(slices.Sorted(slices.Values(list)), slices.Sorted(slices.Values(toolLinks))) {
			t.Errorf("tool on %s links %q; want %q only", goos, list, toolLinks)
		}
	}
	if got := deniedLinks([]string{"fmt", "a.b/c", "a.b/c/d", "a.b/cd", ""}, map[string]string{"a.b/c": "why"}); len(got) != 2 {
		t.Errorf("denied: %q", got)
	}
}
