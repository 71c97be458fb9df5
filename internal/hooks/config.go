package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// Event is when a hook runs.
type Event string

// The events.
const (
	PreToolUse         Event = "PreToolUse"         // before permission
	PostToolUse        Event = "PostToolUse"        // after a tool that succeeded
	PostToolUseFailure Event = "PostToolUseFailure" // after a tool that ran and did not
	PostToolBatch      Event = "PostToolBatch"      // after all calls of a batch have their results
)

var events = []Event{PreToolUse, PostToolUse, PostToolUseFailure, PostToolBatch}

// OnFailure is what happens if a hook breaks.
type OnFailure string

// The values of OnFailure.
const (
	// Block: a hook before the call ends it as hook_failed; one after it ends it as post_hook_failed, and the output is
	// kept.
	Block OnFailure = "block"
	// Continue: the hook is ignored, and the log says so.
	Continue OnFailure = "continue"
	// Withhold, after the call: the output is withheld, as if the hook had asked for it.
	Withhold OnFailure = "withhold"
)

// failureOf is the OnFailure of a hook that names none: a broken hook before a call blocks it, a later one is ignored.
func failureOf(e Event, named OnFailure) (OnFailure, error) {
	switch {
	case named == "" && e == PreToolUse:
		return Block, nil
	case named == "":
		return Continue, nil
	case named == Block || named == Continue:
		return named, nil
	case named == Withhold && (e == PostToolUse || e == PostToolUseFailure):
		return named, nil
	case named == Withhold:
		return "", fmt.Errorf("%q is only for hooks after a call, which have an output to withhold", Withhold)
	}
	return "", fmt.Errorf("%.100q is not known; use %q or %q", named, Block, Continue)
}

// Config has the hooks of a configuration file, and its other settings if it is a settings.json of Claude Code.
type Config struct {
	handlers []handlerConfig
	// Settings are the permissions of a settings.json.
	Settings policy.Settings
	// Env are the variables of a settings.json, for its hooks and for commands.
	Env map[string]string
	// Left lists what in the file does not apply here, for people.
	Left []string
}

// elsewhere are events of Claude Code that do not occur here.
var elsewhere = strings.Fields(`ConfigChange CwdChanged Elicitation ElicitationResult FileChanged InstructionsLoaded Notification
	PermissionDenied PermissionRequest PostCompact PreCompact SessionEnd SessionStart Setup Stop StopFailure SubagentStart SubagentStop
	TaskCompleted TaskCreated TeammateIdle UserPromptExpansion UserPromptSubmit WorktreeCreate WorktreeRemove`)

// handlerConfig is one hook as it was written. Its form has been checked.
type handlerConfig struct {
	event     Event
	place     string // its place in the file, which is its name
	matcher   string
	condition string // its if
	timeout   time.Duration
	onFailure OnFailure

	command string
	args    []string
	exec    bool // run command with args, without a shell
	shell   string

	url         string
	headers     map[string]string
	allowedVars []string

	server, tool string
	toolInput    json.RawMessage
}

// Read reads a configuration: {"hooks": {EVENT: [{"matcher": …, "hooks": [{"type": …, …}]}]}}. Its errors are
// [toolyard.InputError]s that name the place. An unknown field of a hook is an error, since its author relies on it. A
// settings.json of Claude Code is read completely: [Config.Left] lists what does not apply here.
func Read(data []byte) (Config, error) {
	if len(data) > MaxConfigBytes {
		return Config{}, strictjson.Errorf("", "the configuration has %d bytes; at most %d are read", len(data),
			MaxConfigBytes)
	}
	if err := strictjson.Check(data); err != nil {
		return Config{}, err
	}
	doc, err := strictjson.ReadObject("", data)
	if err != nil {
		return Config{}, err
	}
	off, err := doc.OptionalBool("disableAllHooks")
	if err != nil {
		return Config{}, err
	}
	var c Config
	for _, name := range doc.Names() {
		switch name {
		case "hooks", "description", "disableAllHooks", "$schema":
		case "permissions":
			if c.Settings, err = readPermissions(doc); err != nil {
				return Config{}, err
			}
			c.Left = append(c.Left, c.Settings.Left...)
		case "env":
			if err := c.readEnv(doc); err != nil {
				return Config{}, err
			}
		default:
			c.Left = append(c.Left, doc.At(name)+": is not used here")
		}
	}
	if !doc.Given("hooks") && (doc.Given("permissions") || doc.Given("env")) {
		return c, nil
	}
	byEvent, err := doc.Object("hooks")
	if err != nil {
		return Config{}, err
	}
	for _, name := range byEvent.Names() {
		switch {
		case slices.Contains(events, Event(name)):
		case slices.Contains(elsewhere, name):
			c.Left = append(c.Left, byEvent.At(name)+": nothing of this kind happens here")
		default:
			return Config{}, strictjson.Errorf(byEvent.At(name), "is no event here; there are %s", list(events))
		}
	}
	for _, event := range events {
		if !byEvent.Has(string(event)) {
			continue
		}
		groups, err := byEvent.Array(string(event))
		if err != nil {
			return Config{}, err
		}
		for i, raw := range groups {
			group, err := strictjson.ReadObject(strictjson.Item(byEvent.At(string(event)), i), raw)
			if err != nil {
				return Config{}, err
			}
			if err := c.addGroup(event, group); err != nil {
				return Config{}, err
			}
		}
	}
	if len(c.handlers) > MaxHandlers {
		return Config{}, strictjson.Errorf("hooks", "has %d hooks; at most %d are allowed", len(c.handlers),
			MaxHandlers)
	}
	if off {
		c.handlers = nil
	}
	return c, nil
}

// ownVariables begin the names of variables that no file sets.
const ownVariables = "TOOLYARD_"

// readEnv reads the variables of a settings.json.
func (c *Config) readEnv(doc strictjson.Object) error {
	o, err := doc.Object("env")
	if err != nil {
		return err
	}
	c.Env = map[string]string{}
	for _, name := range o.Names() {
		value, err := o.String(name)
		switch {
		case err != nil:
			return err
		case !variable(name):
			return strictjson.Errorf(o.At(name), "is no name of a variable; use letters, digits and _")
		case strings.ContainsRune(value, 0):
			return strictjson.Errorf(o.At(name), "holds a NUL character, which no variable can")
		case strings.HasPrefix(name, ownVariables):
			c.Left = append(c.Left, o.At(name)+": variables of this name are not a file's to set")
		default:
			c.Env[name] = value
		}
	}
	return nil
}

// readPermissions reads the permissions of a settings.json.
func readPermissions(doc strictjson.Object) (out policy.Settings, err error) {
	o, err := doc.Object("permissions")
	if err != nil {
		return out, err
	}
	if out.Home, err = os.UserHomeDir(); err != nil {
		out.Home = "" // a rule that needs it says so
	}
	for _, name := range o.Names() {
		switch name {
		case "allow", "ask", "deny":
			texts, err := o.OptionalStrings(name)
			if err != nil {
				return out, err
			}
			for i, text := range texts {
				if err := out.Add(policy.Behavior(name), strictjson.Item(o.At(name), i), text); err != nil {
					return out, strictjson.Errorf(strictjson.Item(o.At(name), i), "%v", err)
				}
			}
		case "defaultMode":
			mode, err := o.OptionalString(name)
			if err != nil {
				return out, err
			}
			out.SetMode(o.At(name), mode)
		case "disableBypassPermissionsMode":
			value, err := o.OptionalString(name)
			if err != nil {
				return out, err
			}
			out.NoBypass = value == "disable"
		default:
			out.Left = append(out.Left, o.At(name)+": is not used here")
		}
	}
	return out, nil
}

func (c *Config) addGroup(event Event, group strictjson.Object) error {
	if err := only(group, "", "matcher", "hooks"); err != nil {
		return err
	}
	matcher, err := group.OptionalString("matcher")
	if err != nil {
		return err
	}
	if event == PostToolBatch && matcher != "" && matcher != "*" {
		return strictjson.Errorf(group.At("matcher"), "a batch has many tools, so %s takes no matcher", event)
	}
	if _, err := parseMatcher(matcher); err != nil {
		return strictjson.Errorf(group.At("matcher"), "%v", err)
	}
	handlers, err := group.Array("hooks")
	if err != nil {
		return err
	}
	for i, raw := range handlers {
		o, err := strictjson.ReadObject(strictjson.Item(group.At("hooks"), i), raw)
		if err != nil {
			return err
		}
		h, err := readHandler(event, o)
		if err != nil {
			return err
		}
		h.matcher = matcher
		c.handlers = append(c.handlers, h)
	}
	return nil
}

// commonFields are allowed in every hook. statusMessage and once have no effect here.
var commonFields = []string{"type", "if", "timeout", "on_failure", "allowedEnvVars", "statusMessage", "once"}

func readHandler(event Event, o strictjson.Object) (handlerConfig, error) {
	h := handlerConfig{event: event, place: o.Path()}
	bad := func(field, format string, args ...any) (handlerConfig, error) {
		return h, strictjson.Errorf(o.At(field), format, args...)
	}
	kind, err := o.String("type")
	if err != nil {
		return h, err
	}
	var read func(strictjson.Object) error
	switch kind {
	case "command":
		read, err = h.readCommand, only(o, "", append(slices.Clone(commonFields), "command", "args", "shell", "async",
			"asyncRewake")...)
	case "http":
		read, err = h.readHTTP, only(o, "", append(slices.Clone(commonFields), "url", "headers")...)
	case "mcp_tool":
		read, err = h.readMCPTool, only(o, "", append(slices.Clone(commonFields), "server", "tool", "input")...)
	case "prompt", "agent":
		return bad("type", "%q is not supported; there are command, http and mcp_tool", kind)
	default:
		return bad("type", "%s is not known; there are command, http and mcp_tool", strictjson.Quote(kind))
	}
	if err != nil {
		return h, err
	}
	if h.condition, err = o.OptionalString("if"); err != nil {
		return h, err
	}
	if h.condition != "" && event == PostToolBatch {
		return bad("if", "a batch has many calls, so %s takes no if", event)
	}
	if _, err := parseIf(h.condition, nil); h.condition != "" && err != nil {
		return bad("if", "%v", err)
	}
	if h.timeout, err = readTimeout(o); err != nil {
		return h, err
	}
	onFailure, err := o.OptionalString("on_failure")
	if err != nil {
		return h, err
	}
	if h.onFailure, err = failureOf(event, OnFailure(onFailure)); err != nil {
		return bad("on_failure", "%v", err)
	}
	if h.allowedVars, err = o.OptionalStrings("allowedEnvVars"); err != nil {
		return h, err
	}
	for i, name := range h.allowedVars {
		if !variable(name) {
			return h, strictjson.Errorf(strictjson.Item(o.At("allowedEnvVars"), i), "%s is no name of a variable",
				strictjson.Quote(name))
		}
	}
	for _, ignored := range []struct{ field, kind string }{{"statusMessage", "string"}, {"once", "boolean"}} {
		if o.Given(ignored.field) && o.Kind(ignored.field) != ignored.kind {
			return bad(ignored.field, "want %s, got %s", ignored.kind, o.Kind(ignored.field))
		}
	}
	return h, read(o)
}

func (h *handlerConfig) readCommand(o strictjson.Object) (err error) {
	for _, field := range []string{"async", "asyncRewake"} {
		on, err := o.OptionalBool(field)
		if err != nil {
			return err
		}
		if on {
			return strictjson.Errorf(o.At(field), "is not supported: every hook is waited for. Let the command start "+
				"what should go on in a service of its own")
		}
	}
	if h.command, err = o.String("command"); err != nil {
		return err
	}
	if strings.TrimSpace(h.command) == "" || strings.ContainsRune(h.command, 0) {
		return strictjson.Errorf(o.At("command"), "is empty, or has a zero byte")
	}
	if h.args, err = o.OptionalStrings("args"); err != nil {
		return err
	}
	if slices.ContainsFunc(h.args, func(arg string) bool { return strings.ContainsRune(arg, 0) }) {
		return strictjson.Errorf(o.At("args"), "has a zero byte")
	}
	h.exec = o.Given("args")
	shell, err := o.OptionalString("shell")
	if err != nil {
		return err
	}
	switch shell {
	case "":
		h.shell = "sh"
	case "bash", "sh":
		h.shell = shell
	default:
		return strictjson.Errorf(o.At("shell"), "%s is not supported; there are sh and bash", strictjson.Quote(shell))
	}
	return nil
}

func (h *handlerConfig) readHTTP(o strictjson.Object) (err error) {
	if h.url, err = o.String("url"); err != nil {
		return err
	}
	u, err := url.Parse(h.url)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		// The URL may contain a secret, so the error does not show it.
		return strictjson.Errorf(o.At("url"), "is no http or https URL with a host")
	case u.User != nil:
		return strictjson.Errorf(o.At("url"), "has a user; send an Authorization header instead")
	}
	if !o.Given("headers") {
		return nil
	}
	headers, err := o.Object("headers")
	if err != nil {
		return err
	}
	h.headers = map[string]string{}
	for _, name := range headers.Names() {
		if h.headers[name], err = headers.String(name); err != nil {
			return err
		}
		if !headerName(name) || strings.EqualFold(name, "Host") || strings.EqualFold(name, "Content-Length") ||
			strings.EqualFold(name, "Transfer-Encoding") {
			return strictjson.Errorf(headers.At(name), "is no header that can be set")
		}
	}
	return nil
}

// readTimeout reads a number of seconds.
func readTimeout(o strictjson.Object) (time.Duration, error) {
	if !o.Given("timeout") {
		return DefaultTimeout, nil
	}
	if o.Kind("timeout") != "number" {
		return 0, strictjson.Errorf(o.At("timeout"), "want a number of seconds, got %s", o.Kind("timeout"))
	}
	seconds, err := strconv.ParseFloat(string(o.Value("timeout")), 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0.001 || seconds > MaxTimeout.Seconds() {
		return 0, strictjson.Errorf(o.At("timeout"), "%.20s is not a number of seconds up to %.0f", o.Value("timeout"),
			MaxTimeout.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// OfCalls are the events of the file's hooks that happen where calls run.
func (c Config) OfCalls() (names []string) {
	for _, h := range c.handlers {
		if h.event != PostToolBatch {
			names = append(names, string(h.event))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// HeaderVariables are the variables whose values are used in headers. Redactors should know them.
func (c Config) HeaderVariables() (names []string) {
	for _, h := range c.handlers {
		if h.url != "" {
			names = append(names, h.allowedVars...)
		}
	}
	return names
}

// only refuses fields of an object that are not in the list.
func only(o strictjson.Object, hint string, fields ...string) error {
	for _, name := range o.Names() {
		if !slices.Contains(fields, name) {
			if hint != "" {
				hint = "; " + hint
			}
			return strictjson.Errorf(o.At(name), "is not known here; there are %s%s", strings.Join(fields, ", "), hint)
		}
	}
	return nil
}

func list(all []Event) string {
	var names []string
	for _, e := range all {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

func variable(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

func headerName(name string) bool {
	for _, r := range name {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~", r) && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') &&
			(r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// placeError is an error at a place of the configuration.
func placeError(place string, err error) error {
	if input, ok := errors.AsType[*toolyard.InputError](err); ok {
		return input
	}
	return strictjson.Errorf(place, "%v", err)
}
