package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkForeign: no file names a directory of one machine, or a host that modules and packages come from.
func checkForeign(t *tree) []string { return foreignTexts(t, foreign.hosts) }

func foreignTexts(t *tree, hosts []string) (problems []string) {
	var words []string
	for _, d := range foreign.dirs {
		words = append(words, `(?:^|[^\w./~-])`+regexp.QuoteMeta(d)) // at the beginning of a path, not inside one
	}
	for _, h := range hosts {
		words = append(words, `(?:^|[^\w-])`+regexp.QuoteMeta(h)+`(?:$|[^\w-])`)
	}
	plain := slices.Concat(foreign.dirs, hosts)
	pattern := regexp.MustCompile(strings.Join(words, "|"))
	for _, name := range t.files {
		if path.Base(name) == "go.sum" {
			continue
		}
		text, err := fs.ReadFile(t.fsys, name)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			continue // gone since it was listed, or no text
		}
		if !slices.ContainsFunc(plain, func(word string) bool { return bytes.Contains(text, []byte(word)) }) {
			continue // most files: the pattern is slow
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			found := pattern.Find(bytes.TrimRight(line, "\r\n"))
			if found != nil && !allowedForeign(name, string(found)) {
				// The text itself may be private: say only where it is.
				problems = append(problems, fmt.Sprintf("%s:%d names a directory of one machine or a registry's host",
					name, n))
			}
		}
	}
	return problems
}

func allowedForeign(name, found string) bool {
	for _, a := range foreignAllowed {
		if a.file == name && strings.Contains(found, a.text) {
			return true
		}
	}
	return false
}

// proxyHosts are the hosts of this machine's own module proxies, which a log or an example may have caught.
func proxyHosts() (hosts []string) {
	for _, p := range strings.FieldsFunc(os.Getenv("GOPROXY"), func(r rune) bool { return r == ',' || r == '|' }) {
		if u, err := url.Parse(p); err == nil && strings.Contains(u.Hostname(), ".") &&
			!strings.HasPrefix(u.Hostname(), "127.") {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

func TestForeign(t *testing.T) {
	holds(t, checkForeign)
	if hosts := proxyHosts(); len(hosts) > 0 {
		holds(t, func(tr *tree) []string { return foreignTexts(tr, hosts) })
	}
	trials := []trial{
		{"good", map[string]string{"a.md": "my/work/ ./root/x workspace/work/ $HOME/work/ ~/root/ go.sum /workspace/"},
			""},
		{"go.sum", map[string]string{"go.sum": foreign.hosts[0]}, ""},
		{"binary", map[string]string{"a.bin": "\x00 " + foreign.dirs[0]}, ""},
		{"part of another host", map[string]string{"a.md": "my" + foreign.hosts[0] + ".example"}, ""},
		{"second line", map[string]string{"a.yaml": "x: y\npath=" + foreign.dirs[0] + "x"}, "a.yaml:2"},
		{"quoted", map[string]string{"a.json": `{"a": "` + foreign.dirs[0] + `x"}`}, "a.json:1"},
		{"in a URL", map[string]string{"a.sh": "curl https://" + foreign.hosts[0] + "/x"}, "a.sh:1"},
	}
	for _, bad := range append(foreign.dirs, foreign.hosts...) {
		trials = append(trials, trial{bad, map[string]string{"a.md": bad}, "a.md:1"})
	}
	try(t, checkForeign, trials)
}

func TestProxyHosts(t *testing.T) {
	t.Setenv("GOPROXY", "https://user:pass@modules.example.com:8080/go,http://127.0.0.1:3000|http://box/x,direct")
	if got := proxyHosts(); len(got) != 1 || got[0] != "modules.example.com" {
		t.Errorf("hosts %q; want modules.example.com only", got)
	}
	try(t, func(tr *tree) []string { return foreignTexts(tr, proxyHosts()) }, []trial{
		{"named", map[string]string{"a.md": "get it from modules.example.com:8080"}, "a.md:1"},
		{"not named", map[string]string{"a.md": "get it from modules.example.org"}, ""},
	})
}
