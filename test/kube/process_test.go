package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

const (
	// readyWait bounds how long a process takes until it is ready, on a machine that has much else to do.
	readyWait = 2 * time.Minute
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 16
)

var built = sync.OnceValues(func() (string, error) { return testenv.Binaries("", "cmd/dispatcher", "cmd/worker") })

// build is the directory of the programs.
func build(t *testing.T) string {
	t.Helper()
	dir, err := built()
	must.OK(t, err)
	return dir
}

// secret is a directory as Kubernetes mounts a Secret: the files are links, which it swings together.
func secret(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(dir, "..2026"), 0o755))
	err := os.Symlink("..2026", filepath.Join(dir, "..data"))
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "..data", name), []byte(content), 0o400),
			os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	must.OK(t, err)
	return dir
}

// content is a file's.
func content(t *testing.T, path string) string {
	t.Helper()
	data := must.Read(t, path)
	return string(data)
}

// start runs a container's command with its arguments and variables, at another place, until it says that it is ready,
// and returns the addresses that it has printed. It ends with the test, and well.
func start(t *testing.T, c core.Container, place *strings.Replacer) map[string]string {
	t.Helper()
	cmd := exec.Command(filepath.Join(build(t), program(c)), c.Args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	for name, value := range environment(t, c) {
		cmd.Env = append(cmd.Env, name+"="+place.Replace(value))
	}
	return testenv.Start(t, cmd, "metrics")
}

// ask is the status and body of the answer of a URL.
func ask(t *testing.T, method, url, token string, body []byte) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	must.OK(t, err)
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	must.OK(t, err)
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// probe asks what the container's probes ask, until it is ready.
func probe(t *testing.T, c core.Container, metrics string) {
	t.Helper()
	base := strings.TrimSuffix(metrics, "/metrics")
	for _, p := range []*core.Probe{c.StartupProbe, c.LivenessProbe} {
		if status, text := ask(t, http.MethodGet, base+p.HTTPGet.Path, "", nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", p.HTTPGet.Path, status, text)
		}
	}
	for end := time.Now().Add(readyWait); ; time.Sleep(10 * time.Millisecond) {
		status, text := ask(t, http.MethodGet, base+c.ReadinessProbe.HTTPGet.Path, "", nil)
		if status == http.StatusOK {
			return
		}
		if status != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatalf("%s: %d %s", c.ReadinessProbe.HTTPGet.Path, status, text)
		}
	}
}

// TestProcesses: with the variables, arguments and secrets that the chart gives them, on a cluster of three NATS nodes
// with TLS and accounts, a dispatcher and a worker start, their probes are answered, and a batch has its result.
func TestProcesses(t *testing.T) {
	cluster := testenv.GuardedCluster(t, access.Principal{Role: access.Worker, Name: "default"})
	creds, _ := cluster.Creds()
	ca, token := content(t, cluster.CA()), "a-token-that-is-long-enough"
	o := rendered(t, values(t, "default"), fmt.Sprintf("nats: {url: %q}", cluster.ClientURL()),
		"dispatcher: {settings: {max-store-bytes: 1073741824}}")
	workspace := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(workspace, "greeting"), []byte("hello\n"), 0o600))
	place := func(secrets map[string]string) *strings.Replacer {
		return strings.NewReplacer("/secrets", secret(t, secrets), "/workspace", workspace,
			"0.0.0.0:8080", "127.0.0.1:0", "0.0.0.0:9464", "127.0.0.1:0")
	}
	dispatcher := o.deployment(t, "toolyard-dispatcher").Spec.Template.Spec.Containers[0]
	says := start(t, dispatcher, place(map[string]string{"ca.pem": ca, "tokens": token + " default\n",
		"mcp-key": strings.Repeat("k", 32), "dispatcher.creds": content(t, filepath.Join(creds, "dispatcher.creds"))}))
	probe(t, dispatcher, says["metrics"])
	worker := o.deployment(t, "toolyard-worker-general").Spec.Template.Spec.Containers[0]
	probe(t, worker, start(t, worker, place(map[string]string{"ca.pem": ca,
		"worker.default.creds": content(t, filepath.Join(creds, "worker.default.creds"))}))["metrics"])

	batch := []byte(`{"id": "b-1", "calls": [{"id": "a", "tool": "read_file", "input": {"file_path": "greeting"}}]}`)
	status, text := ask(t, http.MethodPost, says["http"]+"/v1/batches?wait=60", token, batch)
	var view struct {
		Results []struct{ Code, Output string }
	}
	if err := json.Unmarshal([]byte(text), &view); err != nil || status != http.StatusOK || len(view.Results) != 1 ||
		view.Results[0].Code != "" || !strings.Contains(view.Results[0].Output, "hello") {
		t.Errorf("%d %v: %s", status, err, text)
	}
}

// TestNATSAlone: a dispatcher without tokens starts, and its HTTP API is for its own pod. With an issuer in their place
// it is for all.
func TestNATSAlone(t *testing.T) {
	cluster := testenv.GuardedCluster(t)
	creds, _ := cluster.Creds()
	o := rendered(t, values(t, "default"), fmt.Sprintf("nats: {url: %q}", cluster.ClientURL()),
		"dispatcher: {tokens: false, settings: {max-store-bytes: 1073741824}}")
	dispatcher := o.deployment(t, "toolyard-dispatcher").Spec.Template.Spec.Containers[0]
	says := start(t, dispatcher, strings.NewReplacer("/secrets", secret(t, map[string]string{
		"ca.pem": content(t, cluster.CA()), "mcp-key": strings.Repeat("k", 32),
		"dispatcher.creds": content(t, filepath.Join(creds, "dispatcher.creds"))}),
		"0.0.0.0:8080", "0.0.0.0:0", "127.0.0.1:8080", "127.0.0.1:0", "0.0.0.0:9464", "127.0.0.1:0"))
	probe(t, dispatcher, says["metrics"])

	o = rendered(t, values(t, "default"),
		"dispatcher: {tokens: false, settings: {oidc-issuer: 'https://issuer.example', oidc-audience: a}}")
	dispatcher = o.deployment(t, "toolyard-dispatcher").Spec.Template.Spec.Containers[0]
	if at := environment(t, dispatcher)["TOOLYARD_LISTEN"]; at != "0.0.0.0:8080" {
		t.Errorf("with an issuer it listens on %s", at)
	}
}
