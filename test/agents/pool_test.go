package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// patience bounds what a test waits for: also the compilation of an example with a large SDK on a busy machine.
const patience = 4 * time.Minute

// bin is where the programs are built, once for all tests.
var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = testenv.Binaries("", "cmd/...", "examples/...", "examples/cedar"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// pool is a dispatcher and a worker as processes, and their HTTP API.
type pool struct {
	*testing.T
	http, nats, token string
	store             string
	dir               string // where agents run; empty is here
}

// startPool starts a pool whose workspace has a few files.
func startPool(t *testing.T) *pool {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"README.md": "# Read me\n\nTo be or not to be.\n",
		"NOTES.md": "# Notes\n", "go.mod": "module example\n\ngo 1.26\n"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	p := &pool{T: t, token: "a-token"}
	tokens := must.File(t, "tokens", p.token+" agent-1\n")
	store := testenv.StoreDir(t)
	said := p.start(3, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data",
		store, "--token-file", tokens)
	p.http, p.nats, p.store = said["http"], said["nats"], store
	p.start(3, "worker", "serve", "--nats", p.nats, "--data", store, "--workspace", "default="+dir)
	p.awaitTool("read_file")
	return p
}

// creds makes credentials for the workers of a pool.
func (p *pool) creds(name string) string {
	p.Helper()
	path, err := natsd.FindCreds(filepath.Join(p.store, "creds"), access.Principal{Role: access.Worker, Name: name})
	must.OK(p, err)
	return path
}

// start starts a program that serves, and waits until it has said so many lines.
func (p *pool) start(lines int, name string, args ...string) map[string]string {
	p.Helper()
	return p.serve(lines, exec.Command(filepath.Join(bin, name), args...))
}

func (p *pool) serve(lines int, cmd *exec.Cmd) map[string]string {
	p.Helper()
	cmd.Stderr = p.Output()
	out, err := cmd.StdoutPipe()
	must.OK(p, err)
	must.OK(p, cmd.Start())
	read := make(chan struct{})
	said := map[string]string{}
	ready := make(chan struct{})
	go func() {
		defer close(read)
		s := bufio.NewScanner(out)
		for n := 0; n < lines && s.Scan(); n++ {
			if k, v, ok := strings.Cut(s.Text(), ": "); ok {
				said[k] = v
			}
		}
		close(ready)
		_, _ = io.Copy(io.Discard, out)
	}()
	p.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			p.Error(err)
		}
		<-read
		_ = cmd.Wait() // it was killed
	})
	select {
	case <-ready:
	case <-time.After(patience):
		p.Fatalf("%q is not ready", cmd.Args)
	}
	return said
}

// get reads a JSON document of the pool.
func (p *pool) get(path string, out any) error {
	r, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.http+path, nil)
	if err != nil {
		return err
	}
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s", path, res.Status, data)
	}
	return json.Unmarshal(data, out)
}

// await asks until something holds: what others do is seen a moment later.
func (p *pool) await(what string, holds func() (bool, error)) error {
	for deadline := time.Now().Add(patience); ; {
		ok, err := holds()
		if err != nil || ok {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it has not happened that %s", what)
		}
	}
}

// awaitTool waits until the pool offers a tool.
func (p *pool) awaitTool(name string) {
	p.Helper()
	err := p.await("there is the tool "+name, func() (bool, error) {
		var tools []struct{ Name string }
		err := p.get("/v1/tools?format=mcp", &tools)
		for _, t := range tools {
			if t.Name == name {
				return true, err
			}
		}
		return false, err
	})
	must.OK(p, err)
}

// results are those of the batch that changed last, and how many batches there are.
func (p *pool) results() (batches, results int, err error) {
	var page struct{ Batches []struct{ ID string } }
	if err := p.get("/v1/batches", &page); err != nil || len(page.Batches) == 0 {
		return 0, 0, err
	}
	var view toolyard.BatchView
	err = p.get("/v1/batches/"+page.Batches[len(page.Batches)-1].ID, &view)
	return len(page.Batches), len(view.Results), err
}

// run runs an agent to its end and returns what it says.
func (p *pool) run(env []string, program string, args ...string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), append([]string{"TOOLYARD_URL=" + p.http, "TOOLYARD_TOKEN=" + p.token}, env...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}
