package archtest

// layer is a package's height. An import goes to a lower layer, or stands in sameLayer.
type layer int

const (
	vocabulary layer = iota
	values
	deciders
	drivers
	shells
	wiring
	outside // support for tests and readers: imports anything, and only tests and its like import it
)

// layerNotes are the words for the layers, as the picture in ARCHITECTURE.md shows them.
var layerNotes = [...]struct{ name, is string }{
	vocabulary: {"vocabulary", "the words of the project; imports nothing of ours. Pure"},
	values:     {"values", "typed data and its encodings. Pure"},
	deciders:   {"deciders", "decide what happens next, from what they are given. Pure"},
	drivers:    {"drivers", "one outside thing each: NATS, processes, files, HTTP"},
	shells:     {"IO shells", "run the decisions against the drivers"},
	wiring:     {"wiring", "flags, configuration, and who meets whom"},
	outside:    {"outside", "tests, examples and their support"},
}

// lastPure is the highest layer whose packages touch no clock, network, file, goroutine or global randomness: what
// they decide depends on their arguments alone, so that every run can be repeated from its inputs.
const lastPure = deciders

// packages gives every package its layer. A path that ends in "/..." stands for all below it.
var packages = []struct {
	path  string // below the module's root; "" is the root itself
	layer layer
	why   string
}{
	{"", vocabulary, "what agents hand in and get back: others' programs compile against it"},

	{"internal/version", vocabulary, "the version of what is written, and of the build"},
	{"internal/clip", vocabulary, "texts, cut between characters"},

	{"tool", values, "a tool author's view: declarations and typed handlers"},
	{"internal/access", values, "who may do what on NATS: principals and grants"},
	{"internal/protect", values, "the list of protected places: what runs or is obeyed by itself in a workspace"},
	{"internal/submission", values, "what makes the calls of a batch right"},
	{"internal/traceparent", values, "the W3C trace context of a batch, as text"},
	{"internal/suggest", values, "what was probably meant by a name that is not known"},
	{"internal/events", values, "event types, typed data to CloudEvent and back"},
	{"internal/provider", values, "wire forms of the model providers, behind one door"},
	{"internal/provider/anthropic", values, "Anthropic Messages"},
	{"internal/provider/openai", values, "OpenAI Responses"},
	{"internal/provider/openaichat", values, "OpenAI Chat Completions"},
	{"internal/provider/gemini", values, "Gemini content"},
	{"internal/provider/native", values, "our own form"},
	{"internal/provider/answer", values, "a batch's answer in words, the same for every provider"},
	{"internal/provider/mcp", values, "tools as MCP lists them"},
	{"internal/provider/definition", values, "a tool in words, the same for every provider"},
	{"internal/provider/lower", values, "JSON Schema to what a provider takes of it"},
	{"internal/provider/toolname", values, "names that a provider takes, and back"},
	{"internal/provider/strictjson", values, "reading JSON without guessing, the same for every provider"},
	{"internal/provider/eventstream", values,
		"a model's stream, and the calls in it that are not whole yet, the same for every provider"},
	{"internal/sse", values, "server-sent events"},
	{"internal/parquet", values, "tables in the Parquet format"},
	{"internal/pattern", values, "names that end in *"},
	{"internal/repair", values, "JSON as models write it"},
	{"internal/tokens", values, "how many tokens a text has"},

	{"internal/admission", deciders, "which batch runs next, and in which lane its calls queue"},
	{"internal/cache", deciders, "which calls an earlier output answers"},
	{"internal/outcome", deciders, "what may be said of a call's effects"},
	{"internal/presence", deciders, "whether a worker that is not heard of may still act"},
	{"internal/batch", deciders, "one batch as a state machine: events in, effects out"},
	{"internal/replay", deciders, "a batch's log, read again: checks and timeline"},
	{"internal/history", deciders, "a batch's log as rows of tables"},
	{"internal/archive", deciders, "the form of archived logs, and which step of archiving comes next"},
	{"internal/report", deciders, "many logs, added up"},
	{"internal/ticket", deciders, "the queue of a workspace"},
	{"internal/shard", deciders, "which set of streams has a batch or a workspace's queue, while their number grows"},
	{"internal/partition", deciders, "calls and classes to groups"},
	{"internal/registry", deciders, "surfaces, aliases, deferral"},
	{"internal/catalog", deciders, "which tools there are for a workspace, from what workers offer"},
	{"internal/policy", deciders, "permission rules and modes"},
	{"internal/shell", deciders, "command parsing for class and policy"},
	{"internal/schema", deciders, "JSON Schema on inputs"},
	{"internal/elicit", deciders, "which questions of a running tool a person is asked, and which answers fit"},
	{"internal/redact", deciders, "secrets out of texts"},
	{"internal/scan", deciders, "what is looked for in outputs from outside, and in inputs before they are stored"},
	{"internal/display", deciders, "a call's input in lines for the person who decides about it"},
	{"internal/manifest", deciders, "files of tools that are not Go: read, checked, and their templates filled"},

	{"internal/broker", drivers, "what shells know of the store: ports and words"},
	{"internal/broker/natsbroker", drivers, "the ports on JetStream: appends, queues, tickets"},
	{"internal/follow", drivers, "reading what is stored, for all who follow it in one process"},
	{"internal/recall", drivers, "reading the logs of many batches, for reports and exports"},
	{"internal/approval", drivers, "what a person may decide about a call that waits"},
	{"internal/lock", drivers, "workspace locks: places in the wait queues that NATS stores"},
	{"internal/quota", drivers,
		"how much of a kind is under way, in all and for each agent; it is shared by goroutines"},
	{"internal/failpoint", drivers, "where the fault tests kill or stop a process; empty without its build tag"},
	{"internal/audit", drivers, "who did what, in a file"},
	{"internal/gate", drivers, "a lock that may be held while the network is waited for"},
	{"internal/crew", drivers, "goroutines that run one thing after the other"},
	{"internal/heap", drivers, "how far the heap grows between two garbage collections"},
	{"internal/pause", drivers, "waiting for a time to pass, unless a context ends; what pause a server asks for"},
	{"internal/metrics", drivers, "counters for Prometheus"},
	{"internal/tracing", drivers, "spans of batches and calls, made with OpenTelemetry's API"},
	{"internal/otlp", drivers, "spans and metrics to a collector, over HTTP"},
	{"internal/natsd", drivers, "the embedded nats-server"},
	{"internal/durable", drivers, "names that survive a power loss"},
	{"internal/suspend", drivers, "a clock that goes on while the machine is suspended"},
	{"internal/builtin", drivers, "the built-in tools: files, processes, HTTP"},
	{"internal/sandbox", drivers, "isolated processes"},
	{"internal/sandbox/stage", drivers,
		"the first process inside a sandbox, which this program becomes when it is executed again"},
	{"internal/place", drivers,
		"the directories of workspaces, held, and which places in them a path means, its links followed"},
	{"internal/hooks", drivers, "commands and requests around a call"},
	{"internal/breaker", drivers, "circuit breakers: they have a clock"},
	{"internal/command", drivers, "declared commands as tools"},
	{"internal/endpoint", drivers, "declared HTTP endpoints as tools"},
	{"internal/wasm", drivers, "declared WebAssembly modules as tools: a virtual machine"},
	{"internal/mcp", drivers, "what MCP's two sides share"},
	{"internal/mcp/toolset", drivers, "an MCP server's tools as ours"},
	{"internal/background", drivers, "the tools of background calls: they ask dispatchers, and wait"},
	{"internal/shells", drivers, "what shells remember from command to command: files"},
	{"internal/snapshot", drivers, "what workspaces were before calls changed them: files"},
	{"internal/pipeline", drivers, "the twelve phases; execute has deadlines and goroutines"},

	{"internal/dispatcher", shells, "runs internal/batch against the broker"},
	{"internal/worker", shells, "runs internal/pipeline against the broker"},
	{"internal/api", shells, "HTTP in front of the broker"},
	{"internal/mcp/server", shells, "MCP in front of the broker"},
	{"internal/console", shells, "the files of the web console, over HTTP"},
	{"internal/relay", shells, "an HTTP service that decides about calls, in front of the client"},
	{"client", shells, "an agent's side, in Go"},
	{"worker", shells, "a tool author's side, in Go: it runs internal/worker with a program's own tools"},
	{"tool/tooltest", shells, "a tool author's tests: it runs internal/pipeline without a broker"},

	{"cmd/...", wiring, "the mains"},
	{"deploy/...", wiring, "what only the images of deploy have in them: secrets and health checks"},

	{"internal/archtest", outside, "this package"},
	{"internal/provider/eventstream/streamtest", outside, "responses of models for tests of streams"},
	{"internal/broker/membroker", outside, "a NATS server with JetStream in memory, for simulations and fast tests"},
	{"internal/broker/brokertest", outside, "how a NATS server behaves, as cases for the real one and membroker"},
	{"internal/testenv", outside, "servers and pools for tests"},
	{"internal/testenv/...", outside, "what else tests stand on: disks that they can fill, and that lose power or hang"},
	{"examples/...", outside, "programs to read and copy"},
	{"test/...", outside, "tests of several packages, or of whole processes, together"},
}

// sameLayer are the only imports between packages of one layer. "/..." works on both sides.
var sameLayer = []struct{ from, to, why string }{
	{"internal/provider", "internal/provider/...", "it picks the leaf"},
	{"internal/provider/...", "internal/provider/answer", "what a result says does not depend on who asked"},
	{"internal/provider/...", "internal/provider/strictjson", "every form is read with the same limits"},
	{"internal/provider/...", "internal/provider/eventstream", "every stream is read with the same limits"},
	{"internal/provider/eventstream", "internal/sse", "events are read in one place"},
	{"internal/provider/...", "internal/provider/definition", "what a tool is does not depend on who is told"},
	{"internal/provider/...", "internal/provider/lower", "each provider takes its own part of a schema"},
	{"internal/provider", "tool", "definitions are made of declarations"},
	{"internal/provider/definition", "tool", "hints are derived from declarations"},
	{"internal/provider/...", "internal/suggest", "a wrong field is answered with the right one"},
	{"internal/repair", "internal/provider/strictjson", "what is mended must be what others would take"},
	{"internal/events", "tool", "a worker's entry in the registry carries its tools' declarations"},
	{"internal/batch", "internal/partition", "the fold of planned calls into groups"},
	{"internal/batch", "internal/ticket", "a batch holds and waits for tickets"},
	{"internal/replay", "internal/batch", "a replay is the same fold"},
	{"internal/history", "internal/batch", "a row says what the same fold says"},
	{"internal/report", "internal/batch", "a report says what the same fold says"},
	{"internal/report", "internal/policy", "what would spare a question is a rule"},
	{"internal/batch", "internal/outcome", "owners and workers say the same of a call's effects"},
	{"internal/registry", "internal/schema", "a surface refuses tools whose schema does not compile"},
	{"internal/registry", "internal/shell", "a classification rule names the shell rule for a command field"},
	{"internal/catalog", "internal/registry", "the tools of several workers make one registry"},
	{"internal/elicit", "internal/schema", "a form is a JSON Schema, and an answer fits it or not"},
	{"internal/display", "internal/schema", "what is shown is what was parsed, and its hash says which input that is"},
	{"internal/scan", "internal/display", "what a screen does not show is found by the rule that shows it to people"},
	{"internal/scan", "internal/redact", "what takes secrets out leaves marks, which are counted"},
	{"internal/scan", "internal/schema", "a field is named by its place in what was parsed"},
	{"internal/display", "internal/redact", "an input with a secret taken out has another hash"},
	{"internal/policy", "internal/shell", "a rule like bash(git status:*) matches parsed commands"},
	{"internal/tracing", "internal/broker", "a link leads to the batch that its origin names"},
	{"internal/lock", "internal/broker", "the queues are stored there"},
	{"internal/broker/natsbroker", "internal/broker", "it has the ports"},
	{"internal/approval", "internal/broker", "a decision is an append behind the question"},
	{"internal/broker/natsbroker", "internal/gate", "what one goroutine reads for all is read under a lock"},
	{"internal/broker/natsbroker", "internal/failpoint",
		"a fault between two publishes happens there and nowhere else"},
	{"internal/natsd", "internal/durable", "keys must be there as long as what relies on them"},
	{"internal/builtin", "internal/durable", "a file that was replaced has its name"},
	{"internal/builtin", "internal/place", "files are opened through the held directory"},
	{"internal/sandbox", "internal/place", "a command's workspace is the held directory"},
	{"internal/pipeline", "internal/place", "a call gets the held directory of its workspace"},
	{"internal/background", "internal/broker", "the tools ask dispatchers in the broker's words"},
	{"internal/background", "internal/pause", "a call that is waited for is looked at again later"},
	{"internal/snapshot", "internal/place", "a workspace is the held directory"},
	{"internal/snapshot", "internal/durable", "a snapshot has its name when it lasts"},
	{"internal/snapshot", "internal/pause", "a lock that another has is waited for"},
	{"internal/snapshot", "internal/failpoint", "a fault in the middle of a snapshot happens there and nowhere else"},
	{"internal/pipeline", "internal/breaker", "the schedule phase asks the breaker"},
	{"internal/builtin", "internal/sandbox", "bash runs in it"},
	{"internal/builtin", "internal/place", "file tools show nothing that is hidden"},
	{"internal/builtin", "internal/shells", "bash goes on with what its shell remembers"},
	{"internal/builtin", "internal/failpoint", "a fault behind a shell's command happens there and nowhere else"},
	{"internal/shells", "internal/pause", "a lock that another has is waited for"},
	{"internal/sandbox", "internal/place", "commands find nothing that is hidden"},
	{"internal/pipeline", "internal/sandbox", "a result is stamped with what stood around what ran"},
	{"internal/sandbox", "internal/sandbox/stage", "the plan is what the stage does"},
	{"internal/hooks", "internal/sandbox", "command hooks start through its launcher"},
	{"internal/hooks", "internal/place", "a rule in an if is about places, as permission rules are"},
	{"internal/hooks", "internal/pipeline", "it makes what the pipeline asks for, in the pipeline's words"},
	{"internal/manifest", "internal/schema", "a file is checked against its schema, and so are the schemas in it"},
	{"internal/command", "internal/sandbox", "commands run in it"},
	{"internal/command", "internal/place", "a command's workspace is the held directory"},
	{"internal/command", "internal/builtin", "how a command's end reads is decided once"},
	{"internal/wasm", "internal/builtin", "a module sees of a workspace what the built-in tools see"},
	{"internal/wasm", "internal/command", "what a program gets and writes reads the same, wherever it runs"},
	{"internal/wasm", "internal/pause", "a module that sleeps ends with its call"},
	{"internal/wasm", "internal/sandbox", "a result is stamped with what stood around what ran"},
	{"internal/mcp/toolset", "internal/sandbox", "MCP servers on stdio start through its launcher"},
	{"internal/builtin", "internal/pause", "what pause a server asks for is read in one place"},
	{"internal/endpoint", "internal/pause", "the same"},
	{"internal/mcp/toolset", "internal/pause", "the wait between two looks at a task ends with its call"},
	{"internal/mcp/...", "internal/mcp", "the two sides share it"},
	{"worker", "internal/worker", "it is the public face of it"},
	{"tool/tooltest", "worker", "its options name modes as a worker's do"},
	{"tool/tooltest", "internal/worker", "rules decide in a test as they do in a worker"},
	{"internal/api", "client", "a request asks for what a Go agent asks for"},
	{"internal/mcp/server", "client", "a call asks for what a Go agent asks for"},
	{"internal/relay", "client", "an answer decides as a person's command does"},
	{"internal/follow", "internal/broker", "what is followed is stored there"},
	{"internal/recall", "internal/broker", "history is stored there"},
	{"cmd/...", "cmd/internal/cli", "all commands read flags, environment and files alike"},
	{"cmd/...", "cmd/internal/dispatchercmd", "two programs have the dispatcher's commands"},
	{"cmd/...", "cmd/internal/workercmd", "two programs have the worker's commands"},
}

// strangers never import each other, in tests neither.
var strangers = []struct{ a, b, why string }{
	{"internal/dispatcher", "internal/worker",
		"they meet only through events: either can be killed, replaced or run elsewhere; what needs both is in test/"},
}

// narrow are imports of which only the named symbols are used.
var narrow = []struct {
	path, imports string
	names         []string
	why           string
}{
	{"internal/api", "internal/broker/...", []string{"Room", "NoRoomError"},
		"requests act through package client and read through internal/follow; only the dispatcher of the same process " +
			"knows how full its disk is"},
	{"internal/mcp/server", "internal/broker/...", nil, "calls act through package client"},
}

// reserved are modules that only the named packages import: a heavy dependency stays in one leaf, and can be
// replaced there. Outside packages are free; tests are free unless tests is set.
var reserved = []struct {
	module string // and all below it
	by     []string
	tests  bool
	why    string
}{
	{"github.com/nats-io/nats.go", []string{"internal/broker", "internal/broker/...", "internal/natsd", "client",
		"worker", "cmd/..."}, false,
		"natsbroker alone knows streams, subjects, consumers and headers; client and mains only connect"},
	{"github.com/toolyard/toolyard/internal/broker/natsbroker", []string{"client", "worker", "cmd/...",
		"deploy/secrets"}, false,
		"shells know ports; who connects picks what is behind them"},
	{"github.com/nats-io/nats-server", []string{"internal/natsd"}, true,
		"a fleet runs without it; tests get servers from internal/natsd and internal/testenv"},
	{"github.com/cloudevents/sdk-go", []string{"internal/events", "internal/broker/natsbroker"}, false,
		"the form of an event is decided in one place and bound to NATS in another"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"internal/mcp/..."}, false,
		"servers and clients are in one place; a list of tools needs no SDK"},
	{"github.com/santhosh-tekuri/jsonschema", []string{"internal/schema"}, false,
		"its messages are ours to word, in one place"},
	{"github.com/dlclark/regexp2", []string{"internal/schema"}, false, "whoever matches with it must bound its time"},
	{"mvdan.cc/sh", []string{"internal/shell"}, false, "one reading of a command, for class and policy alike"},
	{"github.com/sony/gobreaker", []string{"internal/breaker"}, false, "others see our breaker's states"},
	{"github.com/klauspost/compress", []string{"internal/parquet", "internal/archive"}, false,
		"what is compressed is a form of its own"},
	{"github.com/tetratelabs/wazero", []string{"internal/wasm"}, false, "what a module may do is decided in one place"},
	{"github.com/tiktoken-go/tokenizer", []string{"internal/tokens"}, false,
		"which vocabulary counts is decided in one place"},
	{"gvisor.dev/gvisor", []string{"internal/sandbox"}, false, "the system call filter is built in one place"},
	{"github.com/coreos/go-oidc", []string{"internal/api"}, false, "who asks over HTTP is found out in one place"},
	{"github.com/danielgtaylor/huma", []string{"internal/api"}, false, "how HTTP is described is decided in one place"},
	{"github.com/prometheus", []string{"internal/metrics"}, false,
		"what is counted, and under which name, is decided in one place"},
	{"go.opentelemetry.io/otel/trace", []string{"internal/tracing", "internal/otlp", "worker"}, false,
		"which spans there are is decided in one place, and how they are sent in another"},
	{"go.opentelemetry.io/otel/sdk", []string{"internal/otlp"}, false, "whoever runs us decides where spans go"},
	{"go.opentelemetry.io/otel/exporters", []string{"internal/otlp"}, false, "the same"},
	{"go.opentelemetry.io/proto", []string{"internal/otlp", "internal/metrics"}, false,
		"OTLP's form is written where it is sent, and metrics' where they are named"},
	{"github.com/spf13/cobra", []string{"cmd/..."}, false, "flags end in wiring; packages take Options"},
}

// impure are the packages that pure packages do not import.
var impure = map[string]string{
	"os": "files and environment", "os/exec": "processes", "os/signal": "signals", "os/user": "the machine",
	"io/ioutil": "files",
	"syscall":   "the machine", "net": "network", "net/http": "network", "net/rpc": "network", "net/smtp": "network",
	"log":       "a global logger",
	"math/rand": "global randomness", "math/rand/v2": "global randomness", "crypto/rand": "global randomness",
	"github.com/google/uuid": "global randomness",
	"sync":                   "shared state", "sync/atomic": "shared state",
}

// impureAllowed are the exceptions, to the packages above and to the calls below.
var impureAllowed = []struct{ path, imports, why string }{
	{"internal/redact", "sync", "patterns that are compiled when they are first needed: the answer does not depend on it"},
	{"internal/schema", "sync", "a cache of compiled schemas: the answer does not depend on it"},
	{"internal/schema", "time.Now", "a pattern that backtracks has so much time, or any input could stop the check"},
	{"internal/schema", "time.Until", "the same"},
}

// impureCalls are what pure packages do not mention, by import path.
var impureCalls = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "NewTimer", "NewTicker", "Tick", "After", "AfterFunc"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause", "AfterFunc"},
}

// bannedNames say nothing about what is inside, so everything ends up there.
var bannedNames = []string{"util", "utils", "common", "helper", "helpers", "model", "models", "misc"}

// stories are the packages that tell one story: each file's functions call those of the files behind it, never back.
// What a later step finds out reaches an earlier one as a result.
var stories = map[string][]string{
	"internal/dispatcher": {
		"dispatcher.go", "admit.go", "take.go", "drive.go", "rest.go", "observe.go", "background.go",
		"plan.go",
		"park.go", "settle.go", "newer.go", "archive.go", "meter.go", "usage.go", "trace.go", "undo.go", "budgets.go",
		"rates.go", "queue.go", "suspect.go",
		"keep.go", "besides.go", "child.go", "store.go", "workers.go", "rategate.go",
		"planner.go", "outlive.go", "clock.go", "away.go", "failpoints.go", "next.go", "today.go",
	},
	"internal/worker": {
		"worker.go", "reload.go", "pipe.go", "take.go", "together.go", "judge.go", "repair.go", "answers.go",
		"run.go", "meter.go", "trace.go", "drain.go", "message.go", "job.go", "overlay.go", "finish.go",
		"snapshot.go", "claim.go", "register.go", "progress.go", "background.go", "lease.go", "call.go", "chain.go",
		"aborts.go", "slots.go", "isolation.go", "surfaces.go", "children.go", "tools.go", "toolset.go",
		"permission.go",
	},
}

// maxFileLines is what can be read in one sitting. A longer file tells two stories.
const maxFileLines = 700

// notPaths stand in backticks in the documents and only look like paths of the repository.
var notPaths = []string{
	"tools/list", "tools/call", // methods of MCP
}

// foreign are strings that tracked files must not hold: they mean something on one machine only, or break the build of
// whoever uses another registry. They are put together here, or this file would break its own rule.
var foreign = struct{ dirs, hosts []string }{
	dirs: []string{"/" + "work/", "/" + "root/"},
	hosts: []string{"proxy." + "golang.org", "sum." + "golang.org", "goproxy." + "io", "goproxy." + "cn", "registry." +
		"npmjs.org",
		"pypi." + "org", "files." + "pythonhosted.org", "index." + "crates.io", "static." + "crates.io", "deb." +
			"debian.org"},
}

// foreignAllowed are the exceptions, by file and string.
var foreignAllowed = []struct{ file, text, why string }{}
