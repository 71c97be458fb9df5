//go:build !unix

package api

import "io/fs"

// own reports whether a file belongs to the user of this process. Here nobody asks.
func own(fs.FileInfo) bool { return true }
