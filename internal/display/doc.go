// Package display shows a call's input in lines to a person who decides whether the call may run. The terminal and MCP
// clients show the same lines.
//
// The lines determine the input: two inputs with different meanings have different lines, whatever the width. The whole
// input is shown, or an error wraps [ErrPart], and then nobody may be asked. Characters that a screen does not show, or
// that change how it shows others, are replaced by marks such as ⟨U+202E bidi⟩: controls, bidirectional and zero-width
// characters, tags, variation selectors, blanks that are not U+0020, letters written from right to left, letters of
// another script inside a Latin word. A run of blanks is marked, and so is a blank at either end of a line. Each line
// of a text has a prefix ("|", "-", "+", and ">" where a long line continues), so that no text can look like structure.
//
// A letter that looks like another one, in a word of its own script, is not marked.
//
// The package is pure.
package display
