package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

const oneOfEach = `
tools:
  - {name: count, description: Counts., input_schema: {type: object}, command: {argv: [wc]}, credentials: [TEST_TOOL_KEY]}
  - {name: ask, description: Asks., input_schema: {type: object}, http: {url: "https://x.example/", headers: {A: "${TEST_TOOL_KEY}"}}}
servers:
  - {name: s, command: [some-server], credentials: [TEST_SERVER_KEY]}
`

// TestDeclaredToolsReachTheWorker with their credentials, which nobody else is shown.
func TestDeclaredToolsReachTheWorker(t *testing.T) {
	t.Setenv("TEST_TOOL_KEY", "the-tools-key")
	t.Setenv("TEST_SERVER_KEY", "the-servers-key")
	w := Worker{ReadSlots: 1, WriteSlots: 1}
	w.Guard.Manifests.Files = []string{must.File(t, "tools.yaml", oneOfEach)}
	tools, rules, mode, err := w.Toolbox(&Permissions{Allow: []string{"count", "mcp__s__*"}, Mode: "default"}, Scope{})
	must.OK(t, err)
	cfg, err := w.Config(tools, rules, mode, nil)
	must.OK(t, err)
	var declared []string
	for _, d := range cfg.Declared {
		declared = append(declared, d.Name)
	}
	if !slices.Equal(declared, []string{"count", "ask"}) || len(cfg.Toolsets) != 1 || cfg.Toolsets[0].Name() != "s" ||
		len(cfg.Tools)+2 != len(tools) {
		t.Errorf("declared are %q, toolsets %v, and %d of %d tools are fixed", declared, cfg.Toolsets, len(cfg.Tools),
			len(tools))
	}
	for _, name := range declared {
		if cfg.Credentials[name]["TEST_TOOL_KEY"] != "the-tools-key" {
			t.Errorf("%s gets the credentials %v", name, cfg.Credentials[name])
		}
	}
	if text := cfg.Redact("the-tools-key and the-servers-key"); strings.Contains(text, "the-") {
		t.Errorf("a credential is shown: %s", text)
	}
	if Origin("count") != registry.Toolset || Origin("bash") != registry.Builtin {
		t.Error("built-in and declared tools are not told apart")
	}
}

// TestErrorsOfManifestsNameFileAndKey, and what to do.
func TestErrorsOfManifestsNameFileAndKey(t *testing.T) {
	t.Setenv("TEST_TOOL_KEY", "the-tools-key")
	for text, want := range map[string]string{
		strings.Replace(oneOfEach, "argv", "args", 1): "tools[0].command",
		strings.Replace(oneOfEach, "name: count", "name: bash",
			1): `tools[0].name: "bash" is a built-in tool; choose another name`,
		strings.Replace(oneOfEach, "argv: [wc]", "argv: [wc], network: ['a b:1']", 1): "command.network[0]",
		oneOfEach: "TEST_SERVER_KEY",
	} {
		w := Worker{ReadSlots: 1, WriteSlots: 1}
		path := must.File(t, "tools.yaml", text)
		w.Guard.Manifests.Files = []string{path}
		tools, err := w.Tools()
		if err == nil {
			_, err = w.Config(tools, policy.Rules{}, "", nil)
		}
		if err == nil || !strings.Contains(err.Error(), "--tools") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
	path := must.File(t, "tools.yaml", oneOfEach)
	w := Worker{}
	w.Guard.Manifests.Files = []string{path, path}
	if _, err := w.Tools(); err == nil || !strings.Contains(err.Error(), "is declared in "+path+" too") {
		t.Errorf("the same file twice: %v", err)
	}
	w = Worker{}
	w.Guard.Manifests.Files = []string{"/nowhere/tools.yaml"}
	if _, err := w.Tools(); err == nil || !strings.Contains(err.Error(),
		"--tools /nowhere/tools.yaml: there is no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}
