// Package toolname gives tools names that a provider accepts, and finds the tool again when such a name comes back.
//
// A name that the provider accepts is unchanged. In any other, "_" replaces each invalid character. If the result is
// too long, or already in use, it is cut and ends in a part of the name's hash. All of it depends only on the names, so
// that every process with the same surface makes the same table. The package is pure.
package toolname

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Rule is what a provider allows in the name of a tool: ASCII letters, digits, "_", "-" and more characters.
type Rule struct {
	Max   int    // characters
	Also  string // further characters
	Start bool   // the first is a letter or "_"
}

// The rules; docs/providers.md has their sources.
var (
	Anthropic = Rule{Max: 64}
	OpenAI    = Rule{Max: 64} // both forms
	Gemini    = Rule{Max: 128, Also: ".:", Start: true}
	MCP       = Rule{Max: 128, Also: "."}
)

// Rules lists every rule once.
var Rules = []Rule{Anthropic, Gemini, MCP}

func (r Rule) allows(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' ||
		strings.IndexByte(r.Also, c) >= 0
}

func (r Rule) starts(c byte) bool {
	return !r.Start || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

// Takes reports whether a provider accepts the name unchanged.
func (r Rule) Takes(name string) bool {
	return len(name) <= r.Max && name != "" && r.clean(name) == name
}

// clean replaces invalid characters.
func (r Rule) clean(name string) string {
	var b strings.Builder
	for _, c := range name {
		if c < 0x80 && r.allows(byte(c)) {
			b.WriteRune(c)
		} else {
			b.WriteByte('_')
		}
	}
	if s := b.String(); s != "" && r.starts(s[0]) {
		return s
	}
	return "_" + b.String()
}

// Table has the names of one surface for one provider.
type Table struct{ sent, original map[string]string }

// NewTable names the tools. reserved are names that mean something else when they come in, such as aliases and blocked
// tools: no changed name is one of them.
func NewTable(r Rule, tools, reserved []string) Table {
	t := Table{sent: map[string]string{}, original: map[string]string{}}
	taken := map[string]bool{}
	for _, name := range slices.Concat(tools, reserved) {
		taken[name] = true
	}
	wanted := map[string]int{} // how many names would be cut to the same
	var changed []string
	for _, name := range tools {
		if r.Takes(name) {
			t.sent[name] = name
		} else if !slices.Contains(changed, name) {
			changed = append(changed, name)
			wanted[r.clean(name)]++
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		short := r.clean(name)
		if len(short) > r.Max || taken[short] || wanted[short] > 1 {
			short = r.hashed(name, taken)
		}
		taken[short] = true
		t.sent[name], t.original[short] = short, name
	}
	return t
}

// hashed cuts a name and appends a prefix of its hash, as short as distinguishes it from the names in use.
func (r Rule) hashed(name string, taken map[string]bool) string {
	const step = 8 // hex digits
	sum := sha256.Sum256([]byte(name))
	digits := hex.EncodeToString(sum[:])
	clean := r.clean(name)
	for n := step; n <= r.Max-step; n += step {
		short := clean[:min(len(clean), r.Max-n-1)] + "_" + digits[:min(n, len(digits))]
		if !taken[short] {
			return short
		}
	}
	for i := 2; ; i++ { // a tool's own name equals our hashed name
		tail := fmt.Sprintf("_%s_%d", digits[:step], i)
		if short := clean[:min(len(clean), r.Max-len(tail))] + tail; !taken[short] {
			return short
		}
	}
}

// Sent is the name under which a provider gets a tool. A name that is not in the table is unchanged.
func (t Table) Sent(tool string) string {
	if s, ok := t.sent[tool]; ok {
		return s
	}
	return tool
}

// Original is the tool behind a changed name; ok is false for every other name.
func (t Table) Original(sent string) (tool string, ok bool) {
	tool, ok = t.original[sent]
	return tool, ok
}
