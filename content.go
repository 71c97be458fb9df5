package toolyard

import "encoding/json"

// ContentType is what a part of an output is.
type ContentType string

// The kinds of parts, which are those of MCP.
const (
	ContentText     ContentType = "text"          // Text
	ContentImage    ContentType = "image"         // Data and MIMEType
	ContentAudio    ContentType = "audio"         // Data and MIMEType
	ContentResource ContentType = "resource"      // URI, MIMEType and either Text or Data: a document that is here
	ContentLink     ContentType = "resource_link" // URI, Name and what else is known: a document that can be fetched
	ContentTool     ContentType = "tool"          // Name: a tool whose definition the model is to see from here on
)

// Content is one part of an output that is more than text.
type Content struct {
	Type        ContentType `json:"type"`
	Text        string      `json:"text,omitempty"`
	MIMEType    string      `json:"mime_type,omitempty"`
	Data        []byte      `json:"data,omitempty"` // in base64
	URI         string      `json:"uri,omitempty"`
	Name        string      `json:"name,omitempty"`
	Title       string      `json:"title,omitempty"`
	Description string      `json:"description,omitempty"`
}

// Echo is what a provider wants to have back with the result of a call, beside its id, as the provider's own fields: the
// caller of a program's call, the namespace or the toolset of a tool. Nothing of ours reads it. A JSON object of at most
// [MaxEchoBytes], or nil.
type Echo = json.RawMessage
