package main

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/api"
)

// made runs the program in a directory, and returns what is there by path.
func made(t *testing.T, dir string, args ...string) map[string]string {
	t.Helper()
	if err := run(append([]string{"--dir", dir}, args...), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 && !strings.Contains(path, "/"+keysDir+"/") {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestSecrets: each kind of container has what it needs, and no container but this program's has a key that signs.
func TestSecrets(t *testing.T) {
	files := made(t, t.TempDir(), "--node=nats1", "--node=nats2", "--agent=re/viewer", "--pool=words")
	var names []string
	for name := range files {
		if dir, _, _ := strings.Cut(name, "/"); dir != keysDir {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	want := []string{"cli/agent.default.creds", "cli/agent.re=2fviewer.creds", "cli/agent.re=2fviewer.token",
		"cli/agent.token", "cli/ca.pem", "cli/operator.creds", "cli/operator.token", "dispatcher/ca.pem",
		"dispatcher/dispatcher.creds", "dispatcher/mcp-key", "dispatcher/tokens",
		"nats1/accounts.conf", "nats1/ca.pem", "nats1/cert.pem", "nats1/key.pem", "nats1/nats.conf",
		"nats2/accounts.conf", "nats2/ca.pem", "nats2/cert.pem", "nats2/key.pem", "nats2/nats.conf",
		"worker/ca.pem", "worker/worker.default.creds", "worker/worker.words.creds"}
	if !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
	if _, err := api.ParseTokens([]byte(files["dispatcher/tokens"])); err != nil {
		t.Errorf("no dispatcher starts with the tokens: %v", err)
	}
	for key, seed := range files {
		if !strings.HasSuffix(key, ".nk") {
			continue
		}
		for name, content := range files {
			if name != key && strings.Contains(content, strings.TrimSpace(seed)) {
				t.Errorf("%s has the key %s", name, key)
			}
		}
	}
}

// TestSecretsStay: a second run changes nothing, and one for another agent adds to what is there.
func TestSecretsStay(t *testing.T) {
	dir := t.TempDir()
	first := made(t, dir, "--node=nats1")
	again := made(t, dir, "--node=nats1")
	if !maps.Equal(without(first), without(again)) {
		t.Error("a second run has changed something")
	}
	more := made(t, dir, "--node=nats1", "--agent=reviewer")
	tokens := more["dispatcher/tokens"]
	if !strings.HasPrefix(tokens, first["dispatcher/tokens"]) ||
		!strings.HasSuffix(tokens, more["cli/agent.reviewer.token"]+" reviewer\n") {
		t.Errorf("with another agent, the tokens are not those from before and one more")
	}
	last := made(t, dir, "--node=nats1")
	if !maps.Equal(without(last), without(more)) {
		t.Error("a run that does not name the agent has changed something")
	}
	if strings.Count(last["nats1/accounts.conf"], "\n") != strings.Count(more["nats1/accounts.conf"], "\n") {
		t.Error("a run that does not name the agent has taken its account away")
	}
}

// without leaves out the files that each run signs anew: accounts, and the certificates of nodes.
func without(files map[string]string) map[string]string {
	files = maps.Clone(files)
	maps.DeleteFunc(files, func(name, _ string) bool {
		return slices.Contains([]string{"accounts.conf", "cert.pem", "key.pem"}, filepath.Base(name))
	})
	return files
}

// TestPrint: it prints what is for people, and nothing else.
func TestPrint(t *testing.T) {
	dir := t.TempDir()
	files := made(t, dir, "--node=nats1")
	for name, want := range map[string]string{"agent.token": files["cli/agent.token"], "../dispatcher/tokens": "",
		"none": ""} {
		var out strings.Builder
		err := run([]string{"--dir", dir, "print", name}, &out, io.Discard)
		if out.String() != want || (err == nil) != (want != "") {
			t.Errorf("print %s: %v", name, err)
		}
	}
}

// TestRefused: what names no principal makes nothing.
func TestRefused(t *testing.T) {
	for _, args := range [][]string{{"--pool=a b"}, {"--agent="}, {"--node=a_b"},
		{"--node=a", "--agent=re viewer"}, {"--node=a", "--agent=ann agents=*"}, {"--node=a", "--agent=*"},
		{"again"}, {"--no-such-flag"}, {}} {
		dir := t.TempDir()
		if err := run(append([]string{"--dir", dir}, args...), io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%q leaves %v, %v", args, left, err)
		}
	}
}
