//go:build race

package lock

const manyWorkspaces = 4_000
