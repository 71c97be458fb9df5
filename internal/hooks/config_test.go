package hooks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/tool"
)

// declarations are some tools like the built-in ones.
func declarations() []tool.Declaration {
	return []tool.Declaration{
		{Name: "bash", Specifier: tool.Specifier{Command: "command"}},
		{Name: "write_file", Specifier: tool.Specifier{Path: "file_path"}},
		{Name: "read_file", Specifier: tool.Specifier{Path: "file_path"}},
		{Name: "glob", Specifier: tool.Specifier{Path: "path"}},
		{Name: "web_fetch", Specifier: tool.Specifier{URL: "url"}}, {Name: "plain"},
	}
}

func TestReadAConfiguration(t *testing.T) {
	c, err := Read([]byte(`{
		"$schema": "https://json.schemastore.org/claude-code-settings.json", "description": "ours",
		"hooks": {
			"PostToolUse": [{"hooks": [{"type": "http", "url": "http://localhost:1/x", "headers": {"Authorization": "Bearer $T"}, "allowedEnvVars": ["T"], "on_failure": "withhold"}]}],
			"PreToolUse": [
				{"matcher": "Bash|Write", "hooks": [
					{"type": "command", "command": "a", "timeout": 1.5, "statusMessage": "…", "once": true, "async": false},
					{"type": "command", "command": "b", "args": ["-x"], "if": "Bash(git *)", "on_failure": "continue"}]},
				{"matcher": "*", "hooks": [{"type": "command", "command": "c", "shell": "bash", "timeout": null}]}],
			"PostToolBatch": [{"hooks": [{"type": "command", "command": "d"}]}]
		}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range c.handlers {
		got = append(got, fmt.Sprint(h.event, " ", h.place, " ", h.matcher, " ", h.timeout, " ", h.onFailure, " ",
			h.command+h.url, " ", h.exec, " ", h.shell))
	}
	want := []string{
		"PreToolUse hooks.PreToolUse[0].hooks[0] Bash|Write 1.5s block a false sh",
		"PreToolUse hooks.PreToolUse[0].hooks[1] Bash|Write 1m0s continue b true sh",
		"PreToolUse hooks.PreToolUse[1].hooks[0] * 1m0s block c false bash",
		"PostToolUse hooks.PostToolUse[0].hooks[0]  1m0s withhold http://localhost:1/x false ",
		"PostToolBatch hooks.PostToolBatch[0].hooks[0]  1m0s continue d false sh",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if names := c.HeaderVariables(); len(names) != 1 || names[0] != "T" {
		t.Errorf("variables of headers: %v", names)
	}
	s, err := New(Options{Config: c, Declarations: declarations(),
		LookupEnv: func(string) (string, bool) { return "x", true }})
	if err != nil {
		t.Fatal(err)
	}
	if s.PostTime() != time.Minute {
		t.Errorf("hooks behind a call take %s", s.PostTime())
	}
	off, err := Read([]byte(`{"disableAllHooks": true, "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "a"}]}]}}`))
	if err != nil || len(off.handlers) != 0 {
		t.Errorf("disabled: %v, %v", off, err)
	}
}

// TestBadConfigurations: each error says where and what.
func TestBadConfigurations(t *testing.T) {
	handler := func(fields string) string {
		return `{"hooks": {"PreToolUse": [{"hooks": [{` + fields + `}]}]}}`
	}
	const at = "hooks.PreToolUse[0].hooks[0]"
	for text, want := range map[string]string{
		``: "empty", `[]`: "object", `{"hooks": {}, "hooks": {}}`: "twice", `{}`: "hooks: want object",
		`{"hooks": []}`:                                         "hooks: want object, got array",
		`{"hooks": {}, "permissions": []}`:                      "permissions: want object",
		`{"hooks": {}, "permissions": {"deny": ["Read(.env"]}}`: "permissions.deny[0]: rule",
		`{"hook": {}}`:                                          "hooks: want object",
		`{"hooks": {"stop": []}}`: "hooks.stop: is no event here; there " +
			"are PreToolUse",
		`{"hooks": {"preToolUse": []}}`: "hooks.preToolUse: is no event",
		`{"hooks": {"PreToolUse": {}}}`: "hooks.PreToolUse: want array",
		`{"hooks": {"PreToolUse": [{"match": "x", "hooks": []}]}}`: "hooks.PreToolUse[0].match: is not " +
			"known here; there are matcher, hooks",
		`{"hooks": {"PreToolUse": [{}]}}`: "hooks.PreToolUse[0].hooks: want array",
		`{"hooks": {"PreToolUse": [{"matcher": "(", "hooks": []}]}}`: "hooks.PreToolUse[0].matcher: the " +
			"regular expression",
		`{"hooks": {"PreToolUse": [{"matcher": "^(?!Bash)", "hooks": []}]}}`: "hooks.PreToolUse[0].matcher: the " +
			"regular expression",
		`{"hooks": {"PreToolUse": [{"matcher": "Bash||Edit", "hooks": []}, {"matcher": "|", "hooks":[]}]}}`:          "hooks.PreToolUse[1].matcher",
		`{"hooks": {"PostToolBatch": [{"matcher": "Bash", "hooks": []}]}}`:                                           "takes no matcher",
		`{"hooks": {"PostToolBatch": [{"hooks": [{"type": "command", "command": "x", "if": "Bash"}]}]}}`:             "takes no if",
		`{"hooks": {"PostToolBatch": [{"hooks": [{"type": "command", "command": "x", "on_failure": "withhold"}]}]}}`: "on_failure",
		handler(``): at + ".type: want string, got nothing",
		handler(`"type": "prompt", "prompt": "x"`):                            at + `.type: "prompt" is not supported`,
		handler(`"type": "mcp_tool", "tool": "x"`):                            at + `.server: want string, got nothing`,
		handler(`"type": "mcp_tool", "server": "", "tool": "x"`):              at + `: server or tool is empty`,
		handler(`"type": "mcp_tool", "server": "s", "tool": "t", "input": 1`): at + `.input: want object, got number`,
		handler(`"type": "mcp_tool", "server": "s", "tool": "t", "input": {"a": "${}"}`): at +
			`.input: ${} names no part of the event`,
		handler(`"type": "mcp_tool", "server": "s", "tool": "t", "url": "x"`):                           at + `.url: is not known here`,
		`{"hooks": {"PostToolBatch": [{"hooks": [{"type": "mcp_tool", "server": "s", "tool": "t"}]}]}}`: `hooks.PostToolBatch[0].hooks[0].type: PostToolBatch hooks run in a dispatcher`,
		handler(`"type": "shell"`):                                          at + `.type: "shell" is not known`,
		handler(`"type": "command"`):                                        at + ".command: want string",
		handler(`"type": "command", "command": " "`):                        at + ".command: is empty",
		handler(`"type": "command", "Command": "x"`):                        at + ".Command: is not known",
		handler(`"type": "command", "command": "x", "url": "http://h/"`):    at + ".url: is not known",
		handler(`"type": "command", "command": "x", "async": true`):         at + ".async: is not supported",
		handler(`"type": "command", "command": "x", "shell": "powershell"`): at + ".shell",
		handler(`"type": "command", "command": "x", "args": "y"`):           at + ".args: want array",
		handler(`"type": "command", "command": "x", "timeout": 0`):          at + ".timeout",
		handler(`"type": "command", "command": "x", "timeout": 60000`): at +
			".timeout: 60000 is not a number of seconds up to 600",
		handler(`"type": "command", "command": "x", "timeout": "60"`): at +
			".timeout: want a number of seconds, got string",
		handler(`"type": "command", "command": "x", "on_failure": "ignore"`): at +
			`.on_failure: "ignore" is not known`,
		handler(`"type": "command", "command": "x", "on_failure": "withhold"`): at + `.on_failure`,
		handler(`"type": "command", "command": "x", "if": "Bash("`):            at + ".if",
		handler(`"type": "command", "command": "x", "if": "Bash(ls | wc)"`):    at + ": if: rule",
		handler(`"type": "command", "command": "x", "if": "plain(x)"`): at +
			": if: rule", handler(`"type": "command", "command": "x", "if2": 1`): at + ".if2",
		handler(`"type": "command", "command": "x", "allowedEnvVars": ["A-B"]`): at +
			".allowedEnvVars[0]",
		handler(`"type": "command", "command": "x", "once": 1`): at +
			".once: want boolean",
		handler(`"type": "http"`): at +
			".url: want string",
		handler(`"type": "http", "url": "localhost:8080"`): at +
			".url: is no http",
		handler(`"type": "http", "url": "file:///etc/passwd"`): at +
			".url: is no http",
		handler(`"type": "http", "url": "http://u:p@h/"`): at +
			".url: has a user",
		handler(`"type": "http", "url": "http://h/", "headers": {"a b": "c"}`): at +
			`.headers["a b"]`,
		handler(`"type": "http", "url": "http://h/", "headers": {"Host": "c"}`): at +
			`.headers.Host`,
		handler(`"type": "http", "url": "http://h/", "headers": {"A": "$B"}`): at +
			`: header A: it names the variable "B", which is not in allowedEnvVars`,
		handler(`"type": "http", "url": "http://h/", "headers": {"A": "$B"}, "allowedEnvVars": ["B"]`): at +
			`: header A: the environment has no variable "B"`,
		handler(`"type": "http", "url": "http://h/", "headers": {"A": "$N"}, "allowedEnvVars": ["N"]`): at +
			`: header A: it has more than one line`,
	} {
		c, err := Read([]byte(text))
		if err == nil {
			_, err = New(Options{Config: c, Declarations: declarations(),
				LookupEnv: func(name string) (string, bool) { return "a\nb", name == "N" }})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v, want %q", text, err, want)
		}
	}
	many := `{"hooks": {"PreToolUse": [{"hooks": [` + strings.Repeat(`{"type": "command", "command": "x"},`,
		MaxHandlers) + `{"type": "command", "command": "x"}]}]}}`
	if _, err := Read([]byte(many)); err == nil || !strings.Contains(err.Error(), "at most 100") {
		t.Errorf("too many hooks: %v", err)
	}
	if _, err := Read([]byte(`{"hooks": {}}` + strings.Repeat(" ", MaxConfigBytes))); err == nil ||
		!strings.Contains(err.Error(), "bytes") {
		t.Errorf("too many bytes: %v", err)
	}
}

// TestASettingsFileAsPeopleHaveIt: a settings.json is read completely, and the parts that do not apply are listed.
func TestASettingsFileAsPeopleHaveIt(t *testing.T) {
	c, err := Read([]byte(`{
		"$schema": "https://json.schemastore.org/claude-code-settings.json", "model": "opus",
		"env": {"A": "b", "TOOLYARD_X": "y"},
		"statusLine": {"type": "command", "command": "x"},
		"permissions": {
			"defaultMode": "acceptEdits", "additionalDirectories": ["../docs"], "disableBypassPermissionsMode": "disable",
			"allow": ["Bash(npm run lint)", "Bash(npm run test:*)", "Bash(git diff *)", "WebFetch(domain:example.com)", "mcp__github", "Task", "Read(~/.zshrc)", "Skill(x"],
			"ask": ["Bash(git push:*)", "WebSearch"],
			"deny": ["Read(./.env)", "Read(./secrets/**)", "Read(/build)", "Read(//etc/passwd)", "Bash(curl *)", "Edit(~/.bashrc)"]
		},
		"hooks": {
			"SessionStart": [{"hooks": [{"type": "prompt", "prompt": "x"}]}], "Stop": [{"hooks": [{"type": "command", "command": "notify"}]}],
			"PreToolUse": [{"matcher": "Edit|MultiEdit|Write", "hooks": [{"type": "command", "command": "guard", "if": "Edit(src/**)"}]}]
		}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Config: c, Declarations: declarations(), Names: &policy.Names{}}); err != nil {
		t.Error(err)
	}
	all := declarations()
	known := make([]*tool.Declaration, len(all))
	for i := range all {
		known[i] = &all[i]
	}
	s, err := c.Settings.For(policy.Names{}, []string{"/ws"}, known...)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(s.Mode, " ", s.NoBypass, " ", s.Rules.Deny, s.Rules.Ask, s.Rules.Allow)
	want := "accept_edits true [Read(./.env) Read(./secrets/**) Read(./build) Bash(curl *)] [Bash(git push:*)] " +
		"[Bash(npm run lint) Bash(npm run test:*) Bash(git diff *) WebFetch(domain:example.com)]"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	left := strings.Join(append(c.Left, s.Left...), "\n")
	if len(c.Env) != 1 || c.Env["A"] != "b" {
		t.Errorf("the variables are %v", c.Env)
	}
	for _, want := range []string{"model: is not used", "env.TOOLYARD_X: ", "statusLine: ",
		"permissions.additionalDirectories: ",
		`permissions.allow[4] "mcp__github": `,
		`permissions.allow[5] "Task": `, `permissions.allow[6] "Read(~/.zshrc)": it is about a home`,
		`permissions.allow[7] "Skill(x": `,
		`permissions.ask[1] "WebSearch": there is no such tool`, `permissions.deny[3] "Read(//etc/passwd)": `,
		`permissions.deny[5] "Edit(~/.bashrc)": `,
		"hooks.SessionStart: nothing of this kind", "hooks.Stop: "} {
		if !strings.Contains(left, want) {
			t.Errorf("%q is not named in\n%s", want, left)
		}
	}
	if c, err = Read([]byte(`{"permissions": {"deny": ["Raed(.env)"]}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Settings.For(policy.Names{AnyServer: true}, nil, known...); err == nil ||
		!strings.Contains(err.Error(), `permissions.deny[0]: there is no tool "Raed"`) {
		t.Errorf("a denial of a tool that is not there: %v", err)
	}
}

// TestADenialOfASettingsFileThatMayReachAWorkspace: it applies, or is an error. Only one about other places is left
// out.
func TestADenialOfASettingsFileThatMayReachAWorkspace(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	all := declarations()
	known := make([]*tool.Declaration, len(all))
	for i := range all {
		known[i] = &all[i]
	}
	for rule, want := range map[string]string{
		"Read(//**/.env)": "[Read(**/.env)]", "Read(//home/me/ws/.env)": "[Read(/home/me/ws/.env)]",
		"Read(~/ws/.env)": "[Read(/home/me/ws/.env)]",
		"Read(//home/**)": "an error", "Read(//**)": "an error", "Read(//home/me/ws/**)": "an error",
		"Read(//home)": "an error", "Read(//home/*/ws/.env)": "an error",
		"Read(~/**)": "an error", "Read(~me/x)": "an error", "Edit(//home/me/**)": "an error",
		"Read(//etc/passwd)": "[]", "Read(//home/you/**)": "[]", "Edit(~/.bashrc)": "[]",
		"Read(//home/me/wsx/**)": "[]",
	} {
		for _, list := range []string{"deny", "ask"} {
			got := "an error"
			c, err := Read([]byte(`{"permissions": {"` + list + `": ["` + rule + `"]}}`))
			if err == nil {
				var s policy.Settings
				if s, err = c.Settings.For(policy.Names{}, []string{"/home/me/ws"}, known...); err == nil {
					got = fmt.Sprint(append(s.Rules.Deny, s.Rules.Ask...))
				}
			}
			if got != want {
				t.Errorf("%s %s: %s, %v; want %s", list, rule, got, err, want)
			}
		}
	}
}

// TestNamesInHooks: a matcher or an if that names no tool is an error where calls run.
func TestNamesInHooks(t *testing.T) {
	for text, want := range map[string]string{
		`{"matcher": "Bash|Edit|MultiEdit|mcp__a__b|plain", "hooks": [{"type": "command", "command": "x"}]}`: "",
		`{"matcher": "Raed", "hooks": [{"type": "command", "command": "x"}]}`:                                `hooks.PreToolUse[0].hooks[0]: matcher: there is no tool "Raed" here`,
		`{"matcher": "bash,write_flie", "hooks": [{"type": "command", "command": "x"}]}`:                     `there is no tool "write_flie"`,
		`{"matcher": "mcp__b__c", "hooks": [{"type": "command", "command": "x"}]}`:                           "the MCP servers are a",
		`{"hooks": [{"type": "command", "command": "x", "if": "read(.env)"}]}`:                               `if: there is no tool "read" here; do you mean`,
		`{"matcher": "Bash|mcp__a", "hooks": [{"type": "command", "command": "x"}]}`:                         `write mcp__a__.* for all tools`,
		`{"matcher": "mcp__a__", "hooks": [{"type": "command", "command": "x"}]}`:                            `write mcp__a__.* for all tools`,
		`{"matcher": "mcp__a__.*", "hooks": [{"type": "command", "command": "x"}]}`:                          "",
		`{"matcher": "^Raed$", "hooks": [{"type": "command", "command": "x", "if": "MultiEdit(src/**)"}]}`:   "",
		`{"matcher": "Edit", "hooks": [{"type": "command", "command": "x", "if": "Edit(~/x)"}]}`:             "not expanded",
		`{"matcher": "Write", "hooks": [{"type": "command", "command": "x", "if": "mcp__a"}]}`:               "",
	} {
		c, err := Read([]byte(`{"hooks": {"PreToolUse": [` + text + `]}}`))
		if err == nil {
			_, err = New(Options{Config: c, Declarations: declarations(), Names: &policy.Names{Servers: []string{"a"}}})
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v, want %q", text, err, want)
		}
		if _, err := New(Options{Config: c, Declarations: declarations()}); err != nil && want != "not expanded" {
			t.Errorf("%s where no calls run: %v", text, err)
		}
	}
}

func TestMatchers(t *testing.T) {
	for matcher, want := range map[string]string{
		"": "bash read_file mcp__a__b", "*": "bash read_file mcp__a__b", "Bash": "bash", "bash": "bash",
		"Bash|Read": "bash read_file", "Bash, read_file": "bash read_file",
		"Bas": "", "BASH": "", "^B": "bash", "^b": "bash", "ea": "", "e.d": "read_file", "R.*d": "read_file",
		"mcp__a": "", "mcp__.*": "mcp__a__b", "mcp__a__b": "mcp__a__b", "a.h$": "bash",
		"Write": "",
	} {
		m, err := parseMatcher(matcher)
		if err != nil {
			t.Errorf("%q: %v", matcher, err)
			continue
		}
		var got []string
		for _, name := range []string{"bash", "read_file", "mcp__a__b"} {
			if m.matches(name) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q matches %q, want %q", matcher, got, want)
		}
	}
}

// TestVariablesOfASettingsFile: commands and headers get them, and they win over the environment.
func TestVariablesOfASettingsFile(t *testing.T) {
	for _, bad := range []string{`{"env": {"A": 1}}`, `{"env": {"A B": "x"}}`, `{"env": {"A": "\u0000"}}`, `{"env": []}`} {
		if _, err := Read([]byte(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
	c, err := Read([]byte(`{"env": {"A": "from the file"}, "hooks": {"PreToolUse": [{"hooks": [
		{"type": "command", "command": "echo $A >&2; exit 2"}]}], "PostToolBatch": []}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.OfCalls(); len(got) != 1 || got[0] != "PreToolUse" {
		t.Errorf("of calls are %q", got)
	}
	t.Setenv("A", "from the environment")
	for _, want := range []string{"from the file", ""} {
		set, err := New(Options{Config: c, Env: c.Env})
		if err != nil {
			t.Fatal(err)
		}
		v, err := set.Pre(t.Context(), pipeline.HookInput{Tool: "x"})
		if err != nil || !strings.Contains(v.Reason, want) || want == "" && strings.Contains(v.Reason, "from") {
			t.Errorf("the hook said %+v, %v; want %q", v, err, want)
		}
		c.Env = nil
	}
}

// FuzzRead: whatever a file holds, it is read or refused, and no variable has a name that a file may not set.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"env": {"A": "b", "TOOLYARD_X": "y"}, "permissions": {"deny": ["Read(./.env)"]}}`))
	f.Add([]byte(`{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "x"}]}],
		"Stop": []}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read(data)
		if err != nil {
			return
		}
		for name, value := range c.Env {
			if !variable(name) || strings.HasPrefix(name, ownVariables) || strings.ContainsRune(value, 0) {
				t.Errorf("the file sets %q to %q", name, value)
			}
		}
		if len(c.handlers) > MaxHandlers {
			t.Errorf("%d hooks", len(c.handlers))
		}
	})
}

// TestADenialOfASettingsFileAboutAnMCPTool: one that makes no sense for its tool is an error, as for any other tool.
// One of a server that is not there is left out.
func TestADenialOfASettingsFileAboutAnMCPTool(t *testing.T) {
	drop := &tool.Declaration{Name: "mcp__db__drop"}
	names := policy.Names{Servers: []string{"db"}, Tools: []string{drop.Name}}
	for rule, want := range map[string]string{
		"mcp__db__drop": "[mcp__db__drop]", "mcp__db": "[mcp__db]", "mcp__db__later": "[mcp__db__later]",
		"mcp__db__drop(table)": "an error", "mcp__other__drop(table)": "[]", "mcp__other": "[]",
	} {
		for _, list := range []string{"deny", "ask"} {
			c, err := Read([]byte(`{"permissions": {"` + list + `": ["` + rule + `"]}}`))
			if err != nil {
				t.Fatal(err)
			}
			got := "an error"
			s, err := c.Settings.For(names, nil, drop)
			if err == nil {
				got = fmt.Sprint(append(s.Rules.Deny, s.Rules.Ask...))
			}
			if got != want {
				t.Errorf("%s %s: %s, %v; want %s", list, rule, got, err, want)
			}
		}
	}
}
