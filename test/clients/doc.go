// Package clients tests the clients in TypeScript and Python against a real dispatcher with a worker.
package clients
