//go:build !unix

package builtin

import (
	"io/fs"
	"os"
)

// owner is to whom something belongs: nobody is told here.
type owner struct{}

func ownerOf(fs.FileInfo) owner { return owner{} }

func (w *workspace) maker(string) owner { return owner{} }

func (owner) give(*os.File) {}

func (owner) giveDir(*os.Root, string) {}
