package toolyard

import "encoding/json"

// Form is what a tool asks a person for while its call runs: an elicitation of an MCP server.
type Form struct {
	// Server names the MCP server that asks, and Message is its question.
	Server  string `json:"server" doc:"The MCP server that asks."`
	Message string `json:"message" doc:"What it asks, in the server's words."`
	// Schema is the JSON Schema of an answer. It is that of an object whose fields are single values or lists of them.
	Schema json.RawMessage `json:"schema" doc:"The JSON Schema of the answer, an object."`
}
