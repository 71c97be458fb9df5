// Package display writes a call's input in lines for a person who decides whether the call may run. The terminal and
// MCP clients show the same lines.
//
// What is shown determines the input: two inputs that mean different things have different lines, whatever the width.
// All of the input is there or an error wraps [ErrPart], and then nobody may be asked. Characters that a screen does
// not show, or that change how it shows others, stand as marks such as ⟨U+202E bidi⟩: controls, bidirectional and
// zero-width characters, tags, variation selectors, blanks that are not U+0020, letters written from right to left,
// letters of another script inside a Latin word. A run of blanks is marked, and so is one at either end of a line. Each
// line of a text stands behind a mark of its own ("|", "-", "+", and ">" where a long line goes on), so that no text
// looks like anything but text.
//
// A letter that looks like another one, in a word of its own script, is not marked.
//
// The package is pure.
package display
