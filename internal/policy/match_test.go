package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/tool"
)

// matches decides with one rule in each list: denied says that it matched as a deny rule, allowed that it matched as an
// allow rule. An ask rule must match like a deny rule.
func matches(t *testing.T, rule string, req Request) (denied, allowed bool) {
	t.Helper()
	r := mustRules(t, rule)
	denied = Decide(Rules{Deny: r}, req).Behavior == Deny
	allowed = Decide(Rules{Allow: r}, req).Behavior == Allow
	if asked := strings.HasPrefix(Decide(Rules{Ask: r}, req).Source, "rule ask"); asked != denied {
		t.Errorf("%s: denies %v, asks %v", rule, denied, asked)
	}
	return denied, allowed
}

func input(t *testing.T, field, value string) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(map[string]string{field: value})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type matchCase struct {
	rule, value     string
	denied, allowed bool
}

func TestCommandRules(t *testing.T) {
	for _, tc := range []matchCase{
		{"bash(git status:*)", "git status", true, true},
		{"bash(git status:*)", "git status -s x", true, true},
		{"bash(git status:*)", `g"it" 'status'`, true, true},
		{"bash(git status:*)", "git statusx", false, false},
		{"bash(git status:*)", "git", false, false},
		{"bash(git status:*)", "git push", false, false},
		{"bash(git status)", "git status", true, true},
		{"bash(git status)", "git status -s", false, false},
		{"bash(git status)", "git status $x", true, false}, // $x may be nothing
		{"bash(git status)", "git status a$x", false, false},
		// every command for allow, any for deny
		{"bash(git status:*)", "git status && git status -s | git status", true, true},
		{"bash(git status:*)", "git status && rm x", true, false},
		{"bash(rm:*)", "ls; (cd x && rm y)", true, true},
		{"bash(rm:*)", "cd /etc && rm y", true, false},
		// each part by itself: allowed, or it only reads
		{"bash(npm test:*)", "cd src && npm test", true, true},
		{"bash(npm test:*)", "cd ./src/../lib && npm test", true, true},
		{"bash(npm test:*)", "cd .. && npm test", true, false},
		{"bash(npm test:*)", "cd src/../.. && npm test", true, false},
		{"bash(npm test:*)", "cd /ws/src && npm test", true, true},
		{"bash(npm test:*)", "cd /wsx && npm test", true, false},
		{"bash(npm test:*)", "cd && npm test", true, false},
		{"bash(npm test:*)", "cd $x && npm test", true, false},
		{"bash(npm test:*)", "for d in a; do cd $d; done; npm test", true, false},
		{"bash(npm test:*)", "npm test | head", true, true},
		{"bash(npm test:*)", "npm test 2>&1 | grep -v \"$x\" | tail -20", true, true},
		{"bash(npm test:*)", "npm test; ls *.js; echo $?", true, true},
		{"bash(npm test:*)", "npm test && rm x", true, false},
		{"bash(npm test:*)", "npm test | tee out", true, false},
		{"bash(npm test:*)", "npm test > out", true, false},
		{"bash(npm test:*)", "npm test | sh", true, false},
		{"bash(npm test:*)", "ls && pwd", false, false}, // no rule says so: what only reads needs none
		{"bash(npm test:*)", "timeout 60 npm test", true, true},
		{"bash(npm test:*)", "timeout -k 5 60 nice -n 5 npm test -- -x", true, true},
		{"bash(npm test:*)", "timeout 60 sh -c 'npm test'", true, false},
		{"bash(timeout 60 npm:*)", "timeout 60 npm test", true, true},
		{"bash(git status:*)", "cd x && git status", true, true},
		{"bash(npm test:*)", "cd x && git status && npm test", true, false},
		{"bash(rm:*)", "ls $(rm x)", true, false},
		{"bash(rm:*)", "f() { rm x; }; f", true, false},
		{"bash(rm:*)", "ls <(rm x)", true, false},
		{"bash(rm:*)", "cat <<EOF\n$(rm x)\nEOF", true, false},
		{"bash(rm:*)", "X=1 rm x", true, false},
		// what an allow refuses
		{"bash(ls:*)", "ls $(ls)", true, false},
		{"bash(ls:*)", "ls > f", true, false},
		{"bash(ls:*)", "(ls) > f", true, false},
		{"bash(ls:*)", "ls < f", true, false},
		{"bash(ls:*)", "ls 2>&1 >/dev/null", true, true},
		{"bash(ls:*)", "X=1 ls", true, false},
		{"bash(ls:*)", "X=1; ls", true, false},
		{"bash(ls:*)", "ls $x", true, false},
		{"bash(ls:*)", "ls *", true, false},
		{"bash(ls:*)", "ls '*'", true, true},
		{"bash(ls:*)", "ls &", true, false},
		{"bash(ls:*)", "for PATH in x; do ls; done", true, false},
		{"bash(ls:*)", "ls() { ls; }; ls", true, false},
		{"bash(ls:*)", "ls; ((x++))", true, false},
		{"bash(ls:*)", "[[ -v x ]] && ls", true, false},
		{"bash(ls:*)", "if ls; then ls; fi", true, true},
		{"bash(ls:*)", "/bin/ls", true, false},
		{"bash(ls:*)", "./ls", true, false},
		{"bash(export:*)", "export X=1", true, false},
		// unknown words
		{"bash(rm:*)", "$cmd x", true, false},
		{"bash(rm:*)", "r$x", true, false},
		{"bash(rm:*)", "x$x", true, false}, // it may be xargs
		{"bash(rm:*)", "q$x", false, false},
		{"bash(rm:*)", "/b*/x", true, false},
		{"bash(rm:*)", "{rm,x}", true, false},
		{"bash(rm:*)", "$'rm' x", true, false},
		{"bash(rm:*)", `\rm x`, true, true},
		{"bash(rm:*)", "ls $x", false, false},
		{"bash(git push:*)", "git $x", true, false},
		{"bash(git push:*)", "git p*", true, false},
		{"bash(git push:*)", "git x*", false, false},
		// options in between
		{"bash(git push:*)", "git -C . push", true, false},
		{"bash(git push:*)", "git --no-pager -c a=b push origin", true, false},
		{"bash(git push:*)", "git commit -m push", false, false},
		{"bash(git push:*)", "git stash push", false, false},
		// wrappers and shells
		{"bash(rm:*)", "/bin/rm x", true, false},
		{"bash(rm:*)", "sudo rm x", true, false},
		{"bash(rm:*)", "timeout -s 9 5 env X=1 rm x", true, false},
		{"bash(rm:*)", "ls | xargs rm", true, false},
		{"bash(rm:*)", "find . -exec rm {} +", true, false},
		{"bash(rm:*)", "find . -name rm", false, false},
		{"bash(rm:*)", `find . -name "$x"`, false, false},
		{"bash(rm:*)", "sh -c 'ls; rm x'", true, false},
		{"bash(rm:*)", `sudo bash -lc "sh -c 'rm x'"`, true, false},
		{"bash(rm:*)", "eval r'm' x", true, false},
		{"bash(rm:*)", `eval 'r"m"' x`, true, false},
		{"bash(rm:*)", "trap 'rm x' EXIT", true, false},
		{"bash(rm:*)", "sh -c \"$x\"", true, false},
		{"bash(rm:*)", "curl x | sh", true, false},
		{"bash(rm:*)", "sh -c 'ls \"x'", true, false},
		{"bash(rm:*)", "sh -c 'ls'", false, false},
		{"bash(rm:*)", "echo rm x", false, false},
		{"bash(sudo:*)", "sudo ls", true, true},
		// unreadable
		{"bash(rm:*)", "ls 'x", true, false},
		{"bash(rm:*)", "", true, false},
		{"bash(rm:*)", "ls\r\nls", true, false},
		{"bash(rm:*)", "echo " + strings.Repeat("a", 40_000), true, false},
		// a rule that makes no sense
		{"bash(a | b)", "ls", true, false},
		{"bash('x)", "ls", true, false},
	} {
		denied, allowed := matches(t, tc.rule, Request{Declaration: bashTool, Input: input(t, "command", tc.value),
			WorkspaceDir: "/ws"})
		if denied != tc.denied || allowed != tc.allowed {
			t.Errorf("%s on %.80q: denied %v, allowed %v; want %v, %v", tc.rule, tc.value, denied, allowed, tc.denied,
				tc.allowed)
		}
	}
	for _, in := range []string{`{}`, `{"command":1}`, `"ls"`, `{"command":"ls","command":"ls"}`,
		`{"command":"ls","Command":"rm"}`, ``} {
		denied, allowed := matches(t, "bash(ls:*)", Request{Declaration: bashTool, Input: json.RawMessage(in)})
		if !denied || allowed {
			t.Errorf("input %s: denied %v, allowed %v", in, denied, allowed)
		}
	}
}

func TestAllowRulesCoverACommandTogether(t *testing.T) {
	req := Request{Declaration: bashTool, Input: input(t, "command", "git add . && git commit -m 'x'")}
	got := Decide(Rules{Allow: mustRules(t, "bash(git commit:*)", "bash(ls)", "bash(git add:*)")}, req)
	if got.Behavior != Allow || got.Source != "rule allow bash(git add:*), bash(git commit:*)" {
		t.Errorf("%+v", got)
	}
	// A rule made without ParseRule works too.
	if got := Decide(Rules{Allow: []Rule{{Tool: "bash", Specifier: "git:*"}}}, req); got.Behavior != Allow {
		t.Errorf("%+v", got)
	}
}

func TestPathRules(t *testing.T) {
	for _, tc := range []struct {
		rule            string
		paths           []string
		denied, allowed bool
	}{
		{"write_file(docs/**)", []string{"docs/a/b.md"}, true, true},
		{"write_file(docs/**)", []string{"docs"}, true, true},
		{"write_file(docs/**)", []string{"docs2/a"}, false, false},
		{"write_file(docs/**)", []string{"docs/../src/a"}, false, false},
		{"write_file(docs/**)", []string{"./docs//a"}, true, true},
		{"write_file(./docs/**)", []string{"docs/a"}, true, true},
		{"write_file(*.md)", []string{"a.md"}, true, true},
		{"write_file(*.md)", []string{"a/b.md"}, true, true},
		{"write_file(./*.md)", []string{"a/b.md"}, false, false},
		// as in .gitignore
		{"write_file(.env)", []string{".env"}, true, true},
		{"write_file(.env)", []string{"sub/.env"}, true, true},
		{"write_file(.env)", []string{"a/b/.env/x"}, true, true},
		{"write_file(.env)", []string{"sub/.envrc"}, false, false},
		{"write_file(./.env)", []string{"sub/.env"}, false, false},
		{"write_file(/ws/.env)", []string{"sub/.env"}, false, false},
		{"write_file(/ws/.env)", []string{".env"}, true, true},
		{"write_file(secret)", []string{"secret/a/b"}, true, true},
		{"write_file(secret/)", []string{"a/secret/b"}, true, true},
		{"write_file(a/secret)", []string{"a/secret/b/c"}, true, true},
		{"write_file(a/secret)", []string{"b/a/secret"}, false, false},
		{"write_file(a/secret/)", []string{"b/a/secret/c"}, false, false},
		{"write_file(docs/*)", []string{"docs/a/b"}, true, true},
		{"write_file({.env,*.pem})", []string{"a/b.pem"}, true, true},
		{"write_file([!a]b)", []string{"x/cb"}, true, true},
		{"write_file([.])", []string{"."}, false, false},
		{"write_file(**/*.{md,txt})", []string{"a/b.txt"}, true, true},
		{"write_file(**/.env)", []string{".env"}, true, true},
		{"write_file(/ws/docs/**)", []string{"docs/a"}, true, true},
		{"write_file(/ws/docs/**)", []string{"src/a"}, false, false},
		// a symlink: one form matches
		{"write_file(docs/**)", []string{"docs/link", "src/a"}, true, false},
		{"write_file(docs/**)", []string{"link", "docs/a"}, true, false},
		{"write_file(docs/**)", []string{"docs/link", "docs/a"}, true, true},
		// unknown paths, and patterns that make no sense
		{"write_file(docs/**)", nil, true, false},
		{"write_file(docs/**)", []string{""}, true, false},
		{"write_file(docs/**)", []string{"../x"}, true, false},
		{"write_file(docs/**)", []string{"docs/a", "/etc/passwd"}, true, false},
		{"write_file(docs/**)", []string{"docs/../../x"}, true, false},
		{"write_file(/etc/**)", []string{"docs/a"}, true, false},
		{"write_file(!docs)", []string{"src/a"}, true, false},
		{"write_file(a[b)", []string{"docs/a"}, true, false},
		{"write_file(docs/**.md)", []string{"src/a"}, true, false},
	} {
		req := Request{Declaration: writeTool, WorkspaceDir: "/ws/", Paths: tc.paths,
			Input: json.RawMessage(`{"file_path":"?"}`)}
		denied, allowed := matches(t, tc.rule, req)
		if denied != tc.denied || allowed != tc.allowed {
			t.Errorf("%s on %q: denied %v, allowed %v; want %v, %v", tc.rule, tc.paths, denied, allowed, tc.denied,
				tc.allowed)
		}
	}
	req := Request{Declaration: writeTool, Paths: []string{"docs/a"}}
	if denied, allowed := matches(t, "write_file(/docs/**)", req); !denied || allowed {
		t.Errorf("an absolute pattern without a workspace directory: denied %v, allowed %v", denied, allowed)
	}
}

func TestURLRules(t *testing.T) {
	for _, tc := range []matchCase{
		{"web_fetch(domain:example.com)", "https://example.com/x?y", true, true},
		{"web_fetch(domain:example.com)", "http://EXAMPLE.com:8080", true, true},
		{"web_fetch(domain:example.com)", "https://a.b.example.com.", true, true},
		{"web_fetch(domain:Example.COM)", "https://example.com", true, true},
		{"web_fetch(domain:example.com)", "https://badexample.com", false, false},
		{"web_fetch(domain:example.com)", "https://example.com.evil.org", false, false},
		{"web_fetch(domain:example.com)", "https://evil.org/example.com", false, false},
		{"web_fetch(domain:example.com)", "https://evil.org#@example.com", false, false},
		{"web_fetch(domain:127.0.0.1)", "http://127.0.0.1/", true, true},
		{"web_fetch(domain:127.0.0.1)", "http://9.127.0.0.1/", true, false},
		// odd ones
		{"web_fetch(domain:example.com)", "https://example.com@evil.org", true, false},
		{"web_fetch(domain:example.com)", "https://user:pw@example.com", true, false},
		{"web_fetch(domain:example.com)", `https://evil.org\@example.com`, true, false},
		{"web_fetch(domain:example.com)", "https://exаmple.com", true, false}, // a Cyrillic а
		{"web_fetch(domain:example.com)", "https://a..example.com", true, false},
		{"web_fetch(domain:example.com)", "https://%65xample.com", true, false},
		{"web_fetch(domain:example.com)", "https://[::1]/", true, false},
		{"web_fetch(domain:example.com)", "http://2130706433/", true, false},
		{"web_fetch(domain:example.com)", "http://0x7f.1/", true, false},
		{"web_fetch(domain:example.com)", "http://127.1/", true, false},
		{"web_fetch(domain:example.com)", "http://0177.0.0.1/", true, false},
		{"web_fetch(domain:example.com)", "ftp://example.com", true, false},
		{"web_fetch(domain:example.com)", "file:///etc/passwd", true, false},
		{"web_fetch(domain:example.com)", "https:example.com", true, false},
		{"web_fetch(domain:example.com)", "//example.com", true, false},
		{"web_fetch(domain:example.com)", "example.com", true, false},
		{"web_fetch(domain:example.com)", " https://example.com", true, false},
		{"web_fetch(domain:example.com)", "", true, false},
		{"web_fetch(example.com)", "https://other.org", true, false},
	} {
		denied, allowed := matches(t, tc.rule, Request{Declaration: fetchTool, Input: input(t, "url", tc.value)})
		if denied != tc.denied || allowed != tc.allowed {
			t.Errorf("%s on %q: denied %v, allowed %v; want %v, %v", tc.rule, tc.value, denied, allowed, tc.denied,
				tc.allowed)
		}
	}
}

func TestSpecifierForAToolWithout(t *testing.T) {
	for _, d := range []*tool.Declaration{plainTool, oddTool} {
		denied, allowed := matches(t, d.Name+"(x)", Request{Declaration: d, Input: json.RawMessage(`{"x":"x"}`),
			Paths: []string{"x"}})
		if !denied || allowed {
			t.Errorf("%s: denied %v, allowed %v", d.Name, denied, allowed)
		}
	}
}

// Rules may come from a batch: neither they nor a command may take long.
func TestHostileRulesEndSoon(t *testing.T) {
	start := time.Now()
	deep := strings.Repeat("a/", 500) + "b"
	long := strings.Repeat("a", 4000)
	for _, spec := range []string{strings.Repeat("**/a/", 500) +
		"x", "{a,aa,*}{a,aa,*}{a,aa,*}{a,aa,*}x", strings.Repeat("*a", 1000), strings.Repeat("{", 500)} {
		Decide(Rules{Deny: mustRules(t, "write_file("+spec+")")},
			Request{Declaration: writeTool, Paths: []string{deep, long}})
	}
	for _, command := range []string{strings.Repeat("env ", 8000), strings.Repeat("sh ", 10000),
		strings.Repeat("git -a ", 4500), "git " + strings.Repeat("-a ", 10000),
		strings.Repeat("eval ", 6000) + "x", "env " + strings.Repeat("git ", 8000), strings.Repeat("sh -c '", 4000),
		strings.Repeat("a ", 16000), strings.Repeat("env -S ", 4000), strings.Repeat("alias a=b ", 3000),
		strings.Repeat("git -c a=b ", 3000),
		"env " + strings.Repeat("fd -Hx env ", 2500), "env " + strings.Repeat("compgen a ", 3000),
		"env " + strings.Repeat("chroot ", 4000), "env " + strings.Repeat("sudo -u ", 4000) + "-s",
		"sh " + strings.Repeat("-aaaaaaaa' ' ", 2500)} {
		Decide(Rules{Deny: mustRules(t, "bash(git a b c d:*)", "bash(x)", "bash(* z * y)", "bash(a"+
			strings.Repeat("*a", 1000)+")",
			"bash("+strings.Repeat("* *a ", 700)+"q)")},
			Request{Declaration: bashTool, Input: input(t, "command", command)})
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}
