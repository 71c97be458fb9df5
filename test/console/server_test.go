package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
	"github.com/toolyard/toolyard/worker"
)

const (
	operator = "secret-operator"
	agent    = "secret-agent-1"
	other    = "secret-agent-2"
	tokens   = operator + " * name=olga\n" + agent + " agent-1 interactive=yes\n" + other + " agent-2 interactive=yes\n"
)

// system is a dispatcher with a worker, as users start it.
type system struct {
	*testing.T
	url, nats       string
	workspace, data string
	bin             string
}

// start starts a dispatcher with these arguments beside those that it needs.
func start(t *testing.T, args ...string) *system {
	t.Helper()
	return startWith(t, os.Getenv("PATH"), args...)
}

// startWith is start with programs of these directories.
func startWith(t *testing.T, path string, args ...string) *system {
	t.Helper()
	s, cmd := prepare(t, path, args...)
	s.data = testenv.StoreDir(t)
	cmd.Args = append(cmd.Args, "--data", s.data, "--nats-listen", "127.0.0.1:0")
	says := testenv.Start(t, cmd, "nats")
	s.url, s.nats = says["http"], says["nats"]
	return s
}

// prepare makes what a dispatcher with a worker needs, and the command that starts both.
func prepare(t *testing.T, path string, args ...string) (*system, *exec.Cmd) {
	t.Helper()
	bin, err := testenv.Binaries("", "cmd/dispatcher")
	must.OK(t, err)
	dir := t.TempDir()
	s := &system{T: t, workspace: filepath.Join(dir, "workspace"), bin: filepath.Join(bin, "dispatcher")}
	must.OK(t, os.Mkdir(s.workspace, 0o755))
	s.write("notes.txt", "one\ntwo\nthree\n")
	cmd := exec.Command(s.bin, append([]string{"serve", "--with-worker", "--workspace", "default=" + s.workspace,
		"--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = []string{"PATH=" + path, "HOME=" + dir}
	return s, cmd
}

// tokenFile is a file with the tokens of the test.
func tokenFile(t *testing.T) string {
	t.Helper()
	return must.File(t, "tokens", tokens)
}

func (s *system) write(name, content string) {
	s.Helper()
	must.OK(s, os.WriteFile(filepath.Join(s.workspace, name), []byte(content), 0o644))
}

// ask makes a request and reads the answer into out, if there is one.
func (s *system) ask(token, method, path string, body, out any) {
	s.Helper()
	data := must.JSON(s, body)
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, bytes.NewReader(data))
	must.OK(s, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	must.OK(s, err)
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		s.Fatal(err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		s.Fatalf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(text, out); err != nil {
		s.Fatalf("%s %s: %s: %v", method, path, text, err)
	}
}

// call is one call of a batch.
type call map[string]any

// begin hands in a batch of the agent of a token.
func (s *system) begin(token, id, session string, options map[string]any, calls ...call) {
	s.Helper()
	s.ask(token, http.MethodPost, "/v1/batches", map[string]any{"id": id, "session": session, "interactive": true,
		"calls": calls, "options": options}, nil)
}

// submit hands in a batch, and waits until it is complete or waits for a person.
func (s *system) submit(token, id, session string, calls ...call) {
	s.Helper()
	s.begin(token, id, session, nil, calls...)
	for {
		var view struct {
			Status string `json:"status"`
		}
		s.ask(token, http.MethodGet, "/v1/batches/"+url.PathEscape(id)+"?wait=1", nil, &view)
		if view.Status != "running" {
			return
		}
	}
}

// talker is a worker with a tool "talk", whose calls report progress and run until gate is closed.
func (s *system) talker(gate <-chan struct{}) {
	s.Helper()
	talk, err := tool.New(tool.Typed[struct{}, string]{
		Declaration: tool.Declaration{Name: "talk", Description: "Talks until it is told to stop.",
			Class: tool.ClassRule{Static: toolyard.WriteExclusive}, ReadOnly: true},
		Run: func(ctx context.Context, env tool.Env, _ struct{}) (string, error) {
			again := time.NewTicker(100 * time.Millisecond) // who comes late hears it too
			defer again.Stop()
			for {
				env.Progress(tool.Progress{Fraction: 0.5, Status: "half of it", Output: "a line of talk\n"})
				select {
				case <-gate:
					return "talked", nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				case <-again.C:
				}
			}
		},
	})
	must.OK(s, err)
	s.offer("talkers", talk)
}

// junk stores a submission of an agent that nobody can read. An agent with an account of its own can do that.
func (s *system) junk(agent, batch string) {
	s.Helper()
	nc, err := nats.Connect(s.nats, nats.UserCredentials(s.creds("--agent", agent)))
	must.OK(s, err)
	defer nc.Close()
	err = nc.Publish("ty.batch."+agent+"."+batch, []byte("this is no event"))
	if err = errors.Join(err, nc.FlushTimeout(patience), nc.LastError()); err != nil {
		s.Fatal(err)
	}
}

// creds makes credentials and returns the name of their file.
func (s *system) creds(args ...string) string {
	s.Helper()
	out, err := exec.Command(s.bin, append([]string{"creds", "--data", s.data}, args...)...).Output()
	must.OK(s, err)
	return strings.TrimSpace(string(out))
}

// offer has a worker of a pool with one tool.
func (s *system) offer(pool toolyard.Pool, t tool.Tool) {
	s.Helper()
	creds := s.creds("--pool", string(pool))
	ctx, stop := context.WithCancel(context.WithoutCancel(s.Context()))
	nc, err := worker.Connect(ctx, s.nats, testenv.Log(s), nats.UserCredentials(creds))
	if err != nil {
		stop()
		s.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, nc, worker.Options{Pool: pool, Tools: []tool.Tool{t}, Log: testenv.Log(s),
			Ready: func(string) { close(ready) }})
	}()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("the worker: %v", err)
		}
		nc.Close()
	})
	testenv.Within(s, "the worker is ready", ready)
}
