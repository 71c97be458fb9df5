package shell

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// spoilers make any command write when they are appended to it, unless the command ends in a comment or a backslash,
// which hides them: "ls # ; rm x" only reads.
var spoilers = []string{
	"; rm x", "\nrm x", "\n\nrm x\n", " && rm x", " | rm x",
	" > f", "> f", " >> f", " &> f", " $(rm x)", " <(rm x)", " & rm x", " &", " ${x:=y}",
}

func spoils(command, spoiler string) bool {
	slashes := len(command) - len(strings.TrimRight(command, `\`))
	lastLine := command[strings.LastIndexByte(command, '\n')+1:]
	comment := strings.Contains(lastLine, "#")
	return slashes%2 == 0 && (!comment || strings.HasPrefix(spoiler, "\n"))
}

func TestSpoiledIsNeverReadOnly(t *testing.T) {
	all := append(append([]classified{}, readOnly...), unsafe...)
	n := 0
	for _, tc := range all {
		for _, s := range spoilers {
			if !spoils(tc.command, s) {
				continue
			}
			n++
			if class, why := Classify(tc.command + s); class == toolyard.ReadOnly {
				t.Errorf("Classify(%q) = %s, %q", tc.command+s, class, why)
			}
		}
	}
	if n < len(all)*len(spoilers)*9/10 {
		t.Errorf("only %d spoiled commands were tried", n)
	}
}

// Joining two commands gives the stricter of both, whatever joins them.
func TestJoinedIsTheStricter(t *testing.T) {
	ends := func(s string) bool {
		return strings.ContainsAny(s, "#\n\\") || strings.HasPrefix(s, "! ") || strings.HasSuffix(s, "&&")
	}
	for i, a := range readOnly {
		b := readOnly[(i*7+3)%len(readOnly)]
		bad := unsafe[(i*5+1)%len(unsafe)].command
		if ends(a.command) || ends(b.command) || ends(bad) {
			continue
		}
		for _, op := range []string{"; ", " && ", " || ", " | ", "\n"} {
			if class, why := Classify(a.command + op + b.command); class != toolyard.ReadOnly {
				t.Errorf("Classify(%q) = %s, %q", a.command+op+b.command, class, why)
			}
			if strings.TrimSpace(bad) == "" || strings.HasPrefix(bad, "<") {
				continue // harmless beside a command
			}
			for _, joined := range []string{a.command + op + bad, bad + op + a.command, a.command + " $(" + bad +
				"\n)"} {
				if class, why := Classify(joined); class == toolyard.ReadOnly {
					t.Errorf("Classify(%q) = %s, %q", joined, class, why)
				}
			}
		}
	}
}

// The worst inputs known to the parser: deep nesting up to the limit. They must end, quickly, and as an answer.
func TestDeepNesting(t *testing.T) {
	for _, open := range []string{"(", "$(", `"$(`, "{ ", "if ", "`", "${x:-", "$((", "((", "[[ ( ", "<(", "while ",
		"case x in x) ", "f() ",
		"x[", "$[", "a|", "a&&", "a;", "${a[", "((- ", "${a:-$((", "echo $(", "ls <<A\n", "{a,", `\`, "'", `"`} {
		s := strings.Repeat(open, MaxCommandBytes/len(open))
		if class, why := Classify(s); class != toolyard.Unsafe {
			t.Errorf("Classify(%q repeated) = %s, %q", open, class, why)
		}
		if len(s) > MaxCommandBytes {
			t.Fatal("past the limit: nothing was tried")
		}
		_, _ = Parse(s)
	}
	deep := strings.Repeat("( ", 500) + "ls" + strings.Repeat(" )", 500)
	if class, why := Classify(deep); class != toolyard.ReadOnly {
		t.Errorf("500 subshells around ls: %s, %q", class, why)
	}
}

func TestSizeLimit(t *testing.T) {
	fits := "echo " + strings.Repeat("a", MaxCommandBytes-len("echo "))
	if class, why := Classify(fits); class != toolyard.ReadOnly {
		t.Errorf("a command of exactly the limit: %s, %q", class, why)
	}
	if class, why := Classify(fits + "a"); class != toolyard.Unsafe || !strings.Contains(why, "at most 32768") {
		t.Errorf("a command past the limit: %s, %q", class, why)
	}
	if _, err := Parse(fits + "a"); err == nil {
		t.Error("Parse took a command past the limit")
	}
}

func TestPanicIsAnError(t *testing.T) {
	err := func() (err error) {
		defer recovered(&err)
		panic("a bug of the parser")
	}()
	if err == nil || !strings.Contains(err.Error(), "a bug of the parser") {
		t.Errorf("recovered gave %v", err)
	}
}

func FuzzClassify(f *testing.F) {
	for _, tc := range readOnly {
		f.Add(tc.command)
	}
	for _, tc := range unsafe {
		f.Add(tc.command)
	}
	f.Fuzz(func(t *testing.T, command string) {
		class, why := Classify(command)
		if !class.Known() || why == "" {
			t.Fatalf("Classify(%q) = %q, %q", command, class, why)
		}
		script, err := Parse(command)
		if class == toolyard.ReadOnly {
			if err != nil {
				t.Fatalf("%q is READ_ONLY and does not parse: %v", command, err)
			}
			if script.Assigns && !strings.Contains(command, "for") || script.Background || script.Functions {
				t.Fatalf("%q is READ_ONLY with %+v", command, script)
			}
			for _, c := range script.Commands {
				for inner, ok := Behind(c.Args); ok; inner, ok = Behind(c.Args) {
					c.Args = inner
				}
				if len(c.Args) == 0 || !c.Args[0].Literal || programs[c.Args[0].Text] == nil {
					t.Fatalf("%q is READ_ONLY and runs %+v", command, c)
				}
			}
		}
		for _, s := range spoilers {
			if spoils(command, s) {
				if class, why := Classify(command + s); class == toolyard.ReadOnly {
					t.Fatalf("Classify(%q) = %s, %q", command+s, class, why)
				}
			}
		}
	})
}
