// Package console drives the web console in a real browser: what its pages show, what can be done there, whether they
// are accessible, and what they look like. It also takes the pictures of what commands show on a terminal.
package console
