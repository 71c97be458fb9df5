// Package server is the pool as a server of the Model Context Protocol: the tools of the surface are listed, and each
// call is a batch of one call. It speaks the protocol's current revision, where every request stands alone, and those
// before it, which have sessions; over HTTP and over a pipe.
//
// It keeps nothing that is not lost without harm: what was accepted is a batch like any other, and whoever asks for an
// offloaded result, or answers a question, gets what the pool has stored. Whose things a request means is decided by
// whoever mounts it.
package server
