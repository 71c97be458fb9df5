package sandbox

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestSeatbeltProfile: everything is denied first, what is allowed is listed, and what is protected or hidden is denied
// last, since the last rule counts. Whether macOS does what it says is seen on macOS alone, by the probe.
func TestSeatbeltProfile(t *testing.T) {
	s := &seatbelt{Read: []string{"/opt/tools"}, Scratch: "/private/var/t/1", Workspace: "/Users/a/work.d",
		Writable: true, Protected: []string{".git/hooks", ".vscode"}, Hidden: []string{"keys/id"},
		Pins: []string{"keys"}}
	text, err := s.profile()
	must.OK(t, err)
	if !strings.HasPrefix(text, "(version 1)\n(deny default)\n") {
		t.Errorf("it does not begin with a denial:\n%s", text)
	}
	at := -1
	for _, line := range []string{
		`(allow file-read* file-map-executable (subpath "/opt/tools"))`,
		`(allow file-read-metadata (literal "/Users/a"))`,
		`(allow file-write* (subpath "/private/var/t/1"))`,
		`(allow file-write* (subpath "/Users/a/work.d"))`,
		`(deny file-write* (regex #"^/Users/a/work[.]d/[.][gG][iI][tT]/[hH][oO][oO][kK][sS](/|$)"))`,
		`(deny file-write-unlink (regex #"^/Users/a/work[.]d$"))`,
		`(deny file-write-unlink (regex #"^/Users/a/work[.]d/[.][gG][iI][tT]$"))`,
		`(deny file-write-unlink (literal "/Users/a/work.d/keys"))`,
		`(deny file-read* file-write* (subpath "/Users/a/work.d/keys/id"))`,
	} {
		i := strings.Index(text, line+"\n")
		if i <= at {
			t.Errorf("%s is missing, or not where it counts:\n%s", line, text)
		}
		at = i
	}
	if strings.Count(text, "(") != strings.Count(text, ")") {
		t.Errorf("its brackets do not match:\n%s", text)
	}
	for _, word := range []string{"network", "mach-lookup", "/etc/passwd", "/tmp\"))\n(allow file-write"} {
		if strings.Contains(text, word) {
			t.Errorf("it has %q:\n%s", word, text)
		}
	}
}

// TestSeatbeltReadsOnly: a command that is not to write has no rule that lets it write in the workspace.
func TestSeatbeltReadsOnly(t *testing.T) {
	s := &seatbelt{Scratch: "/private/var/t/1", Workspace: "/Users/a/work"}
	text, err := s.profile()
	if err != nil || strings.Contains(text, `file-write* (subpath "/Users`) ||
		!strings.Contains(text, `(allow file-read* file-map-executable (subpath "/Users/a/work"))`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestSeatbeltNames: a protected name is found however it is written, and nothing else is.
func TestSeatbeltNames(t *testing.T) {
	s := &seatbelt{Workspace: "/w (1)"}
	re := regexp.MustCompile("^" + s.inAnyCase(".git/config") + "(/|$)")
	for name, want := range map[string]bool{"/w (1)/.git/config": true, "/w (1)/.GIT/Config": true,
		"/w (1)/.git/config/x": true, "/w (1)/.git/config2": false, "/w (1)/xgit/config": false,
		"/w (1)/sub/.git/config": false, "/w 1/.git/config": false} {
		if re.MatchString(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// TestSeatbeltRefusesNames: no name of a file gets out of its place in the profile.
func TestSeatbeltRefusesNames(t *testing.T) {
	for _, name := range []string{`/a"))(allow default)(x "`, `/a\`, "/a\nb", "/a^b", "a", "/", "/a/../b"} {
		for _, s := range []*seatbelt{{Scratch: name}, {Scratch: "/t", Read: []string{name}},
			{Scratch: "/t", Workspace: name, Writable: true}} {
			if text, err := s.profile(); !errors.Is(err, ErrViolation) {
				t.Errorf("%q: %v\n%s", name, err, text)
			}
		}
	}
	if text, err := (&seatbelt{Scratch: "/t", Workspace: "/w", Hidden: []string{`k"))`}}).profile(); err == nil {
		t.Errorf("a hidden file:\n%s", text)
	}
}

// TestASandboxOfAnotherSystem: to ask for it is no error of the flag, and runs nothing.
func TestASandboxOfAnotherSystem(t *testing.T) {
	other := map[bool]string{true: Native, false: Seatbelt}[len(Backends(Options{})) > 0 &&
		Backends(Options{})[0].Name() == Seatbelt]
	s, err := Open(Options{Backend: other})
	must.OK(t, err)
	if _, err := s.Probe(t.Context()); !errors.Is(err, ErrNoIsolation) {
		t.Errorf("%s: %v", other, err)
	}
}
