// Package install installs the commands in each way that the documents name: with go install, with npx, and as a
// module of somebody's program. Nothing comes from the network that the module cache has.
package install
