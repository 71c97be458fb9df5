package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestPermissionFlags(t *testing.T) {
	tools, err := new(Worker).Tools()
	must.OK(t, err)
	p := Permissions{Allow: []string{"web_fetch(domain:example.com)"}, Deny: []string{"bash", "write_file(docs/**)"},
		Ask: []string{"edit_file"}, Mode: "accept_edits"}
	rules, mode, err := p.Rules(tools)
	if err != nil || mode != policy.AcceptEdits || len(rules.Allow) != 1 || len(rules.Deny) != 2 ||
		len(rules.Ask) != 1 || !rules.Blocks("bash", nil) || rules.Blocks("write_file", nil) {
		t.Errorf("%+v, %s, %v", rules, mode, err)
	}
	for flag, p := range map[string]Permissions{
		"--allow": {Allow: []string{"a("}}, "--deny": {Deny: []string{""}}, "--ask": {Ask: []string{"a()"}},
		"--permission-mode": {Mode: "yolo"},
		"web_fetch":         {Deny: []string{"web_fetch(docs/**)"}}, // a specifier that the tool has not
	} {
		_, _, err := p.Rules(tools)
		if _, ok := errors.AsType[*UsageError](err); !ok || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %T %v", flag, err, err)
		}
	}
}

func TestWorkerFlags(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	w := Worker{Pool: "p", Workspaces: []string{"default=" + dir, "a b=c=" + dir},
		Classes: []string{" read_only", "UNSAFE"}, ReadSlots: 3, WriteSlots: 2}
	if _, err := w.Config(nil, policy.Rules{}, "", nil); err == nil || !strings.Contains(err.Error(), "--workspace") {
		t.Errorf("a directory named c=...: %v", err)
	}
	other := t.TempDir()
	w.Workspaces = []string{"default=" + dir, "a.b=" + other + "/."}
	cfg, err := w.Config(nil, policy.Rules{}, "", nil)
	must.OK(t, err)
	if cfg.Workspaces["default"] != dir || cfg.Workspaces["a.b"] != other || len(cfg.Classes) != 2 ||
		cfg.Classes[0] != toolyard.ReadOnly ||
		cfg.Slots[toolyard.ReadOnly] != 3 || cfg.Slots[toolyard.Unsafe] != 2 || cfg.Pool != "p" {
		t.Errorf("%+v", cfg)
	}
	for name, w := range map[string]Worker{
		"no name": {Workspaces: []string{dir}}, "empty name": {Workspaces: []string{"=" + dir}},
		"control character": {Workspaces: []string{"a\nb=" + dir}},
		"missing":           {Workspaces: []string{"a=" + dir + "/missing"}},
		"file":              {Workspaces: []string{"a=" + file}},
		"overlap":           {Workspaces: []string{"a=" + dir, "b=" + dir}}, "protect": {Protect: []string{"../x"}},
		"no directory":   {Workspaces: []string{"a="}},
		"one name twice": {Workspaces: []string{"a=" + dir, "a=" + other}},
		"class":          {Classes: []string{"FAST"}},
		"no class":       {Classes: []string{}},
	} {
		w.ReadSlots, w.WriteSlots = 3, 2
		flag := "--workspace"
		switch {
		case w.Classes != nil:
			flag = "--classes"
		case w.Protect != nil:
			flag = "--protect"
		}
		_, err := w.Config(nil, policy.Rules{}, "", nil)
		_, usage := errors.AsType[*UsageError](err)
		_, input := errors.AsType[*toolyard.InputError](err)
		if !usage && !input || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %T %v", name, err, err)
		}
	}
	if _, err := (&Worker{AllowPrivate: []string{"not an address"}}).Tools(); err == nil ||
		!strings.Contains(err.Error(), "--web-allow-private") {
		t.Errorf("a private address that is none: %v", err)
	}
}

func TestConnectSaysWhatToDo(t *testing.T) {
	log, err := logFlags(t, "--log-level", "error").Logger(t.Output())
	must.OK(t, err)
	for url, fix := range map[string]string{"nats://127.0.0.1:1": "dispatcher serve", "://": "nats://HOST:PORT"} {
		nc, err := (&Reach{}).Connect(url, access.Principal{Role: access.Operator}, "test", log)
		if err == nil {
			nc.Close()
			t.Fatalf("%s: somebody is there", url)
		}
		for _, s := range []string{url, fix} {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("the error does not say %q: %v", s, err)
			}
		}
	}
}
