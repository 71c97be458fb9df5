//go:build !race

package lock

const manyWorkspaces = 10_000
