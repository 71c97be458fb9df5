// Package mcp is the pool as an MCP server against whole pools, through the HTTP API's door and over a pipe, in both of
// the protocol's ways: with sessions, and without. The clients are those of the protocol's own library.
package mcp
