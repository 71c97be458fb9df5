package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// serverPrefix begins the names of MCP servers' tools, so that no other tool may begin so.
const serverPrefix = "mcp__"

// ToolName is the name under which a server's tool is offered. Permission rules mean all of a server's tools with
// mcp__SERVER__*.
func ToolName(server, name string) string { return serverPrefix + server + "__" + name }

// check finds what a schema cannot say, completes the defaults, and takes templates apart.
func (f *File) check() error {
	var errs []error
	names := map[string]bool{}
	for i := range f.Tools {
		t := &f.Tools[i]
		where := fmt.Sprintf("tools[%d] (%s)", i, t.Name)
		if names[t.Name] {
			errs = append(errs, fmt.Errorf("%s: there are two tools of this name", where))
		}
		names[t.Name] = true
		if err := t.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", where, err))
		}
	}
	servers := map[string]bool{}
	for i := range f.Servers {
		s := &f.Servers[i]
		where := fmt.Sprintf("servers[%d] (%s)", i, s.Name)
		if servers[s.Name] {
			errs = append(errs, fmt.Errorf("%s: there are two servers of this name", where))
		}
		servers[s.Name] = true
		if err := s.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", where, err))
		}
	}
	return errors.Join(errs...)
}

// check is about one tool. Its errors begin with the key.
func (t *Tool) check() error {
	switch {
	case strings.HasPrefix(t.Name, serverPrefix):
		return fmt.Errorf("name: tools whose names begin with %s are those of MCP servers; choose another",
			serverPrefix)
	case t.kinds() != 1:
		return errors.New("command: give the tool exactly one of command, http and wasm")
	}
	if _, err := schema.CompileInput(t.InputSchema); err != nil {
		return fmt.Errorf("input_schema: %w", err)
	}
	if t.OutputSchema != nil {
		if _, err := schema.CompileOutput(t.OutputSchema); err != nil {
			return fmt.Errorf("output_schema: %w", err)
		}
	}
	var in struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(t.InputSchema, &in); err != nil || in.Type != "object" {
		return errors.New(`input_schema.type: write "object"; a call's input is one`)
	}
	known := func(key string, t template) error {
		for _, name := range t.fields() {
			if _, ok := in.Properties[name]; !ok {
				return fmt.Errorf("%s: {%s} is no property of the input schema; its properties are %q; write {{%s}} "+
					"for the text itself",
					key, name, slices.Sorted(maps.Keys(in.Properties)), name)
			}
		}
		return nil
	}
	for key, name := range map[string]string{"specifier.path": t.Specifier.Path, "specifier.url": t.Specifier.URL,
		"specifier.command": t.Specifier.Command, "concurrency_class.shell": t.Class.Shell} {
		if _, ok := in.Properties[name]; name != "" && !ok {
			return fmt.Errorf("%s: %q is no property of the input schema; its properties are %q", key, name,
				slices.Sorted(maps.Keys(in.Properties)))
		}
	}
	integers := map[string]bool{}
	for name, raw := range in.Properties {
		var field struct {
			Type any `json:"type"`
		}
		if json.Unmarshal(raw, &field) == nil && field.Type == "integer" {
			integers[name] = true
		}
	}
	if t.Command != nil {
		t.Execution, t.Command.integers = tool.InSandbox, integers
		return t.Command.check(t, known)
	}
	if t.Class.Shell != "" {
		return errors.New("concurrency_class.shell: is for tools that run a command here; use READ_ONLY, " +
			"WRITE_EXCLUSIVE or UNSAFE")
	}
	if t.Wasm != nil {
		t.Execution, t.Wasm.integers = tool.InWasm, integers
		return t.Wasm.check(t, known)
	}
	t.Execution, t.HTTP.integers = tool.InService, integers
	required := func(name string) bool { return slices.Contains(in.Required, name) }
	return t.HTTP.check(t, known, required)
}

// otherShells read some command lines in another way than Bash: [[ a || b ]] runs b.
var otherShells = map[string]bool{"sh": true, "ash": true, "busybox": true, "csh": true, "dash": true, "fish": true,
	"ksh": true, "mksh": true, "nu": true, "osh": true, "pwsh": true, "tcsh": true, "toybox": true, "xonsh": true,
	"yash": true, "zsh": true}

func (c *Command) check(t *Tool, known func(string, template) error) error {
	fields := 0
	for i, arg := range c.Argv {
		key := fmt.Sprintf("command.argv[%d]", i)
		n, err := c.add(key, arg, known)
		if i == 0 && (n > 0 || arg == "") {
			return fmt.Errorf("%s: the program is not the model's to choose; write its name or path", key)
		}
		if err != nil {
			return err
		}
		fields += n
		if name := path.Base(arg); t.Class.Shell != "" && otherShells[name] {
			return fmt.Errorf("%s: the line in %q is judged as Bash reads it, and %s reads some lines in another way; "+
				"run it with bash, or write UNSAFE for concurrency_class", key, t.Class.Shell, name)
		}
	}
	var err error
	if c.Stdin, err = checkStreams("command", t, c.Stdin, c.Output, fields); err != nil {
		return err
	}
	if err := checkEnv("command", c.Env); err != nil {
		return err
	}
	for i, place := range c.Network {
		if host, port, ok := strings.Cut(place, ":"); !ok || host == "" || port == "" {
			return fmt.Errorf("command.network[%d]: %q is no place; write host:port", i, place)
		}
	}
	return nil
}

// kinds is how many kinds of tool are declared at once.
func (t *Tool) kinds() (n int) {
	for _, set := range []bool{t.Command != nil, t.HTTP != nil, t.Wasm != nil} {
		if set {
			n++
		}
	}
	return n
}

// checkStreams is about what a program reads and writes. It returns what it reads; fields is the number of fields in
// its arguments.
func checkStreams(kind string, t *Tool, stdin, output string, fields int) (string, error) {
	if t.OutputSchema != nil && output != "json" {
		return "", fmt.Errorf("%s.output: a tool with an output_schema writes json", kind)
	}
	if stdin == "" && fields == 0 {
		stdin = "json"
	}
	return stdin, nil
}

// checkEnv is about a program's environment.
func checkEnv(kind string, env map[string]string) error {
	for name, value := range env {
		if !variable.MatchString(name) || strings.HasPrefix(name, "TOOLYARD_") {
			return fmt.Errorf("%s.env.%s: is no name that can be given; use letters, digits and _, and not "+
				"TOOLYARD_ in front", kind, name)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("%s.env.%s: holds a NUL character", kind, name)
		}
	}
	return nil
}

func (w *Wasm) check(t *Tool, known func(string, template) error) error {
	if len(t.Credentials) > 0 {
		return errors.New("credentials: a module gets none, as it has no network to use them on; declare a command " +
			"or an HTTP endpoint")
	}
	fields := 0
	for i, arg := range w.Args {
		n, err := w.add(fmt.Sprintf("wasm.args[%d]", i), arg, known)
		if err != nil {
			return err
		}
		fields += n
	}
	var err error
	if w.Stdin, err = checkStreams("wasm", t, w.Stdin, w.Output, fields); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.Read)) {
		switch {
		case !strings.HasPrefix(name, "/") || path.Clean(name) != name || strings.ContainsRune(name, 0):
			return fmt.Errorf("wasm.read: the module's name %q of a directory is no clean absolute path, such as /data",
				name)
		case name == "/" && t.NeedsWorkspace():
			return errors.New("wasm.read: / is the workspace; choose another name, or set uses_workspace: false")
		}
	}
	return checkEnv("wasm", w.Env)
}

var (
	variable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	credential = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
)

func (h *HTTP) check(t *Tool, known func(string, template) error, required func(string) bool) error {
	if h.Method == "" {
		h.Method = "POST"
	}
	if h.Body == "" {
		h.Body = "none"
		if h.Method != "GET" && h.Method != "DELETE" {
			h.Body = "json"
		}
	}
	if h.Body == "json" && h.Method == "GET" {
		return errors.New("http.body: a GET has none; use POST, or body: none")
	}
	var err error
	if h.url, err = parseURL(h.URL); err != nil {
		return fmt.Errorf("http.url: %w", err)
	}
	for _, segment := range h.url.segments {
		if err := known("http.url", segment.template); err != nil {
			return err
		}
		for _, name := range segment.fields() {
			if !required(name) {
				return fmt.Errorf("http.url: {%s} stands in the path, so the input schema must require it", name)
			}
		}
	}
	for _, q := range h.url.query {
		if err := known("http.url", q.value); err != nil {
			return err
		}
	}
	used, err := checkHeaders("http.headers", h.URL, h.Headers)
	for _, name := range used {
		if !slices.Contains(t.Credentials, name) {
			t.Credentials = append(t.Credentials, name)
		}
	}
	return err
}

// checkHeaders looks at headers that go to an address, and returns the credentials that they hold.
func checkHeaders(key, address string, headers map[string]string) (used []string, err error) {
	spelled := map[string]string{} // by the name as all spell it
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		if other, ok := spelled[strings.ToLower(name)]; ok {
			return nil, fmt.Errorf("%s.%s: is the same header as %s; write one of them", key, name, other)
		}
		spelled[strings.ToLower(name)] = name
		if !headerName.MatchString(name) || !isHeaderValue(value) {
			return nil, fmt.Errorf("%s.%s: is no header that can be sent", key, name)
		}
		if slices.ContainsFunc(ourHeaders, func(o string) bool { return strings.EqualFold(o, name) }) {
			return nil, fmt.Errorf("%s.%s: is set for each request; leave it out", key, name)
		}
		for _, m := range credential.FindAllStringSubmatch(value, -1) {
			used = append(used, m[1])
		}
	}
	if len(used) > 0 && strings.HasPrefix(address, "http:") && !loopback(address) {
		return nil, fmt.Errorf("%s: a credential would be sent in the clear to %s; use https", key, address)
	}
	return used, nil
}

// isHeaderValue reports whether a text can be sent as the value of a header.
func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")

// ourHeaders are those that are not an operator's to set.
var ourHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Idempotency-Key",
	"Content-Type"}

// loopback reports whether an address is this machine's own.
func loopback(address string) bool {
	u, err := parseURL(address)
	if err != nil {
		return false
	}
	host := u.base.Hostname()
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// FillHeaders are headers with the credentials in their places. lookup finds a credential.
func FillHeaders(headers map[string]string, lookup func(name string) (string, error)) (map[string]string, error) {
	out := map[string]string{}
	for name, value := range headers {
		var failed error
		filled := credential.ReplaceAllStringFunc(value, func(m string) string {
			v, err := lookup(m[2 : len(m)-1])
			if err == nil && !isHeaderValue(v) {
				err = tool.SetupRequired("the credential %q has a character that no header can have, such as a line break "+
					"at its end; the worker's operator has to mend that", m[2:len(m)-1])
			}
			failed = errors.Join(failed, err)
			return v
		})
		if failed != nil {
			return nil, failed
		}
		out[name] = filled
	}
	return out, nil
}

func (s *Server) check() error {
	switch {
	case (len(s.Command) == 0) == (s.URL == ""):
		return errors.New("command: give the server either command or url")
	case len(s.Command) > 0 && len(s.Headers) > 0:
		return errors.New("headers: are for a server with a url")
	case s.URL != "" && (s.Dir != "" || len(s.Env) > 0):
		return errors.New("env: env and dir are for a server with a command")
	}
	for i, arg := range s.Command {
		if strings.ContainsRune(arg, 0) || i == 0 && arg == "" {
			return fmt.Errorf("command[%d]: is no argument", i)
		}
	}
	for name := range s.Env {
		if !variable.MatchString(name) {
			return fmt.Errorf("env.%s: is no name of a variable; use letters, digits and _", name)
		}
	}
	if s.URL != "" {
		u, err := parseURL(s.URL)
		if err != nil {
			return fmt.Errorf("url: %w", err)
		}
		for _, t := range u.segments {
			if len(t.parts) > 1 {
				return errors.New("url: has a place for a field; a server's address is fixed")
			}
		}
		used, err := checkHeaders("headers", s.URL, s.Headers)
		if err != nil {
			return err
		}
		s.Credentials = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.Credentials, used))))
	}
	if len(s.Only) > 0 {
		for name := range s.Tools {
			if !slices.Contains(s.Only, name) {
				return fmt.Errorf("tools.%s: is not in only, so it is not taken", name)
			}
		}
	}
	if err := s.Defaults.checkLocks(); err != nil {
		return fmt.Errorf("defaults.%w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		if err := s.Tools[name].checkLocks(); err != nil {
			return fmt.Errorf("tools.%s.%w", name, err)
		}
	}
	if s.MaxTools == 0 {
		s.MaxTools = DefaultMaxTools
	}
	if s.MaxInFlight == 0 {
		s.MaxInFlight = DefaultMaxInFlight
	}
	if s.StartTimeoutMS == 0 {
		s.StartTimeoutMS = DefaultStartTimeoutMS
	}
	const longest = toolyard.MaxNameBytes
	if room := longest - len(ToolName(s.Name, "")); room < 1 {
		return fmt.Errorf("name: leaves no room for the names of tools; use less than %d characters", len(s.Name))
	}
	return nil
}
