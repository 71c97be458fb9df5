//go:build !linux

package sandbox

import (
	"context"

	held "github.com/toolyard/toolyard/internal/place"
)

// Recover undoes in a workspace what a killed worker has left: nothing on a system where no command runs.
func Recover(context.Context, *held.Root) error { return nil }
