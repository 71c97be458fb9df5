package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// dialed is a connection to a port, which answers it. ended closes it, and waits until the port is done.
func dialed(t *testing.T, p *toolPort) (conn net.Conn, ended func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		p.answer(conn)
		_ = conn.Close()
	}()
	conn, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		_ = l.Close()
		t.Fatal(err)
	}
	return conn, func() {
		_, _ = conn.Close(), l.Close()
		<-done
	}
}

// exchange sends bytes to a port, ends its side, and returns the answer.
func exchange(t *testing.T, p *toolPort, sent string) string {
	t.Helper()
	conn, ended := dialed(t, p)
	defer ended()
	_, _ = io.WriteString(conn, sent) // what the other side does not read is refused
	if _, _, err := readCallOf(sent); err != nil {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	answer, _ := io.ReadAll(conn) // a reset ends it too
	return string(answer)
}

func echoing(made *[]string) *toolPort {
	return &toolPort{ctx: context.Background(), env: tool.Env{
		Call: func(_ context.Context, name string, input json.RawMessage) (toolyard.Result, error) {
			*made = append(*made, name+"\n"+string(input))
			switch name {
			case "fails":
				return toolyard.Result{IsError: true, Code: toolyard.Timeout, Error: "too late", Output: "half"}, nil
			case "said":
				return toolyard.Result{IsError: true, Code: toolyard.ExecutionFailed, Error: "exit status 1\n\nhalf",
					Output: "half\n"}, nil
			case "broke":
				return toolyard.Result{IsError: true, Code: toolyard.ExecutionFailed, Error: "it broke",
					Content: []toolyard.Content{{Type: toolyard.ContentText, Text: "half"}}}, nil
			case "mute":
				return toolyard.Result{IsError: true, Code: toolyard.InternalError}, nil
			case "wrong":
				return toolyard.Result{}, &toolyard.InputError{Field: "input", Problem: "is wrong"}
			case "too many":
				return toolyard.Result{}, tool.Invalid("enough")
			case "lost":
				return toolyard.Result{}, errors.New("no answer from the server")
			case "picture":
				return toolyard.Result{Content: []toolyard.Content{{Type: toolyard.ContentImage, MIMEType: "image/png",
					Data: []byte("x")}}}, nil
			}
			return toolyard.Result{Output: "got\n" + string(input)}, nil
		}}}
}

func readCallOf(sent string) (string, json.RawMessage, error) {
	return readCall(newHead(strings.NewReader(sent)))
}

func TestToolPort(t *testing.T) {
	for sent, want := range map[string]string{
		"read_file 11\n{\"a\": \"ü\"}": "ok 15\ngot\n{\"a\": \"ü\"}",
		"mcp__x.y/z 2\n{}":             "ok 6\ngot\n{}",
		"look up 2\n{}":                "ok 6\ngot\n{}",
		"fails 2\n{}":                  "timeout 14\ntoo late\n\nhalf",
		"said 2\n{}":                   "execution_failed 19\nexit status 1\n\nhalf",
		"broke 2\n{}":                  "execution_failed 14\nit broke\n\nhalf",
		"mute 2\n{}":                   "internal_error 31\nthe call failed: internal_error",
		"wrong 2\n{}":                  "invalid_arguments 15\ninput: is wrong",
		"lost 2\n{}":                   "dependency_unavailable ",
		"picture 2\n{}":                "ok 27\n[image: image/png, 1 bytes]",
		"":                             "invalid_arguments ",
		"read_file\n{}":                "invalid_arguments ",
		"read_file -1\n{}":             "invalid_arguments ",
		"read_file 3\n{}":              "invalid_arguments ",
		"read_file 2\n{]":              "invalid_arguments ",
		"read_file 99999999\n{}":       "invalid_arguments ",
		" 2\n{}":                       "invalid_arguments ",
		strings.Repeat("x", 500):       "invalid_arguments ",
	} {
		var made []string
		if got := exchange(t, echoing(&made), sent); !strings.HasPrefix(got, want) {
			t.Errorf("%.40q: %q, want %q", sent, got, want)
		}
	}
}

// TestACallEndsWithItsConnection: what waits for a result waits no longer than the script.
func TestACallEndsWithItsConnection(t *testing.T) {
	ours, theirs := net.Pipe()
	began, ended := make(chan struct{}), make(chan error, 1)
	p := &toolPort{ctx: t.Context(), env: tool.Env{
		Call: func(ctx context.Context, _ string, _ json.RawMessage) (toolyard.Result, error) {
			close(began)
			<-ctx.Done()
			ended <- ctx.Err()
			return toolyard.Result{}, ctx.Err()
		}}}
	go p.answer(ours)
	if _, err := io.WriteString(theirs, "read 2\n{}"); err != nil {
		t.Fatal(err)
	}
	<-began
	must.OK(t, theirs.Close())
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the call goes on")
	}
}

// TestACallThatIsRefusedIsReadToItsEnd: a script sends a whole call before it reads the answer. The end of a connection
// in the middle of that would be an error of the connection to it, and no word of what is wrong.
func TestACallThatIsRefusedIsReadToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		tool  string
		bytes int
		says  string
	}{ // 16 MiB are more than a connection holds that nobody reads
		"an input that is too long":    {"write_file", 16 << 20, "at most 262144 are allowed"},
		"a name that no tool can have": {"write\x01file", submission.MaxChildInput, "the tool"},
	} {
		conn, ended := dialed(t, echoing(new([]string)))
		_, err := fmt.Fprintf(conn, "%s %d\n%s", c.tool, c.bytes, strings.Repeat("1", c.bytes))
		answer, readErr := io.ReadAll(conn)
		if err := errors.Join(err, readErr); err != nil || !strings.HasPrefix(string(answer), "invalid_arguments ") ||
			!strings.Contains(string(answer), c.says) {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		ended()
	}
}

// FuzzToolPort: whatever a script sends, at most one call is made, of a tool with a name and of an input that is JSON
// within the limits; and the answer has the form that its first line says.
func FuzzToolPort(f *testing.F) {
	for _, seed := range []string{"read_file 2\n{}", "read_file 2\n{}{}", "fails 2\n{}", "x 0\n", "x 262145\n{}", "\n",
		"a b 2\n{}", "x 4294967296\n", "x +2\n{}", "x 02\n{}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		var made []string
		got := exchange(t, echoing(&made), sent)
		if len(made) > 1 {
			t.Fatalf("%q made %d calls", sent, len(made))
		}
		for _, m := range made {
			name, input, _ := strings.Cut(m, "\n")
			if toolyard.CheckName("", name) != nil || strictjson.Check([]byte(input)) != nil ||
				len(input) > submission.MaxChildInput {
				t.Fatalf("%q made the call %q", sent, m)
			}
		}
		if got == "" { // the connection was reset: more was sent than is read
			return
		}
		head, text, ok := strings.Cut(got, "\n")
		var code string
		var n int
		if _, err := fmt.Sscanf(head, "%s %d", &code, &n); !ok || err != nil || n != len(text) {
			t.Fatalf("%q is answered with %q", sent, got)
		}
		if (code == "ok") != (len(made) == 1 && !strings.HasPrefix(made[0], "fails\n") &&
			!strings.HasPrefix(made[0], "wrong\n") && !strings.HasPrefix(made[0], "lost\n")) {
			t.Fatalf("%q is answered with %q after %q", sent, got, made)
		}
	})
}

// missing is a sandbox in which no interpreter is installed, or that has no port.
type missing struct {
	sandbox.Refuse
	err error
}

func (missing) Probe(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{}, nil
}

func (m missing) Run(context.Context, sandbox.Policy, sandbox.Command, sandbox.Streams) (sandbox.Result, error) {
	return sandbox.Result{}, fmt.Errorf("start: %w", m.err)
}

// TestWhatAScriptNeeds: what is missing on a worker is said, and what does not fit is refused before anything runs.
func TestWhatAScriptNeeds(t *testing.T) {
	var made []string
	able := tool.Env{Call: echoing(&made).env.Call}
	for name, tt := range map[string]struct {
		box   sandbox.Sandbox
		env   tool.Env
		input string
		code  toolyard.Code
		says  string
	}{
		"no Python": {missing{err: sandbox.ErrNotStarted}, able, `{"code": "1"}`, toolyard.SetupRequired,
			"has no python3"},
		"no bash": {missing{err: sandbox.ErrNotStarted}, able, `{"code": "1", "language": "bash"}`, toolyard.SetupRequired,
			"has no bash"},
		"no port": {missing{err: sandbox.ErrNoPort}, able, `{"code": "1"}`, toolyard.SetupRequired,
			"only those of Linux"},
		"no sandbox": {sandbox.Refuse{}, able, `{"code": "1"}`, toolyard.SetupRequired,
			"cannot isolate"},
		"no way": {missing{}, tool.Env{}, `{"code": "1"}`, toolyard.SetupRequired,
			"cannot call tools"},
		"no code": {missing{}, able, `{"code": " "}`, toolyard.InvalidArguments,
			"code is empty"},
		"much code": {missing{}, able, `{"code": "` + strings.Repeat("x", MaxScriptBytes+1) + `"}`, toolyard.InvalidArguments,
			"at most"},
		"other language": {missing{}, able, `{"code": "1", "language": "perl"}`, toolyard.InvalidArguments,
			"use python or bash"},
		"much time": {missing{}, able, `{"code": "1", "timeout_ms": 86400000}`, toolyard.InvalidArguments,
			"timeout_ms"},
	} {
		c, err := runCode(tt.box, sandbox.Policy{})
		must.OK(t, err)
		_, err = c.Run(t.Context(), tt.env, json.RawMessage(tt.input))
		if e := tool.AsError(err); err == nil || e.Code != tt.code || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %v, want %s: %s", name, err, tt.code, tt.says)
		}
	}
	if len(made) > 0 {
		t.Errorf("made %q", made)
	}
}
