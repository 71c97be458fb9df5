package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"image/color"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	uv "github.com/charmbracelet/ultraviolet"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

const (
	columns = 80  // that a program is told its terminal has
	beyond  = 100 // that the terminal has: what is written beyond columns is too wide
)

// screen is a program on a terminal of its own, and what the terminal shows.
type screen struct {
	*testing.T
	cmd   *exec.Cmd
	typed *os.File
	ended chan struct{} // closed when the program has written all

	mu    sync.Mutex
	shown *vt.Emulator
}

// terminal starts a command of the dispatcher on a terminal of so many lines, in the directory of the workspace. Beside
// that is the directory of the dispatcher's streams, under a name that says nothing of this machine.
func (s *system) terminal(lines int, args ...string) *screen {
	s.Helper()
	home := filepath.Dir(s.workspace)
	if err := os.Symlink(s.data, filepath.Join(home, "data")); err != nil && !errors.Is(err, fs.ErrExist) {
		s.Fatal(err)
	}
	cmd := exec.Command(s.bin, args...)
	cmd.Dir = s.workspace
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm", "TOOLYARD_DATA=../data",
		"TOOLYARD_NATS=" + s.nats}
	p := &screen{T: s.T, cmd: cmd, ended: make(chan struct{}), shown: vt.NewEmulator(beyond, lines)}
	p.print("\x1b[2m$\x1b[0m dispatcher " + strings.Join(args, " ") + "\r\n")
	p.typed = testenv.OnTerminal(s, cmd, columns, uint16(lines))
	go func() {
		defer close(p.ended)
		buffer := make([]byte, 4096)
		for {
			n, err := p.typed.Read(buffer)
			p.print(string(buffer[:n]))
			if err != nil { // the program has ended
				return
			}
		}
	}()
	return p
}

func (p *screen) print(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.shown.WriteString(text); err != nil {
		p.Error(err)
	}
}

// text is what the terminal shows, without colours.
func (p *screen) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimRight(p.shown.String(), " \n")
}

// has waits until the terminal shows a text.
func (p *screen) has(text string) {
	p.Helper()
	for began := time.Now(); !strings.Contains(p.text(), text); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			p.Fatalf("%q does not come; the terminal shows:\n%s", text, p.text())
		}
	}
}

// ends waits until the program has ended well.
func (p *screen) ends() {
	p.Helper()
	<-p.ended
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("%q: %v; the terminal shows:\n%s", p.cmd.Args, err, p.text())
	}
}

// until runs a command again and again until the terminal shows a text.
func (s *system) until(text string, args ...string) *screen {
	s.Helper()
	for began := time.Now(); ; {
		p := s.terminal(60, args...)
		p.ends()
		if strings.Contains(p.text(), text) {
			return p
		}
		if time.Since(began) > patience {
			s.Fatalf("%q does not come; the terminal shows:\n%s", text, p.text())
		}
	}
}

func (p *screen) types(keys string) {
	p.Helper()
	if _, err := p.typed.WriteString(keys); err != nil {
		p.Fatal(err)
	}
}

// style is how a browser shows what a terminal does.
const style = `body {margin: 0; background: #0d1117}
pre {margin: 0; padding: 14px 16px; display: inline-block; color: #e6edf3;
	font: 13.288px/18px "DejaVu Sans Mono", monospace}
i {background: currentColor; font-style: normal} .bold {font-weight: bold} .dim {color: #8b949e}
.red {color: #ff7b72} .green {color: #56d364} .yellow {color: #e3b341}`

// colours are the classes of style that the colours of a terminal have. No program of ours has others.
var colours = map[color.Color]string{ansi.Red: "red", ansi.Green: "green", ansi.Yellow: "yellow"}

// html is what the terminal shows, as lines of HTML.
func (p *screen) html() string {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var out strings.Builder
	for y := range p.shown.Height() {
		class := ""
		for x := range p.shown.Width() {
			cell := p.shown.CellAt(x, y)
			if cell == nil || cell.Width == 0 { // the second half of a wide character
				continue
			}
			if x >= columns && strings.TrimSpace(cell.Content) != "" {
				p.Fatalf("%q writes beyond %d columns:\n%s", p.cmd.Args, columns,
					strings.TrimRight(p.shown.String(), " \n"))
			}
			if now := p.class(cell.Style); now != class {
				if class != "" {
					out.WriteString("</span>")
				}
				if now != "" {
					fmt.Fprintf(&out, "<span class=%q>", now)
				}
				class = now
			}
			switch {
			case x >= columns:
			case cell.Content == "█": // a terminal fills the cell, and a font does not quite
				out.WriteString("<i>█</i>")
			default:
				out.WriteString(html.EscapeString(cell.Content))
			}
		}
		if class != "" {
			out.WriteString("</span>")
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), " \n") + "\n"
}

func (p *screen) class(of uv.Style) string {
	var classes []string
	if of.Fg != nil {
		name := colours[of.Fg]
		if name == "" || of.Bg != nil {
			p.Fatalf("%q writes in colours that style lacks: %v", p.cmd.Args, of)
		}
		classes = append(classes, name)
	}
	if of.Attrs&uv.AttrBold != 0 {
		classes = append(classes, "bold")
	}
	if of.Attrs&uv.AttrFaint != 0 {
		classes = append(classes, "dim")
	}
	return strings.Join(classes, " ")
}

// picture makes a picture of what the terminal shows now.
func (p *screen) picture(b *tab, name string) {
	p.Helper()
	text := p.html()
	b.script(fmt.Sprintf("document.head.innerHTML = %q; document.body.innerHTML = %q", "<style>"+style+"</style>",
		"<pre>"+strings.ReplaceAll(text, "\n", " \n")+"</pre>"))
	type box struct{ Width, Height float64 }
	size := value[box](b, `(({width, height}) => ({Width: width, Height: height}))(
		document.querySelector("pre").getBoundingClientRect())`)
	b.shoot(filepath.Join("terminal", name), page.CaptureScreenshotParams{
		CaptureBeyondViewport: new(true), Clip: &page.Viewport{Width: size.Width, Height: size.Height, Scale: 1.5}})
}

// suites are what the tool "run_tests" runs: how far it comes until it is let go on, and how long the rest takes.
var suites = map[string]struct {
	fraction float64
	status   string
	rest     time.Duration
}{
	"./greet": {0.8, "33 of 41 tests", 300 * time.Millisecond},
	"./store": {0.45, "58 of 129 tests", 900 * time.Millisecond},
	"./web":   {0.2, "3 of 15 tests", 500 * time.Millisecond},
}

// tester is a worker with the tool "run_tests", whose calls run until gate is closed. The first attempt of each batch
// at ./web fails after that.
func (s *system) tester(gate <-chan struct{}) {
	s.Helper()
	type input struct {
		Package string `json:"package"`
	}
	var tried sync.Map
	runTests, err := tool.New(tool.Typed[input, string]{
		Declaration: tool.Declaration{Name: "run_tests", Description: "Runs the tests of a package.",
			Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true},
		Run: func(ctx context.Context, env tool.Env, in input) (string, error) {
			suite := suites[in.Package]
			again := time.NewTicker(100 * time.Millisecond) // who comes late hears it too
			defer again.Stop()
			for waits := true; waits; {
				env.Progress(tool.Progress{Fraction: suite.fraction, Status: suite.status})
				select {
				case <-gate:
					waits = false
				case <-ctx.Done():
					return "", context.Cause(ctx)
				case <-again.C:
				}
			}
			rest := time.NewTimer(suite.rest)
			defer rest.Stop()
			select {
			case <-rest.C:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
			if _, again := tried.LoadOrStore(in.Package, true); !again && in.Package == "./web" {
				return "", tool.Unavailable(errors.New("refused"), "The test server of %s does not answer.", in.Package)
			}
			return "ok  " + in.Package, nil
		},
	})
	must.OK(s, err)
	s.offer("testers", runTests)
}

// TestTerminals: commands on a terminal, as docs/commands.md shows them. Nothing that they write is too wide for it.
func TestTerminals(t *testing.T) {
	s := start(t, "--allow", "write_file(greet/**)", "--ask", "read_file(config/*)")
	gate := make(chan struct{})
	s.tester(gate)
	for name, content := range map[string]string{
		"greet/greet.go": "package greet\n\nimport \"fmt\"\n\n// Hello greets somebody.\n" +
			"func Hello(name string) string {\n\treturn fmt.Sprintf(\"Hello %s\", name)\n}\n",
		"first.json": firstBatch, "tests.json": testsBatch, "cleanup.json": cleanupBatch,
		"edit.json": editBatch, "config/prod.yaml": "port: 8080\n",
	} {
		must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(s.workspace, name)), 0o755))
		s.write(name, content)
	}
	b := open(t, "")
	b.run(chromedp.Navigate("about:blank"))

	p := s.terminal(60, "explain", "cleanup.json")
	p.ends()
	p.picture(b, "explain")

	p = s.terminal(60, "run", "--permission-mode", "accept_edits", "first.json")
	p.ends()
	p.picture(b, "run")

	p = s.terminal(60, "submit", "--interactive", "tests.json")
	p.has("2s  33 of 41 tests")
	p.has("2s  58 of 129 tests")
	p.has("2s  3 of 15 tests")
	p.has("? [5] read_file waits for a person")
	live := s.terminal(20, "watch", "--agent", "reviewer", "turn-17")
	for _, text := range []string{"33 of 41 tests", "58 of 129 tests", "3 of 15 tests", "press a"} {
		live.has(text)
	}
	p.picture(b, "submit")
	live.picture(b, "watch")
	live.types("a")
	live.has("May this call run?")
	live.types("y\n")
	live.has("approved: the call runs")
	live.types("q")
	live.ends()
	close(gate)
	p.ends()

	p = s.terminal(60, "submit", "--interactive", "edit.json")
	p.has("? [1] edit_file waits for a person")
	asked := s.terminal(60, "approve", "reviewer.turn-18.1")
	asked.has("May this call run?")
	asked.picture(b, "approve")
	asked.types("y\n")
	asked.ends()
	p.ends()

	p = s.terminal(60, "replay", "--agent", "reviewer", "turn-17")
	p.ends()
	p.picture(b, "replay")

	s.terminal(60, "submit", "cleanup.json").ends()
	p = s.terminal(70, "report")
	p.ends()
	p.picture(b, "report")

	s.junk("reviewer", "junk")
	p = s.until("warn  dead letters", "doctor")
	p.picture(b, "doctor")
}

const firstBatch = `{"agent": "reviewer", "session": "s-1", "calls": [
	{"id": "c1", "tool": "glob", "input": {"pattern": "**/*.go"}},
	{"id": "c2", "tool": "grep", "input": {"pattern": "Hello", "glob": "*.go"}},
	{"id": "c3", "tool": "edit_file", "input": {"file_path": "greet/greet.go",
		"old_string": "\treturn fmt.Sprintf(\"Hello %s\", name)\n",
		"new_string": "\tif name == \"\" {\n\t\tname = \"you\"\n\t}\n\treturn fmt.Sprintf(\"Hello, %s!\", name)\n"}},
	{"id": "c4", "tool": "read_file", "input": {"file_path": "greet/greet.go", "offset": 5, "limit": 3}},
	{"id": "c5", "tool": "summarize", "input": {}}]}`

const testsBatch = `{"agent": "reviewer", "session": "s-1", "id": "turn-17", "calls": [
	{"id": "c1", "tool": "read_file", "input": {"file_path": "greet/greet.go", "offset": 5, "limit": 3}},
	{"id": "c2", "tool": "write_file", "input": {"file_path": "greet/doc.go",
		"content": "// Package greet greets.\npackage greet\n"}},
	{"id": "c3", "tool": "run_tests", "input": {"package": "./greet"}},
	{"id": "c4", "tool": "run_tests", "input": {"package": "./store"}},
	{"id": "c5", "tool": "run_tests", "input": {"package": "./web"}},
	{"id": "c6", "tool": "read_file", "input": {"file_path": "config/prod.yaml"}}]}`

const editBatch = `{"agent": "reviewer", "session": "s-1", "id": "turn-18", "calls": [
	{"id": "c1", "tool": "grep", "input": {"pattern": "Hello", "glob": "*.go"}},
	{"id": "c2", "tool": "edit_file", "input": {"file_path": "greet/greet.go",
		"old_string": "\"Hello, %s!\"", "new_string": "\"Good morning, %s!\""}}]}`

const cleanupBatch = `{"agent": "reviewer", "session": "s-1", "calls": [
	{"id": "c1", "tool": "bash", "input": {"command": "git log --oneline | head -3"}},
	{"id": "c2", "tool": "read_file", "input": {"file_path": "greet/greet.go"}},
	{"id": "c3", "tool": "bash", "input": {"command": "go build ./..."}},
	{"id": "c4", "tool": "bash", "input": {"command": "rm -rf build"}}]}`
