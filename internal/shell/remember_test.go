package shell

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestRemembering: what a shell remembers changes neither what a command that only reads does, nor its class.
func TestRemembering(t *testing.T) {
	for command, want := range map[string]Remembered{
		"ls -la":                           {Class: toolyard.ReadOnly},
		"cat a | grep b":                   {Class: toolyard.ReadOnly},
		"for f in a b; do cat $f; done":    {Class: toolyard.ReadOnly},
		"git status":                       {Class: toolyard.ReadOnly, Top: true},
		"ls; git log":                      {Class: toolyard.ReadOnly, Top: true},
		"cd src":                           {Class: toolyard.WriteExclusive},
		"cd src && ls":                     {Class: toolyard.WriteExclusive},
		"(cd src; ls)":                     {Class: toolyard.WriteExclusive},
		"cd src && git status":             {Class: toolyard.Unsafe}, // another directory's configuration
		"echo $PATH":                       {Class: toolyard.Unsafe},
		"ls ~":                             {Class: toolyard.Unsafe},
		"ls ~/.config":                     {Class: toolyard.Unsafe},
		"echo \"${x:-y}\"":                 {Class: toolyard.Unsafe},
		"cd":                               {Class: toolyard.WriteExclusive},
		"cd -":                             {Class: toolyard.WriteExclusive},
		"env":                              {Class: toolyard.Unsafe},
		"printenv A":                       {Class: toolyard.Unsafe},
		"git tag":                          {Class: toolyard.ReadOnly, Top: true},
		"export A=1":                       {Class: toolyard.Unsafe},
		"source env.sh":                    {Class: toolyard.Unsafe},
		"rm a":                             {Class: toolyard.Unsafe},
		"":                                 {Class: toolyard.Unsafe},
		"if":                               {Class: toolyard.Unsafe},
		"for f in $x; do cat \"$f\"; done": {Class: toolyard.Unsafe},
		// A loop sets its variable for what is in it alone: before it, and behind one without words, it is as before.
		"echo $x; for x in a; do cat $x; done":                                          {Class: toolyard.Unsafe},
		"for x in a; do cat $x; done; echo $x":                                          {Class: toolyard.Unsafe},
		"for x in $x; do cat $x; done":                                                  {Class: toolyard.Unsafe},
		"for x in a; do cat $x; done | cat $x":                                          {Class: toolyard.Unsafe},
		"while true; do echo $x; for x in a; do ls $x; done; done":                      {Class: toolyard.Unsafe},
		"for x in a; do for y in $x; do if [[ -e $y ]]; then ls \"$x\"; fi; done; done": {Class: toolyard.ReadOnly},
	} {
		got := Remembering(command)
		if got.Class != want.Class || got.Top != want.Top || got.Why == "" ||
			got.Reads() != (want.Class != toolyard.Unsafe) {
			t.Errorf("%q: %+v, want %+v", command, got, want)
		}
		if plain, _ := Classify(command); plain.Strictness() > got.Class.Strictness() {
			t.Errorf("%q is %s, and in a shell that remembers %s", command, plain, got.Class)
		}
	}
}

// FuzzRemembering: a shell that remembers is never judged less strictly than one that does not, nor is a variable or a
// tilde overlooked.
func FuzzRemembering(f *testing.F) {
	for _, seed := range []string{"ls", "cd a && ls", "echo $a", "for x in 1; do echo $x; done",
		"git log", "ls ~", "a=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) {
		got := Remembering(command)
		plain, _ := Classify(command)
		if plain.Strictness() > got.Class.Strictness() {
			t.Errorf("%q is %s, and in a shell that remembers %s", command, plain, got.Class)
		}
		quoted := strings.ContainsAny(command, "'\\") || strings.Contains(command, "for ")
		if got.Reads() && !quoted && (strings.Contains(command, "$HOME") || strings.HasPrefix(command, "ls ~")) {
			t.Errorf("%q reads a variable, and is %s", command, got.Class)
		}
	})
}
