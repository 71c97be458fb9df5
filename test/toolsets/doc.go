// Package toolsets runs pools whose workers have tools that are not Go: commands, HTTP endpoints and MCP servers.
package toolsets
