package toolyard

import (
	"encoding/json"
	"fmt"
	"strings"
)

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
	// WireName is the name of a ContentTool for providers that do not take Name as it is, and Schema its input schema,
	// as declared.
	WireName string          `json:"sent,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`
	// Blob is the reference under which the part is stored whole, for read_result, and Size how many bytes are there.
	// Of what is too long to be here, Text is a preview then and Data is nil. Empty: nothing is missing.
	Blob string `json:"blob,omitempty"`
	Size int64  `json:"size,omitempty"`
}

// String is what a reader of text gets of the part: a text as it is, and one line in brackets for anything else, behind
// which a document's text follows.
func (c Content) String() string {
	if c.Type == ContentText {
		return c.Text
	}
	what := string(c.Type)
	if c.Type == ContentLink {
		what = "link"
	}
	about := []string{}
	add := func(text string) {
		if text != "" {
			about = append(about, text)
		}
	}
	for _, s := range []string{c.Name, c.Title, c.URI, c.MIMEType} {
		add(s)
	}
	switch {
	case c.Blob != "":
		add(fmt.Sprintf("%d bytes, stored as %s", c.Size, c.Blob))
	case len(c.Data) > 0:
		add(fmt.Sprintf("%d bytes", len(c.Data)))
	}
	line := what + ": " + strings.Join(about, ", ")
	if len(about) == 0 {
		line = what
	}
	if c.Description != "" {
		line += ": " + c.Description
	}
	if c.Text == "" {
		return "[" + line + "]"
	}
	return "[" + line + "]\n" + c.Text
}

// TextOf is an output by its parts as text: each part's, one below the other.
func TextOf(parts []Content) string {
	texts := make([]string, len(parts))
	for i := range parts {
		texts[i] = parts[i].String()
	}
	return strings.Join(texts, "\n")
}

// CheckEcho says what is wrong with an echo, as an [*InputError], or returns nil.
func CheckEcho(field string, e Echo) error {
	var fields map[string]json.RawMessage
	switch {
	case e == nil:
	case len(e) > MaxEchoBytes:
		return &InputError{Field: field, TooLarge: true,
			Problem: fmt.Sprintf("has %d bytes; at most %d are allowed", len(e), MaxEchoBytes)}
	case json.Unmarshal(e, &fields) != nil || fields == nil:
		return &InputError{Field: field,
			Problem: "is no JSON object; give the provider's fields as they came, or leave it out"}
	}
	return nil
}

// Echo is what a provider wants to have back with the result of a call, beside its id, as the provider's own fields:
// the caller of a program's call, the namespace or the toolset of a tool. Nothing of ours reads it. A JSON object of at
// most [MaxEchoBytes], or nil.
type Echo = json.RawMessage
