// Package manifest reads the files in which an operator declares tools that are not Go: commands, HTTP endpoints,
// WebAssembly modules and MCP servers. It says what is declared; other packages run it.
//
// A tool is a declaration, with the same keys as everywhere and the same strictest defaults, and beside it a
// command, an HTTP request or a module. Placeholders, {field}, stand for fields of the call's input: in a command for
// exactly one argument, or a part of one, in a URL for a segment of the path or a value of the query. No shell is
// involved, and no value leaves its place.
//
// Authority: the file is the operator's. What is wrong with it is an error that names the key; nothing of a file that
// is wrong is used.
//
// The package is pure.
package manifest
