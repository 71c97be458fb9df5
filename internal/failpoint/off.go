//go:build !failpoints

package failpoint

// Enabled is false in this build: what stands behind it is not compiled.
const Enabled = false

// Hit does nothing in this build.
func Hit(Name) {}

// HitIf does nothing in this build.
func HitIf(bool, Name) {}
