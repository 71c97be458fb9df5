package builtin

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/tool"
)

// The limits of run_code.
const (
	// MaxScripts is how many scripts a worker runs at a time. They take no slots of the classes: the calls that they
	// wait for do.
	MaxScripts = 4
	// MaxScriptBytes is how long a script is.
	MaxScriptBytes = 256 << 10
	// DefaultScriptTimeout and MaxScriptTimeout bound a script with the calls that it waits for.
	DefaultScriptTimeout = 2 * time.Minute
	MaxScriptTimeout     = 10 * time.Minute
)

// The parts of a script's sandbox that call tools. They need nothing but the interpreter, and for bash cat.
var (
	//go:embed run_code.py
	pythonModule string
	//go:embed run_code.sh
	bashFunctions string
)

// The files of a script, below [sandbox.SecretsDir]: nobody but the script sees them.
const (
	scriptFile = "script"
	moduleFile = "toolyard.py"
	shellFile  = "tool.sh"
)

// language is an interpreter of scripts.
type language struct {
	argv []string
	env  map[string]string
}

var languages = map[string]language{
	"python": {[]string{"python3", "-B", sandbox.SecretsDir + "/" + scriptFile},
		map[string]string{"PYTHONPATH": sandbox.SecretsDir, "PYTHONUNBUFFERED": "1"}},
	"bash": {[]string{"bash", sandbox.SecretsDir + "/" + scriptFile},
		map[string]string{"BASH_ENV": sandbox.SecretsDir + "/" + shellFile}},
}

type runCodeInput struct {
	Code      string `json:"code"`
	Language  string `json:"language"`
	TimeoutMS *whole `json:"timeout_ms"`
}

// runCodeTool runs scripts in a sandbox without a workspace and without a network.
type runCodeTool struct {
	box    sandbox.Sandbox
	policy sandbox.Policy
}

// runCode uses no workspace, so that a script holds no ticket that its calls would wait for.
func runCode(box sandbox.Sandbox, policy sandbox.Policy) (tool.Tool, error) {
	policy.Network = sandbox.Network{}
	r := &runCodeTool{box: box, policy: policy}
	no := false
	return define(tool.Declaration{
		Name: toolyard.RunCodeTool,
		Description: "Runs a script that calls your other tools, and gives what it prints. Use it for many calls " +
			"whose outputs you need not read in full: to search, filter, count and compare. " +
			"In Python: from toolyard import call, parallel; text = call(\"read_file\", file_path=\"a.go\"); " +
			"a, b = parallel((\"grep\", {\"pattern\": \"x\"}), (\"glob\", {\"pattern\": \"*.go\"})). " +
			"A call that fails raises toolyard.ToolError, which has a code; parallel returns it instead. " +
			"In bash: text=$(tool read_file '{\"file_path\": \"a.go\"}'). " +
			"The script has no files of the workspace and no network: it reaches both by tools alone. " +
			"Each of its calls needs the permission that it would need as one of yours.",
		InputSchema: object(
			text("code", "The script.").required(),
			text("language", "Its language: python or bash.").withDefault("python"),
			number("timeout_ms", 1, MaxScriptTimeout.Milliseconds(),
				"After how many milliseconds to stop the script, with the calls that it waits for.").
				withDefault(DefaultScriptTimeout.Milliseconds()),
		),
		Class:          tool.ClassRule{Static: toolyard.Unsafe},
		Execution:      tool.InSandbox,
		UsesWorkspace:  &no,
		MaxInFlight:    MaxScripts,
		Interrupt:      tool.Cancel,
		TimeoutMS:      MaxScriptTimeout.Milliseconds(),
		AbortsSiblings: &no,

		MaxResultSizeChars: MaxBashChars,
	}, r.check, r.run)
}

// check validates the values, and checks whether this worker can isolate scripts.
func (r *runCodeTool) check(ctx context.Context, _ tool.Env, in runCodeInput) error {
	_, known := languages[in.language()]
	switch {
	case strings.TrimSpace(in.Code) == "":
		return tool.Invalid("code is empty; give a script")
	case len(in.Code) > MaxScriptBytes:
		return tool.Invalid("code is %d bytes long; it has at most %d", len(in.Code), MaxScriptBytes)
	case !known:
		return tool.Invalid("language is %q; use python or bash", in.Language)
	}
	if _, err := in.timeout(); err != nil {
		return err
	}
	if _, err := r.box.Probe(ctx); err != nil {
		return notIsolated(err)
	}
	return nil
}

func (in *runCodeInput) language() string {
	if in.Language == "" {
		return "python"
	}
	return in.Language
}

func (in *runCodeInput) timeout() (time.Duration, error) {
	n, err := in.TimeoutMS.between("timeout_ms", DefaultScriptTimeout.Milliseconds(), 1,
		MaxScriptTimeout.Milliseconds())
	return time.Duration(n) * time.Millisecond, err
}

// run runs the script. Its calls end with it.
func (r *runCodeTool) run(ctx context.Context, env tool.Env, in runCodeInput) (string, error) {
	if err := r.check(ctx, env, in); err != nil {
		return "", err
	}
	limit, err := in.timeout()
	if err != nil {
		return "", err
	}
	if env.Call == nil {
		return "", tool.SetupRequired("this worker cannot call tools for a script")
	}
	if env.CommitPoint != nil {
		if err := env.CommitPoint(); err != nil {
			return "", err
		}
	}
	lang, port := languages[in.language()], toolPort{ctx: ctx, env: env}
	p := r.policy
	p.Limits.Wall, p.Serve = limit, func(conn net.Conn) { port.answer(conn) }
	p.Env = lang.with(p.Env)
	fill := strings.NewReplacer("@PORT@", strconv.Itoa(sandbox.ServePort),
		"@AT_ONCE@", strconv.Itoa(submission.MaxChildrenAtOnce))
	p.Secrets = []sandbox.Secret{{Name: scriptFile, Content: []byte(in.Code)},
		{Name: moduleFile, Content: []byte(fill.Replace(pythonModule))},
		{Name: shellFile, Content: []byte(fill.Replace(bashFunctions))}}
	out := output{tell: env.Progress}
	res, err := r.box.Run(ctx, p, sandbox.Command{Argv: lang.argv}, sandbox.Streams{Stdout: &out, Stderr: &out})
	switch {
	case errors.Is(err, sandbox.ErrNotStarted) && ctx.Err() == nil:
		return "", &tool.Error{Code: toolyard.SetupRequired, Err: err, Message: fmt.Sprintf(
			"this worker has no %s, so it runs no script in %s; try another language, or make the calls one by one",
			lang.argv[0], in.language())}
	case errors.Is(err, sandbox.ErrNoPort):
		return "", &tool.Error{Code: toolyard.SetupRequired, Err: err,
			Message: "this worker's sandbox has no way from a script to tools; only those of Linux have one"}
	case err != nil:
		return "", refused(ctx, err)
	}
	text := out.String()
	return Said(env, res, text), CommandEnded(ctx, res, p.Limits, limit, text)
}

// with is an environment with the variables of a language beside those of the operator.
func (l language) with(env map[string]string) map[string]string {
	out := make(map[string]string, len(env)+len(l.env))
	for _, from := range []map[string]string{env, l.env} {
		for name, value := range from {
			out[name] = value
		}
	}
	return out
}
