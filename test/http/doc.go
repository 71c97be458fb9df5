// Package http is the HTTP API against whole pools: an embedded server, a dispatcher, a worker, and requests.
package http
