//go:build !darwin && (!linux || !(amd64 || arm64))

package sandbox

import "runtime"

// open has no backend: the kernel has no namespaces, or there is no filter for this processor.
func open(Options) []Sandbox {
	return []Sandbox{Refuse{Why: "commands can be isolated on Linux on amd64 and arm64 only, and this is " +
		runtime.GOOS + " on " + runtime.GOARCH +
		"; run the worker in a Linux virtual machine"}}
}
