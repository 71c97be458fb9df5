package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/tool"
)

// kind says what a tool's specifiers match.
type kind string

const (
	kindNone    kind = "" // nothing, or a declaration that names more than one field
	kindCommand kind = "command"
	kindPath    kind = "path"
	kindURL     kind = "url"
)

// specifierOf returns the kind and the input field of a tool's specifiers.
func specifierOf(d *tool.Declaration) (kind, string) {
	switch s := d.Specifier; s {
	case tool.Specifier{Command: s.Command}:
		if s.Command != "" {
			return kindCommand, s.Command
		}
	case tool.Specifier{Path: s.Path}:
		return kindPath, s.Path
	case tool.Specifier{URL: s.URL}:
		return kindURL, s.URL
	}
	return kindNone, ""
}

// Field returns the string at a top-level field of an input. ok is false if the field is missing, is not a string, or
// occurs more than once. Names that differ only in case count as equal, because encoding/json treats them as equal: a
// decision about one value must not be used for another. Code that judges an input by one field should use this
// function.
func Field(input json.RawMessage, name string) (value string, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(input))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	var found *string
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return "", false
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return "", false
		}
		k, _ := key.(string)
		if !strings.EqualFold(k, name) {
			continue
		}
		if found != nil || k != name || json.Unmarshal(raw, &found) != nil || found == nil {
			return "", false
		}
	}
	if _, err := dec.Token(); err != nil || found == nil {
		return "", false
	}
	return *found, true
}

// PathField is [Field] for the path that an input names. A path that is left out, or null, is the workspace itself. ok
// is false if there is one that cannot be told, such as a list of paths: then no rule may take the call for one of the
// workspace as a whole.
func PathField(input json.RawMessage, name string) (path string, ok bool) {
	if path, ok = Field(input, name); ok {
		return path, true
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return "", false
	}
	for k, raw := range fields {
		if strings.EqualFold(k, name) && (k != name || string(raw) != "null") {
			return "", false
		}
	}
	return ".", true
}

// subject is what the rules of one call are matched against, read once.
type subject struct {
	kind         kind
	value        string // of the field; for paths see paths
	known        bool
	script       shell.Script // of a command that could be read
	why          string       // why the value is unknown, for people
	paths        []string     // clean and relative
	workspaceDir string
	elsewhere    bool   // a command may begin in another directory
	rulesDir     string // the directory that rules with absolute paths name
}

func newSubject(req *Request) *subject {
	s := &subject{workspaceDir: req.WorkspaceDir, rulesDir: cmp.Or(req.RulesDir, req.WorkspaceDir),
		elsewhere: req.Elsewhere}
	var field string
	switch s.kind, field = specifierOf(req.Declaration); s.kind {
	case kindNone:
		s.why = "the tool has no input that a specifier is matched against"
	case kindPath:
		s.paths, s.known = cleanPaths(req.Paths)
		s.why = "the path is not known to be inside the workspace"
	default:
		s.value, s.known = Field(req.Input, field)
		s.why = "the input has no single text at " + field
	}
	if s.kind == kindCommand && s.known {
		script, err := shell.Parse(s.value)
		s.script, s.known = script, err == nil
		if err != nil {
			s.why = err.Error()
		}
	}
	return s
}

// mayMatch reports whether a deny or ask rule with a specifier matches or may match. If it only may, why says what is
// unknown.
func (s *subject) mayMatch(r Rule) (match bool, why string) {
	if !s.known {
		return true, s.why
	}
	var err error
	switch s.kind {
	case kindCommand:
		var p *commandPattern
		if p, err = r.commandPattern(); err == nil {
			return p.mayMatchScript(s.script)
		}
	case kindPath:
		if match, err = matchAnyPath(r.Specifier, s.rulesDir, s.paths); err == nil {
			return match, ""
		}
	case kindURL:
		var domain, host string
		if domain, err = parseDomain(r.Specifier); err == nil {
			if host, err = hostOf(s.value); err == nil {
				return within(host, domain), ""
			}
		}
	}
	return true, err.Error()
}

// means reports whether the words of a command mean what they mean at the top of the workspace. Elsewhere a program of
// a relative path is another one.
func (s *subject) means() bool {
	return !s.elsewhere || s.known && !slices.ContainsFunc(s.script.Commands, func(c shell.Command) bool {
		return runsNearby(c.Args)
	})
}

// covers reports whether an allow rule with a specifier matches the whole call, for paths and URLs. For commands,
// several rules cover a call together: see coveredCommands.
func (s *subject) covers(r Rule) bool {
	if !s.known {
		return false
	}
	switch s.kind {
	case kindPath:
		match, err := matchAllPaths(r.Specifier, s.rulesDir, s.paths)
		return match && err == nil
	case kindURL:
		domain, err := parseDomain(r.Specifier)
		if err != nil {
			return false
		}
		host, err := hostOf(s.value)
		return err == nil && within(host, domain)
	}
	return false
}
