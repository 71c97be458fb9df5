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
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// made runs the program in a directory, and returns what is there by path.
func made(t *testing.T, dir string, args ...string) map[string]string {
	t.Helper()
	must.OK(t, run(append([]string{"--dir", dir}, args...), io.Discard, io.Discard))
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
	must.OK(t, err)
	return files
}

// TestSecrets: each kind of container has what it needs, and no container but this program's has a key that signs.
func TestSecrets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[a]") // which would be a pattern
	files := made(t, dir, "--node=nats1", "--node=nats2", "--agent=re/viewer", "--pool=words")
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

// TestSecretsLeaveTheNodesConfiguration: what an operator has changed in a node's nats.conf, such as max_file_store, is
// not undone by the run that each start of the fleet has.
func TestSecretsLeaveTheNodesConfiguration(t *testing.T) {
	dir := t.TempDir()
	first := made(t, dir, "--node=nats1", "--node=nats2")
	changed := first["nats1/nats.conf"] + "# changed by hand\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "nats1/nats.conf"), []byte(changed), 0o600))
	must.OK(t, os.Remove(filepath.Join(dir, "nats2/nats.conf")))
	again := made(t, dir, "--node=nats1", "--node=nats2", "--agent=reviewer")
	if again["nats1/nats.conf"] != changed {
		t.Error("what was changed by hand is undone")
	}
	if again["nats2/nats.conf"] != first["nats2/nats.conf"] {
		t.Error("one that is missing is not made again")
	}
	if again["nats1/accounts.conf"] == first["nats1/accounts.conf"] {
		t.Error("the accounts are not written again")
	}
}

// TestSecretsOfAWriteThatWasCutOff: the file that a killed run left of a node's key is not handed out.
func TestSecretsOfAWriteThatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	made(t, dir, "--node=n1")
	left := filepath.Join(dir, keysDir, clusterDir, "nodes", "n1", ".new-1")
	must.OK(t, os.WriteFile(left, []byte("half a key"), 0o600))
	if _, there := made(t, dir, "--node=n1")["n1/.new-1"]; there {
		t.Error("it was handed out")
	}
}

// TestSecretsAreRemoved: of an agent and a pool that are removed nothing is left, and others keep what they have. Who
// is named beside gets new ones. What removes nothing says so.
func TestSecretsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	all := []string{"--node=nats1", "--agent=re/viewer", "--agent=eve", "--pool=words"}
	before := made(t, dir, all...)
	more := before["dispatcher/tokens"] + "# eve's\nanother re/viewer scopes=read\nlast default agents=re/viewer"
	must.OK(t, os.WriteFile(filepath.Join(dir, "dispatcher/tokens"), []byte(more), 0o600))
	after := made(t, dir, "--remove-agent=re/viewer", "--remove-agent=eve", "--agent=eve", "--remove-pool=words")
	accounts := after["nats1/accounts.conf"]
	if _, err := api.ParseTokens([]byte(after["dispatcher/tokens"])); err != nil {
		t.Errorf("no dispatcher starts with the tokens: %v", err)
	}
	for name, content := range after {
		if strings.Contains(name, "re=2fviewer") || strings.Contains(name, "worker.words") {
			t.Errorf("there still is %s", name)
		}
		if strings.HasPrefix(name, "cli/agent.eve.") && content == before[name] {
			t.Errorf("%s is the old one", name)
		}
	}
	for _, token := range []string{before["cli/agent.re=2fviewer.token"], before["cli/agent.eve.token"], "another"} {
		if token == "" || strings.Contains(after["dispatcher/tokens"], token) {
			t.Errorf("the token %q still is one", token)
		}
	}
	for _, token := range []string{after["cli/agent.eve.token"] + " eve\n", before["cli/agent.token"] + " default\n",
		before["cli/operator.token"] + " *\n", "# eve's\n", "last default agents=re/viewer\n"} {
		if !strings.Contains(after["dispatcher/tokens"], token) {
			t.Errorf("the tokens lack %q", token)
		}
	}
	if strings.Contains(accounts, "re=2fviewer") || strings.Contains(accounts, "worker.words") ||
		!strings.Contains(accounts, "# agent.eve\n") || !strings.Contains(accounts, "# worker.default\n") {
		t.Errorf("the accounts are\n%s", accounts)
	}
	for _, name := range []string{"cli/agent.default.creds", "cli/operator.creds", "worker/worker.default.creds",
		"dispatcher/dispatcher.creds", "dispatcher/mcp-key"} {
		if after[name] != before[name] || after[name] == "" {
			t.Errorf("%s has changed", name)
		}
	}
	if err := run([]string{"--dir", dir, "--remove-agent=re/viewer"}, io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "no credentials") {
		t.Errorf("nothing to remove: %v", err)
	}
	// What a run that was killed has left is removed by the next one.
	must.OK(t, os.WriteFile(filepath.Join(dir, "dispatcher/tokens"), []byte(more), 0o600))
	if again := made(t, dir, "--remove-agent=re/viewer"); strings.Contains(again["dispatcher/tokens"], "another") {
		t.Error("its token still is one")
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
		{"--node=a", "--remove-agent=b"}, {"--node=a", "--remove-pool=b c"}, {"--node=a", "--remove-agent=*"},
		{"--node=a", "--agent=re viewer"}, {"--node=a", "--agent=ann agents=*"}, {"--node=a", "--agent=*"},
		{"--node=a", "--agent=" + strings.Repeat("ü", 64)}, {"again"}, {"--no-such-flag"}, {}} {
		dir := t.TempDir()
		if err := run(append([]string{"--dir", dir}, args...), io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%q leaves %v, %v", args, left, err)
		}
	}
}
