package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// seatbelt is what a command may use under macOS's sandbox-exec. All paths are absolute, clean and without symbolic
// links; those below the workspace are relative to it.
type seatbelt struct {
	Read      []string // directories and files that it reads besides the system's
	Scratch   string   // its own directory for temporary files
	Workspace string   // empty: none
	Writable  bool
	Protected []string // what it may not write, whether it exists or not
	Hidden    []string // what it may neither read nor write
	Pins      []string // directories above what is hidden: they keep their names
}

// seatbeltSystem are the places of macOS that every command reads. None has users, keys or sockets.
var seatbeltSystem = []string{"/usr", "/bin", "/sbin", "/System", "/Library/Apple",
	"/Library/Developer/CommandLineTools", "/private/etc/ssl", "/private/var/db/timezone", "/private/var/db/dyld",
	"/private/etc/localtime", "/private/etc/protocols", "/private/etc/services", "/dev/fd"}

// seatbeltBase allows what any program needs to start. Reading of sysctl is by name: kern.procargs2 shows the
// environment of other processes of the same user.
const seatbeltBase = `(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read (sysctl-name-prefix "hw.") (sysctl-name "kern.argmax") (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.osproductversion") (sysctl-name "kern.osrelease") (sysctl-name "kern.ostype")
  (sysctl-name "kern.osversion") (sysctl-name "kern.usrstack64") (sysctl-name "kern.version")
  (sysctl-name "machdep.cpu.brand_string") (sysctl-name "vm.loadavg"))
(allow file-read* (literal "/") (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random")
  (literal "/dev/urandom"))
(allow file-read-metadata (literal "/etc") (literal "/tmp") (literal "/var") (literal "/dev"))
(allow file-write-data (literal "/dev/null") (literal "/dev/zero") (subpath "/dev/fd"))
`

// profile is the text for sandbox-exec. Of the rules that match, the last one counts.
func (s *seatbelt) profile() (string, error) {
	var b strings.Builder
	b.WriteString(seatbeltBase)
	rule := func(what, filter string, paths ...string) {
		for _, p := range paths {
			fmt.Fprintf(&b, "(%s (%s \"%s\"))\n", what, filter, p)
		}
	}
	reads := slices.Concat(seatbeltSystem, s.Read, []string{s.Scratch})
	if s.Workspace != "" {
		reads = append(reads, s.Workspace)
	}
	below := func(names []string) (paths []string) {
		for _, n := range names {
			paths = append(paths, path.Join(s.Workspace, n))
		}
		return paths
	}
	hidden, pins := below(s.Hidden), below(s.Pins)
	for _, p := range slices.Concat(reads, hidden, pins, below(s.Protected)) {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsAny(p, `"\^`) ||
			strings.ContainsFunc(p, unicode.IsControl) {
			return "", fmt.Errorf("%w: a sandbox profile cannot name the path %q", ErrViolation, p)
		}
	}
	rule("allow file-read* file-map-executable", "subpath", reads...)
	rule("allow file-read-metadata", "literal", ancestors(reads)...)
	rule("allow file-write*", "subpath", s.Scratch)
	if s.Workspace != "" && s.Writable {
		rule("allow file-write*", "subpath", s.Workspace)
		onWay := []string{""}
		for _, p := range s.Protected {
			fmt.Fprintf(&b, "(deny file-write* (regex #\"^%s(/|$)\"))\n", s.inAnyCase(p))
			onWay = append(onWay, parentsOf(p)...)
		}
		slices.Sort(onWay)
		for _, dir := range slices.Compact(onWay) { // under another name, what is in it would be another place
			fmt.Fprintf(&b, "(deny file-write-unlink (regex #\"^%s$\"))\n", s.inAnyCase(dir))
		}
	}
	rule("deny file-write-unlink", "literal", pins...)
	rule("deny file-read* file-write*", "subpath", hidden...)
	b.WriteString("(deny file-write-setugid)\n")
	return b.String(), nil
}

// inAnyCase is a regular expression for a name below the workspace, however it is written: the file systems of macOS
// take .GIT for .git. The workspace's own name is as the kernel has it.
func (s *seatbelt) inAnyCase(name string) string {
	var b strings.Builder
	one := func(r rune) {
		if strings.ContainsRune(".+*?()[]{}|$", r) {
			fmt.Fprintf(&b, "[%c]", r)
		} else {
			b.WriteRune(r)
		}
	}
	for _, r := range s.Workspace {
		one(r)
	}
	if name != "" {
		b.WriteByte('/')
	}
	for _, r := range name {
		if low, up := unicode.ToLower(r), unicode.ToUpper(r); low != up {
			fmt.Fprintf(&b, "[%c%c]", low, up)
		} else {
			one(r)
		}
	}
	return b.String()
}

// ancestors are the directories above paths, without the root.
func ancestors(paths []string) (dirs []string) {
	for _, p := range paths {
		for p = path.Dir(p); p != "/"; p = path.Dir(p) {
			dirs = append(dirs, p)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// parentsOf are the directories on the way to a relative path.
func parentsOf(p string) (dirs []string) {
	for i, c := range p {
		if c == '/' {
			dirs = append(dirs, p[:i])
		}
	}
	return dirs
}
