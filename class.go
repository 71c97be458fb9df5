package toolyard

// Class is a call's concurrency class. It is judged for each call at dispatch, from its parsed input, and it alone
// decides what may run beside the call. The empty Class is read as UNSAFE, the strictest.
type Class string

// The concurrency classes, from the loosest to the strictest.
const (
	// ReadOnly calls change nothing that others can see: any number of them run together.
	ReadOnly Class = "READ_ONLY"
	// WriteExclusive calls change shared state: one runs alone in its workspace.
	WriteExclusive Class = "WRITE_EXCLUSIVE"
	// Unsafe calls have effects that are hard to bound: one runs alone in its workspace, and isolated.
	Unsafe Class = "UNSAFE"
)

// Classes lists every class, the loosest first.
var Classes = []Class{ReadOnly, WriteExclusive, Unsafe}

// Safe reports whether calls of this class may run beside each other.
func (c Class) Safe() bool { return c == ReadOnly }

// Known reports whether c is one of [Classes].
func (c Class) Known() bool { return c == ReadOnly || c == WriteExclusive || c == Unsafe }

// Strictness orders the classes: 0 for READ_ONLY, 2 for UNSAFE and for anything unknown.
func (c Class) Strictness() int {
	switch c {
	case ReadOnly:
		return 0
	case WriteExclusive:
		return 1
	default:
		return 2
	}
}
