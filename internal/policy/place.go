package policy

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// cleanPaths makes the forms of a path clean. ok is false if there is none, or one is not relative to the workspace.
func cleanPaths(paths []string) (clean []string, ok bool) {
	for _, p := range paths {
		c := path.Clean(p)
		if p == "" || path.IsAbs(c) || c == ".." || strings.HasPrefix(c, "../") {
			return nil, false
		}
		clean = append(clean, c)
	}
	return clean, len(clean) > 0
}

// checkPathPattern says what is wrong with a path specifier, as far as that is known without the workspace's directory.
func checkPathPattern(pattern string) error {
	switch {
	case strings.HasPrefix(pattern, "~"):
		return errors.New("~ is not expanded; write a path relative to the workspace")
	case strings.HasPrefix(pattern, "!"):
		return errors.New("a rule has no exceptions; write the ! as [!] if a name begins with it")
	case strings.Contains("/"+pattern+"/", "/../"):
		return errors.New("a path has no .. left when it is matched; write it without")
	case strings.Count(pattern, "{") > maxBraces || strings.Count(pattern, ",") > maxAlternatives:
		return fmt.Errorf("it has more than %d braces or %d commas; write several rules", maxBraces, maxAlternatives)
	case !doublestar.ValidatePattern(pattern):
		return errors.New("it is not a glob; check its brackets and braces")
	case !path.IsAbs(pattern) && coversAll(belowGlob(pattern)):
		return errors.New("it covers the whole workspace; for every call write just the tool")
	}
	for rest := pattern; ; {
		before, after, ok := strings.Cut(rest, "**")
		switch {
		case !ok:
			return nil
		case before != "" && !strings.ContainsAny(before[len(before)-1:], "/{,"), after != "" &&
			!strings.ContainsAny(after[:1], "/},"):
			return errors.New("** means any depth only as a whole part of the path, as in docs/**/*.md")
		}
		rest = after
	}
}

// Alternatives in braces multiply the work of a match: without limits a short rule could run for hours.
const (
	maxBraces       = 4
	maxAlternatives = 32
)

// errElsewhere says that an absolute pattern names another directory than the workspace.
var errElsewhere = errors.New("the pattern is not inside the workspace; write it relative")

// relativeGlob turns a path specifier into a glob of paths relative to the workspace, which matches what the
// specifier covers.
func relativeGlob(pattern, workspaceDir string) (string, error) {
	if err := checkPathPattern(pattern); err != nil {
		return "", err
	}
	if !path.IsAbs(pattern) {
		return belowGlob(pattern), nil
	}
	inside, ok := strings.CutPrefix(pattern, strings.TrimSuffix(path.Clean(workspaceDir), "/")+"/")
	if workspaceDir == "" || !ok {
		return "", errElsewhere
	}
	glob := belowGlob("./" + inside)
	if coversAll(glob) {
		return "", errors.New("it covers the whole workspace; for every call write just the tool")
	}
	return glob, nil
}

// belowGlob reads a relative specifier as .gitignore does: without a slash, except at its end, it means a name at any
// depth, otherwise a path from the workspace's top. It also covers everything below what it matches.
func belowGlob(pattern string) string {
	name := strings.TrimRight(pattern, "/")
	anywhere := !strings.Contains(name, "/")
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[len("./"):], "/")
	}
	if anywhere && name != "." {
		name = "**/" + name
	}
	if name != "**" && !strings.HasSuffix(name, "/**") {
		name += "/**"
	}
	return name
}

// coversAll reports whether a glob matches every name at a workspace's top.
func coversAll(glob string) bool {
	const initials = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	for _, c := range initials {
		if !doublestar.MatchUnvalidated(glob, string(c)+"zq-a-name-that-nobody-gives.xw") {
			return glob == "./**" || glob == "/**"
		}
	}
	return true
}

// matchGlob reports whether a glob of [relativeGlob] matches a clean path. No glob covers the workspace itself.
func matchGlob(glob, p string) bool { return p != "." && doublestar.MatchUnvalidated(glob, p) }

func matchAnyPath(pattern, workspaceDir string, paths []string) (bool, error) {
	glob, err := relativeGlob(pattern, workspaceDir)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(paths, func(p string) bool { return matchGlob(glob, p) }), nil
}

func matchAllPaths(pattern, workspaceDir string, paths []string) (bool, error) {
	glob, err := relativeGlob(pattern, workspaceDir)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(paths, func(p string) bool { return !matchGlob(glob, p) }), nil
}

// parseDomain reads the specifier "domain:example.com".
func parseDomain(specifier string) (string, error) {
	domain, ok := strings.CutPrefix(specifier, "domain:")
	if !ok {
		return "", errors.New("a URL's specifier is domain:example.com")
	}
	domain, err := plainHost(domain)
	if err != nil {
		return "", fmt.Errorf("%q is not a plain domain: %w", domain, err)
	}
	return domain, nil
}

// hostOf returns the host of an http or https URL. It fails on URLs that two parsers might read as two different hosts.
func hostOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("the URL does not parse")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("the URL is not an http or https one")
	case u.User != nil:
		return "", errors.New("the URL has user information")
	case u.Opaque != "":
		return "", errors.New("the URL has no host")
	}
	return plainHost(u.Hostname())
}

// plainHost returns a host name in lower case without its last dot. It consists of ASCII letters, digits, "-" and "_"
// in labels. A name whose last label is a number must be an IPv4 address in its usual form, because other forms
// (0x7f.1) are addresses in disguise.
func plainHost(host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if l == "" || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return host, errors.New("the host name is not plain")
		}
	}
	last := labels[len(labels)-1]
	if last[0] >= '0' && last[0] <= '9' {
		if len(labels) != 4 {
			return host, errors.New("the host is an unusual IP address")
		}
		for _, l := range labels {
			if strings.Trim(l, "0123456789") != "" || len(l) > 3 || len(l) > 1 && l[0] == '0' {
				return host, errors.New("the host is an unusual IP address")
			}
		}
	}
	return host, nil
}

// within reports whether a host is a domain or one of its subdomains. An IP address has no subdomains.
func within(host, domain string) bool {
	if host == domain {
		return true
	}
	digit := domain[len(domain)-1] >= '0' && domain[len(domain)-1] <= '9'
	return strings.HasSuffix(host, "."+domain) && !(digit && strings.Count(domain, ".") == 3)
}
