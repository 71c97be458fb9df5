//go:build !race

package dispatcher

const manyWorkspaces = 10_000
