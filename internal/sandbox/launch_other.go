//go:build !unix

package sandbox

import (
	"errors"
	"os/exec"
)

// ownSession refuses: on this system the processes that a program starts could not be stopped.
func ownSession(*exec.Cmd) error {
	return errors.New("programs cannot be launched on this system: nothing would end what they start; run the worker " +
		"on Linux or macOS")
}

func killTree(int, string) error { return nil }

func tellGroup(int) error { return errors.New("there are no process groups") }
