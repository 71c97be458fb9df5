//go:build !linux || !(amd64 || arm64)

package sandbox

import "runtime"

// open has nothing to offer: the kernel here has no namespaces, or nobody has written the filter for its processor.
func open(Options) []Sandbox {
	return []Sandbox{Refuse{Why: "commands can be isolated on Linux on amd64 and arm64 only, and this is " +
		runtime.GOOS + " on " + runtime.GOARCH +
		"; run the worker in a Linux virtual machine"}}
}
