package shell

import "testing"

// TestPortable: what sh reads in another way than Bash, and what it does not.
func TestPortable(t *testing.T) {
	for _, command := range []string{
		"for x in rm; do [[ a || $x == f ]]; done", "[[ a > f ]]", "echo $'a\\'; rm x #'", "echo $\"a\"", "((rm))",
		"for ((;;)); do ls; done", "let x=1", "echo $[1]", "coproc ls", "select x in a; do ls; done",
		"function f { ls; }",
		"declare x=1", "local x", "cat <(ls)", "[[ a == @(b) ]]", "echo ${x/a/b}", "echo ${x^^}", "echo ${x:1}",
		"echo ${!x}", "x+=1", "x=(1)", "x[1]=2", "case a in a) ls ;;& esac", "ls |& cat", "ls &> f", "ls &>> f",
		"cat <<< a", "ls {v}> f", "ls >& f", "if ls; then echo \"$(ls &> f)\"; fi", "ls 'x",
	} {
		if Portable(command) == nil {
			t.Errorf("%q is portable", command)
		}
	}
	for _, command := range []string{
		"ls", "ls -la | head 2>&1 >/dev/null", "x=1 ls", "export X=1", "f() { ls; }; f", "[ -f a ] && ls || pwd",
		"for f in *; do cat \"$f\"; done", "case $x in a|b) ls ;; esac",
		"echo ${x:-a} ${x#a} ${#x} $((1 + 2)) `ls` $(ls)",
		"cat <<EOF\nx\nEOF", "while true; do break; done", "ls > f 2>> g <&0 >&-", "(ls; pwd) & wait", "! ls",
	} {
		if err := Portable(command); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
}
