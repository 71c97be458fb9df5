package agents

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestReadmeAgents: the commands of the README's section on agents work, as they stand there.
func TestReadmeAgents(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	text := must.Read(t, filepath.Join(root, "README.md"))
	_, section, _ := strings.Cut(string(text), "\n## Wire your agent\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var commands []string
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) != 3 || !strings.HasPrefix(commands[0], "dispatcher serve ") {
		t.Fatalf("the commands are %q", commands)
	}
	p := &pool{T: t, dir: root}
	serve := exec.Command("bash", "-c", "exec "+commands[0])
	serve.Dir = root
	serve.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"TOOLYARD_LISTEN=127.0.0.1:0", "TOOLYARD_NATS_LISTEN=127.0.0.1:0", "TOOLYARD_DATA="+t.TempDir())
	ready := p.serve(3, serve)
	p.http, p.nats = ready["http"], ready["nats"]

	const task = "What is in this directory?"
	claude := &anthropicModel{T: t, turns: []anthropicTurn{
		func(r *anthropicRequest) []said {
			if r.text != task {
				r.bad("the task is %q", r.text)
			}
			return []said{{id: "toolu_1", name: "glob", input: `{"pattern": "*.md"}`}}
		},
		func(r *anthropicRequest) []said {
			r.results(t, "toolu_1", "README.md")
			return []said{{text: "A module of Go."}}
		},
	}}
	gpt := &openaiModel{T: t, turns: []openaiTurn{
		func(*openaiRequest) []string { return []string{functionCall("call_1", "glob", `{"pattern": "*.md"}`)} },
		func(r *openaiRequest) []string {
			r.outputs("call_1", "README.md")
			return []string{message("A module of Go.")}
		},
	}}
	anthropic, openai := httptest.NewServer(claude), httptest.NewServer(gpt)
	t.Cleanup(anthropic.Close)
	t.Cleanup(openai.Close)
	// A reader of the README has go.work.
	env := []string{"GOWORK=", "ANTHROPIC_BASE_URL=" + anthropic.URL, "ANTHROPIC_API_KEY=a-key",
		"OPENAI_BASE_URL=" + openai.URL + "/v1", "OPENAI_API_KEY=a-key"}
	for _, command := range commands[1:] {
		if out := p.run(env, "bash", "-c", command); !strings.HasSuffix(out, "A module of Go.\n") {
			t.Errorf("%s says:\n%s", command, out)
		}
	}
	if claude.asked != 2 || gpt.asked != 2 {
		t.Errorf("the models were asked %d and %d times", claude.asked, gpt.asked)
	}
}
