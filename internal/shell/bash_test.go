package shell

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// bashTokens are what the commands of FuzzAgainstBash are made of. The only effect that one can have is touch W.
var bashTokens = []string{"$(touch W)", "`touch W`", "\ntouch W\n", "; touch W", "<(touch W)", "'", "\"", "$'", "$\"",
	"${x:-", "${x#", "${x+", "${x%%", "}", "\\", "\\\n", "\n", " ", "<<EOF", "<<'EOF'", "<<\"EOF\"", "<<'EOF'\n",
	"<<E\\\nOF", "<<-'EOF'", "<<-EOF", "\nEOF\n", "\n\tEOF\n", "E\\\nOF", "EOF", "echo ", "cat ", "ls ", "a", "b", "#",
	" #", "[[ ", " ]]", "-f ", "== ", "=", "<<EOF\n", "$((", "))", "$[", "\"${x:-", "case x in ", "x) ", ";; esac", "(",
	")", "{ ", "; }", "|", "&&", "||", "<", "$", "$$", "$#", "!", "for i in ", "; do ", "; done", "if ", "; then ",
	"; fi", "while ", "~", "*", "?", "{", ",", "[", "]", "@(", "+(", "!(", "$(", "2>&1", "</dev/null", " <<< ", "time ",
	"\t"}

// bashWait bounds one command.
const bashWait = 2 * time.Second

// FuzzAgainstBash: a command that is called read-only writes nothing when Bash runs it, however the two read it.
func FuzzAgainstBash(f *testing.F) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		f.Skip("there is no bash here")
	}
	for _, seed := range []string{
		"ls # list\\\ntouch W", "cat <<EOF\nE\\\nOF\ntouch W\nEOF\n", "cat <<EOF\n${x:-\nEOF\ntouch W\n}\nEOF\n",
		"echo \"${x:-'$(touch W)'}\"", "echo a<<'EOF'#; touch W\nEOF\n", "echo ${x:-<(touch W)}",
		"echo $((1 + '$(touch W)'))",
	} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		command := string(data)
		if !whole || !strings.Contains(command, "touch W") { // only seeds are run as they stand
			var b strings.Builder
			for _, c := range data[:min(len(data), 16)] {
				b.WriteString(bashTokens[int(c)%len(bashTokens)])
			}
			command = b.String()
		}
		if class, _ := Classify(command); class != toolyard.ReadOnly {
			return
		}
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), bashWait)
		defer cancel()
		cmd := exec.CommandContext(ctx, bash, "-c", command)
		cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + dir}
		cmd.WaitDelay = bashWait
		_ = cmd.Run() // most commands fail
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("%q is called read-only, and wrote %s", command, left[0].Name())
		}
	})
}

// TestAFormatThatVerifiesRunsAProgram: git runs gpg for it, whatever sign stands in the placeholder.
func TestAFormatThatVerifiesRunsAProgram(t *testing.T) {
	for _, c := range []string{"git log --format=%GS", "git log '--format=%+GS'", "git log --format=%-GS",
		"git show '--pretty=format:% GK'"} {
		if class, _ := Classify(c); class == toolyard.ReadOnly {
			t.Errorf("%s is READ_ONLY", c)
		}
	}
}
