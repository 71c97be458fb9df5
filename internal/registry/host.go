package registry

import (
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// Host is a worker's ability to isolate calls, as it announces it. The zero Host can isolate none.
type Host struct {
	// Isolation names the sandbox of its commands; empty and "none": no sandbox.
	Isolation string
	// Unsandboxed says that its operator lets it run everything without isolation.
	Unsandboxed bool
}

// Isolates reports whether commands of the worker are isolated.
func (h Host) Isolates() bool { return h.Isolation != "" && h.Isolation != "none" }

// Refuses says, for the model, why a worker cannot isolate a call of a tool that has a class, and so does not run it.
// Empty: it runs it.
func (h Host) Refuses(d *tool.Declaration, c toolyard.Class) string {
	switch {
	case h.Unsandboxed || !d.NeedsIsolation(c):
		return ""
	case d.Execution == tool.InWorker:
		return fmt.Sprintf("This call of %q counts as UNSAFE and must run isolated, and the tool runs in the "+
			"worker's own process, which cannot isolate it.", d.Name)
	case d.Execution == tool.InSandbox && h.Isolates():
		return ""
	}
	return fmt.Sprintf("This call of %q must run isolated, and its worker cannot isolate anything.", d.Name)
}

// RunsUnsafe reports whether a worker runs any UNSAFE call of a tool.
func (h Host) RunsUnsafe(d *tool.Declaration) bool { return h.Refuses(d, toolyard.Unsafe) == "" }
