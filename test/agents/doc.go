// Package agents tests the examples that are agents: whole programs against a real pool and a server that speaks the
// providers' wire formats, whose model follows a script and takes no mistake. It only has tests.
package agents
