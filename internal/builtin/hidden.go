package builtin

import (
	"errors"
	"io/fs"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// errHidden is wrapped by the error of a place that permission rules hide. Checks leave such a place to permission,
// whose message names the rule.
var errHidden = errors.New("a permission rule hides this place")

// hidden reports whether a path below the workspace's directory, without symbolic links, is hidden.
func (w *workspace) hidden(name string) bool { return w.hides != nil && w.hides(name) }

// hiddenFault is the error of a hidden place.
func hiddenFault(t target) error {
	return &tool.Error{Code: toolyard.SandboxViolation, Err: errHidden,
		Message: t.field + " " + show(t.written) + " is hidden by a permission rule; do without it"}
}

// shownFile returns an error if an open file is hidden under another name.
func (w *workspace) shownFile(t target, info fs.FileInfo) error {
	id, names := place.Identify(info)
	if w.hides == nil || names < 2 {
		return nil
	}
	if w.linked == nil {
		linked, err := place.Linked(w.root, w.hides)
		if err != nil {
			return &tool.Error{Code: toolyard.SandboxViolation, Err: err,
				Message: "the worker cannot tell whether a permission rule hides this file under another name; an " +
					"operator can see why"}
		}
		w.linked = linked
	}
	if w.linked[id] {
		return hiddenFault(t)
	}
	return nil
}
