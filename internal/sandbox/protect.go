package sandbox

import "github.com/toolyard/toolyard/internal/sandbox/stage"

// leased is a workspace that is ready for one run.
type leased struct {
	dir      string // without symbolic links
	dev, ino uint64
	writable bool
	// a prepared mount; 0: the stage mounts dir itself
	fd      int
	protect []stage.Protected
	masks   []stage.Mask // what is hidden from the command
}
