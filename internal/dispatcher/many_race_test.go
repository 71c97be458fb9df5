//go:build race

package dispatcher

const manyWorkspaces = 4_000
