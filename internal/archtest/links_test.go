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
	whySDK = "a provider's form is a few structs of ours; its SDK links the whole API, and is the oracle of tests " +
		"only"
	whyMethod = "a page is JSON or text here"
	whyGRPC   = "whatever links gRPC links all methods of all types: a worker would be 8 MB larger, a third " +
		"(docs/adr/0035)"
	whySends  = "a program picks its own SDK and where its spans go; a library makes spans with the API"
	whyServer = "a fleet's agents and tools connect to a server and are none"
	whyAgent  = "an agent hands in calls and runs none"
	whyMain   = "it is for commands: a library has no flags and no files of settings"
	whyFace   = "it is for the dispatcher's doors"
	whyTest   = "it is for tests"
	whySize   = "a dispatcher is to stay below 45 MB, and this has 3: docs/adr/0046"
	whyTokens = "a dispatcher is to stay below 45 MB, and this has 6: docs/adr/0056"
	whyTables = "it would make a program five megabytes larger or more: docs/adr/0034"
)

// standardNamed are the packages of the standard library that rows of links name.
var standardNamed = []string{"os/exec", "testing", "html/template"}

// denial is what must not be linked for one reason. A path stands for all below it.
type denial struct {
	why   string
	paths []string
}

// light is what no program of ours needs; library is what no package for other programs needs.
var (
	light = []denial{
		{whySDK, []string{
			"github.com/anthropics/anthropic-sdk-go", "github.com/openai/openai-go", "google.golang.org/genai",
		}},
		{whyGRPC, []string{
			"google.golang.org/grpc", "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc",
			"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp",
			"go.opentelemetry.io/otel/exporters/otlp/otlpmetric", "go.opentelemetry.io/proto/otlp/collector",
			"go.opentelemetry.io/contrib",
		}},
		{whyMethod, []string{"html/template"}},
		{whyTables, []string{"github.com/parquet-go", "github.com/apache/arrow-go"}},
		{whyTest, []string{"github.com/evanw/esbuild", "internal/testenv", "testing"}},
	}
	library = append(slices.Clip(light), []denial{
		{whyMain, []string{"go.yaml.in/yaml", "github.com/spf13/cobra", "github.com/spf13/pflag", "internal/manifest",
			"github.com/tetratelabs/wazero", "github.com/tiktoken-go/tokenizer"}},
		{whySends, []string{
			"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/proto",
			"go.opentelemetry.io/otel/metric", "internal/otlp",
		}},
		{whyServer, []string{"github.com/nats-io/nats-server", "github.com/nats-io/jwt", "internal/natsd"}},
		{whyFace, []string{
			"github.com/danielgtaylor/huma", "github.com/modelcontextprotocol/go-sdk", "github.com/prometheus",
			"google.golang.org/protobuf",
		}},
		{"it orders calls, and nobody else does", []string{"internal/dispatcher"}},
	}...)
)

// links says what a package must not link, itself or through others. Direct imports say little: one file imports a
// facade, and the facade everything.
var links = []struct {
	pkg    string
	needs  []string // it links these: the positive control
	denied []denial
}{
	{"client", []string{"github.com/nats-io/nats.go/jetstream", "internal/provider/anthropic", "internal/broker"},
		append(slices.Clip(library), denial{whyAgent, []string{
			"gvisor.dev/gvisor", "mvdan.cc/sh", "github.com/sony/gobreaker", "os/exec",
			"internal/pipeline", "internal/sandbox", "internal/builtin", "internal/worker", "go.opentelemetry.io",
		}})},
	{"worker", []string{"github.com/nats-io/nats.go/jetstream", "internal/pipeline", "internal/worker"}, library},
	{"cmd/dispatcher", []string{"internal/dispatcher", "github.com/nats-io/nats-server/v2/server"},
		append(slices.Clip(light), denial{whySize, []string{"github.com/tetratelabs/wazero"}},
			denial{whyTokens, []string{"github.com/tiktoken-go/tokenizer"}})},
	{"cmd/worker", []string{"internal/worker", "internal/manifest", "github.com/tetratelabs/wazero",
		"github.com/tiktoken-go/tokenizer/codec"}, light},
	{"cmd/toolyard", []string{"internal/dispatcher", "internal/worker", "github.com/nats-io/nats-server/v2/server"},
		light},
}

// toolLinks is all that package tool links beside the standard library: an author's tests build in a second.
var toolLinks = []string{"", "tool", "github.com/google/jsonschema-go/jsonschema"}

// linked are the packages outside the standard library that a package links on a system, and those of the standard
// library that a row of links names. This module's have their path below its root.
func linked(t *testing.T, pkg, goos string) (list []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{.ImportPath}} {{.Standard}} {{with .Module}}{{.Main}} {{.Path}}{{end}}", "./"+pkg)
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
func deniedLinks(list []string, denied []denial) (problems []string) {
	for _, p := range list {
		for _, d := range denied {
			for _, path := range d.paths {
				if matches(path+"/...", p) {
					problems = append(problems, fmt.Sprintf("links %s: %s", p, d.why))
				}
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
					t.Errorf("%s on %s does not link %s: the list of what it links, or the row, is wrong", l.pkg, goos,
						p)
				}
			}
			for _, p := range deniedLinks(list, l.denied) {
				t.Errorf("%s on %s %s", l.pkg, goos, p)
			}
		}
		if list := linked(t, "tool", goos); !slices.Equal(slices.Sorted(slices.Values(list)),
			slices.Sorted(slices.Values(toolLinks))) {
			t.Errorf("tool on %s links %q; want %q only", goos, list, toolLinks)
		}
	}
	got := deniedLinks([]string{"fmt", "a.b/c", "a.b/c/d", "a.b/cd", ""}, []denial{{"why", []string{"a.b/c"}}})
	if want := []string{"links a.b/c/d: why", "links a.b/c: why"}; !slices.Equal(got, want) {
		t.Errorf("denied: %q, want %q", got, want)
	}
}

// maxDispatcher is how large the program dispatcher may be, as "make build" builds it.
const maxDispatcher = 45_000_000

// byName are the functions of a program that call methods by a name that only they know, from the edges that the
// linker prints of what it keeps. Each comes with who needs it. As soon as there is one, the linker keeps every
// exported method of every type that a value of an interface may have.
func byName(edges string) (found []string) {
	for line := range strings.Lines(edges) {
		from, to, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if name, marked := strings.CutSuffix(to, " <ReflectMethod>"); ok && marked {
			from, _, _ = strings.Cut(from, " <")
			found = append(found, name+", which "+from+" needs")
		}
	}
	return found
}

// TestMethodsAreLeftOut holds what keeps our programs small: the linker leaves out methods that nobody calls.
func TestMethodsAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"dispatcher", "worker", "toolyard"} {
		program := filepath.Join(dir, name)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "-ldflags",
			"-s -w -dumpdep", "./cmd/"+name)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "GOWORK=off")
		edges, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go build ./cmd/%s: %v\n%s", name, err, edges[max(0, len(edges)-4096):])
		}
		if !strings.Contains(string(edges), "main.main -> ") {
			t.Fatalf("the linker names nothing that main.main of %s needs", name)
		}
		if found := byName(string(edges)); len(found) > 0 {
			t.Errorf("%s has %d functions that call methods by name, so all methods are linked (docs/adr/0070). The first: %s",
				name, len(found), found[0])
		}
		info, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		if name == "dispatcher" && info.Size() > maxDispatcher {
			t.Errorf("%s has %d bytes; want %d at most", name, info.Size(), maxDispatcher)
		}
	}
	got := byName("a.b -> a.c\na.b <UsedInIface> -> text/template.(*state).evalField <ReflectMethod>\nx\n")
	if want := []string{"text/template.(*state).evalField, which a.b needs"}; !slices.Equal(got, want) {
		t.Errorf("by name: %q, want %q", got, want)
	}
}
