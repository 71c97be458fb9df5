package sandbox

import "github.com/toolyard/toolyard/internal/sandbox/stage"

// hide finds what must be hidden from the command in the workspace.
func (l *lease) hide(hides func(path string) bool) error {
	found, err := hidden(l.root, hides)
	pinned := map[string]bool{}
	for _, h := range found {
		for _, dir := range h.Pins {
			if !pinned[dir] {
				pinned[dir] = true
				l.protect = append(l.protect, stage.Protected{Path: dir, Writable: true})
			}
		}
		l.masks = append(l.masks, stage.Mask{Path: h.Path, Dir: h.Dir})
	}
	return err
}
