//go:build unix

package builtin

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// script runs a script outside of a sandbox, with the part that calls tools, and returns what it prints. made are the
// calls that it has made, each as its tool and its input.
func script(t *testing.T, language, code string) (printed string, made []string) {
	t.Helper()
	lang := languages[language]
	if _, err := exec.LookPath(lang.argv[0]); err != nil {
		t.Skipf("this machine has no %s", lang.argv[0])
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	port, done := echoing(&made), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			port.answer(conn)
			_ = conn.Close()
		}
	}()
	dir := t.TempDir()
	fill := strings.NewReplacer("@PORT@", strconv.Itoa(l.Addr().(*net.TCPAddr).Port), "@AT_ONCE@",
		strconv.Itoa(submission.MaxChildrenAtOnce))
	for name, text := range map[string]string{scriptFile: code, moduleFile: fill.Replace(pythonModule),
		shellFile: fill.Replace(bashFunctions)} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.CommandContext(t.Context(), lang.argv[0], filepath.Join(dir, scriptFile))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1", "BASH_ENV="+dir+"/"+shellFile)
	out, err := cmd.CombinedOutput()
	_ = l.Close()
	<-done
	if err != nil {
		t.Errorf("%s: %v", code, err)
	}
	return string(out), made
}

// TestAScriptInBashMayHaveItsOwnIFS: what a script splits its words at is no matter of the answers.
func TestAScriptInBashMayHaveItsOwnIFS(t *testing.T) {
	t.Parallel()
	for _, ifs := range []string{`$'\n'`, `,`, `''`, `k`} {
		printed, made := script(t, "bash", "IFS="+ifs+"\nset -eu\ntool glob '{\"a\": 1}'\n")
		if printed != "got\n{\"a\": 1}\n" || len(made) != 1 {
			t.Errorf("IFS=%s: %q, after %q", ifs, printed, made)
		}
	}
}

// TestAScriptInPythonMayGiveAFieldCalledName, as many tools have one.
func TestAScriptInPythonMayGiveAFieldCalledName(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		`call("create", name="x", self=1)`:    "create\n" + `{"name": "x", "self": 1}`,
		`call(name="create", title="x")`:      "create\n" + `{"title": "x"}`,
		`call_with("create", {"input": "x"})`: "create\n" + `{"input": "x"}`,
		`call("create", input={"name": "x"})`: "create\n" + `{"input": {"name": "x"}}`,
		`parallel(("create", {"name": "x"}))`: "create\n" + `{"name": "x"}`,
	} {
		printed, made := script(t, "python", "from toolyard import call, call_with, parallel\n"+code+"\n")
		if len(made) != 1 || made[0] != want || printed != "" {
			t.Errorf("%s: %q, and printed %s", code, made, printed)
		}
	}
}
