package tool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Lock is a name in a workspace that a call takes in place of the whole workspace. A call that shares a name runs
// beside others that share it. Zero: not shared.
type Lock struct {
	Name   string `json:"name"`
	Shared bool   `json:"shared,omitempty"`
}

// Hold reports whether somebody who holds some locks has a name, to change what it stands for or only to read it.
func Hold(held []Lock, name string, shared bool) bool {
	return slices.ContainsFunc(held, func(l Lock) bool { return l.Name == name && (shared || !l.Shared) })
}

// The limits of named locks.
const (
	MaxLocks         = 8   // of one call
	MaxLockRuleBytes = 256 // of one text in [Declaration].Locks
	MaxLockNameBytes = 128 // of one name; a longer one is its space and a hash
)

// FileSpace is the space of names that are files of the workspace: the fields in such a name are paths.
const FileSpace = "file"

// LockRule is a text of [Declaration].Locks, taken apart: "[shared ]SPACE[:TEXT]". The space is the tool's own word, so
// that no input makes a name of another space. In the text {field} stands for a field of the input.
type LockRule struct {
	Shared bool
	Space  string
	// Parts alternate: text, field, text, ... Nil: the name is the space.
	Parts []string
}

// Fields are the input's fields that the rule names.
func (r *LockRule) Fields() (out []string) {
	for i := 1; i < len(r.Parts); i += 2 {
		out = append(out, r.Parts[i])
	}
	return out
}

var (
	lockSpace = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	lockField = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)
)

// ParseLockRule takes a text of [Declaration].Locks apart. The error says what to write instead.
func ParseLockRule(text string) (LockRule, error) {
	if len(text) > MaxLockRuleBytes {
		return LockRule{}, fmt.Errorf("has %d bytes; at most %d are allowed", len(text), MaxLockRuleBytes)
	}
	name, shared := strings.CutPrefix(text, "shared ")
	space, rest, more := strings.Cut(name, ":")
	r := LockRule{Shared: shared, Space: space}
	if !lockSpace.MatchString(space) {
		return r, fmt.Errorf("%q does not begin with a space of names; write one to 32 of a-z, 0-9, _ and -, then a "+
			"colon, as in db:{database}", text)
	}
	if !more {
		if space == FileSpace {
			return r, fmt.Errorf("%q names no file; write %s:{field}", text, FileSpace)
		}
		return r, nil
	}
	last := 0
	for _, at := range lockField.FindAllStringSubmatchIndex(rest, -1) {
		r.Parts = append(r.Parts, rest[last:at[0]], rest[at[2]:at[3]])
		last = at[1]
	}
	r.Parts = append(r.Parts, rest[last:])
	for i := 0; i < len(r.Parts); i += 2 {
		if strings.ContainsAny(r.Parts[i], "{}") {
			return r, fmt.Errorf("%q has a brace that belongs to no {field}", text)
		}
	}
	switch {
	case rest == "":
		return r, fmt.Errorf("%q has nothing behind the colon", text)
	case space == FileSpace && (len(r.Parts) != 3 || r.Parts[0] != "" || r.Parts[2] != ""):
		return r, fmt.Errorf("%q is no file; write %s:{field}, for a field that is a path", text, FileSpace)
	}
	return r, nil
}
