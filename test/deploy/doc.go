// Package deploy tests what is in the directory deploy: that its files mean something to the programs that read them,
// and, with -docker, that the system that they describe runs and keeps what it promises. It is a module of its own:
// nobody else downloads Compose.
package deploy
