//go:build nextversion

package version

// yetToCome makes this build one of the next version, for the tests of upgrades: it writes what today's does not know.
// Whoever looks for all of it looks for the tag.
const yetToCome = 1
