package policy

import "testing"

// FuzzDecide: no rule and no input makes Decide panic, and what a rule allows the same rule would deny: allow is never
// the wider reading of the two.
func FuzzDecide(f *testing.F) {
	for _, rule := range ruleTexts {
		for _, c := range commands {
			f.Add(rule, c)
		}
	}
	f.Add("bash(*)", "ls")
	f.Add("bash(git push:*)", "sudo -u x sh -c 'git -C . push'")
	f.Add("write_file({a,b}/**/[a-z]*)", "a/../b/c")
	f.Add("web_fetch(domain:a.b)", "https://x.a.b.:80/?q#@y")
	f.Fuzz(func(t *testing.T, text, value string) {
		rule, err := ParseRule(text)
		if err != nil {
			return
		}
		if every := rule.Tool; rule.String() != text && text != every+"(*)" && text != every+"(**)" {
			t.Fatalf("ParseRule(%q) = %q", text, rule)
		}
		for _, d := range declarations {
			field := d.Specifier.Command + d.Specifier.URL
			req := Request{Declaration: d, Input: input(t, field, value), WorkspaceDir: "/ws",
				Paths: []string{value, "docs/a"}}
			allowed := Decide(Rules{Allow: []Rule{rule}}, req).Behavior == Allow
			denied := Decide(Rules{Deny: []Rule{rule}}, req).Behavior == Deny
			if allowed && !denied {
				t.Fatalf("%q allows %s %q and would not deny it", text, d.Name, value)
			}
			if rule.Check(d) != nil && (allowed || !denied) {
				t.Fatalf("%q does not fit %s, and allows %v, denies %v", text, d.Name, allowed, denied)
			}
		}
	})
}
