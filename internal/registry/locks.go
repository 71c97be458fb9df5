package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// CheckLocks says what is wrong with the locks of a declaration. Each field must be one that every input has.
func CheckLocks(d *tool.Declaration) error {
	if len(d.Locks) == 0 {
		return nil
	}
	if len(d.Locks) > tool.MaxLocks {
		return fmt.Errorf("locks: has %d; at most %d are allowed", len(d.Locks), tool.MaxLocks)
	}
	if !d.NeedsWorkspace() {
		return errors.New("locks: are names in the workspace, which the tool does not use")
	}
	var in struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(d.InputSchema, &in); err != nil {
		return fmt.Errorf("locks: the input schema: %w", err)
	}
	readOnly := d.Class.Static == toolyard.ReadOnly
	exclusive := readOnly
	for i, text := range d.Locks {
		rule, err := tool.ParseLockRule(text)
		if err != nil {
			return fmt.Errorf("locks[%d]: %w", i, err)
		}
		exclusive = exclusive || !rule.Shared
		for _, name := range rule.Fields() {
			if _, ok := in.Properties[name]; !ok || !slices.Contains(in.Required, name) {
				return fmt.Errorf("locks[%d]: {%s} is not a property that the input schema requires", i, name)
			}
		}
	}
	if !exclusive {
		return errors.New("locks: a tool that writes needs one that is not shared")
	}
	return nil
}

// Locks are the names that a call of a class needs in place of the whole workspace, sorted. Nil: it needs the whole, as
// it does wherever a name cannot be told for certain.
func Locks(d *tool.Declaration, v schema.Value, class toolyard.Class) []tool.Lock {
	if len(d.Locks) == 0 || len(d.Locks) > tool.MaxLocks || !d.NeedsWorkspace() ||
		class != toolyard.ReadOnly && class != toolyard.WriteExclusive {
		return nil
	}
	fields, _ := v.Doc().(map[string]any)
	all := make([]tool.Lock, 0, len(d.Locks))
	exclusive := class.Safe()
	for _, text := range d.Locks {
		rule, err := tool.ParseLockRule(text)
		if err != nil {
			return nil
		}
		name, ok := lockName(&rule, fields)
		if !ok {
			return nil
		}
		all = append(all, tool.Lock{Name: name, Shared: rule.Shared || class.Safe()})
		exclusive = exclusive || !rule.Shared
	}
	if !exclusive {
		return nil
	}
	return JoinLocks(all)
}

// HoldAll reports whether held has all names that a call with another input needs.
func HoldAll(held []tool.Lock, d *tool.Declaration, v schema.Value, class toolyard.Class) bool {
	needs := Locks(d, v, class)
	return len(needs) > 0 && !slices.ContainsFunc(needs, func(l tool.Lock) bool {
		return !tool.Hold(held, l.Name, l.Shared)
	})
}

// LockText is locks as a person reads them.
func LockText(locks []tool.Lock) string {
	var out []string
	for _, l := range locks {
		if l.Shared {
			l.Name += " (shared)"
		}
		out = append(out, l.Name)
	}
	return strings.Join(out, ", ")
}

// JoinLocks sorts locks and leaves one for each name, which is shared if all of that name are.
func JoinLocks(all []tool.Lock) []tool.Lock {
	all = slices.SortedFunc(slices.Values(all), func(a, b tool.Lock) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 || a.Shared == b.Shared {
			return c
		}
		if b.Shared {
			return -1 // the one that is not shared is kept
		}
		return 1
	})
	return slices.CompactFunc(all, func(a, b tool.Lock) bool { return a.Name == b.Name })
}

// lockName fills a rule with the fields of an input. ok is false for a name that cannot be told for certain.
func lockName(r *tool.LockRule, fields map[string]any) (name string, ok bool) {
	if r.Parts == nil {
		return r.Space, true
	}
	var b strings.Builder
	for i, part := range r.Parts {
		if i%2 == 1 {
			for other := range fields { // encoding/json treats them as one: what is locked might not be what is used
				if other != part && strings.EqualFold(other, part) {
					return "", false
				}
			}
			text, ok := lockValue(fields[part])
			if !ok {
				return "", false
			}
			part = text
		}
		b.WriteString(part)
	}
	if r.Space == tool.FileSpace {
		return FileLock(b.String())
	}
	return shortName(r.Space, b.String()), true
}

// lockValue is a field as a part of a name. Numbers are written in many ways, and only strings are compared as they
// stand.
func lockValue(v any) (string, bool) {
	s, ok := v.(string)
	return s, ok && s != ""
}

// FileLock is the name of a path's lock. ok is false if the path does not show for certain which file it means: if it
// is absolute, leads through "..", or has what some file system reads in another way. Letter case does not count, since
// some file systems ignore it; two files that differ only in it then share a lock.
//
// It does not look at the directory. Who uses the lock must see to it that no symbolic link lies on the path.
func FileLock(path string) (name string, ok bool) {
	if strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return "", false
	}
	for i := range len(path) {
		if c := path[i]; c < ' ' || c > '}' || strings.IndexByte(`\:*?"<>|`, c) >= 0 {
			return "", false
		}
	}
	var names []string
	for n := range strings.SplitSeq(path, "/") {
		switch {
		case n == "" || n == ".":
		case strings.HasSuffix(n, ".") || strings.HasSuffix(n, " "): // ".." too
			return "", false
		default:
			names = append(names, strings.ToLower(n))
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return shortName(tool.FileSpace, strings.Join(names, "/")), true
}

// shortName is a name of a space that is not longer than names may be, and plain text.
func shortName(space, rest string) string {
	name := space + ":" + rest
	plain := !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' })
	if len(name) <= tool.MaxLockNameBytes && plain {
		return name
	}
	sum := sha256.Sum256([]byte(rest))
	return space + ":sha256-" + hex.EncodeToString(sum[:])
}
