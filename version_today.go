//go:build !nextversion

package toolyard

// yetToCome is 1 in the build that stands for the next version in the tests of upgrades.
const yetToCome = 0
