//go:build !nextversion

package version

// yetToCome is 1 in the build that stands for the next version in the tests of upgrades.
const yetToCome = 0
