package toolset

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/tool"
)

// output converts a server's result. If the tool failed, it returns an error with the server's text; a long text is
// also the output.
func output(res *mcp.CallToolResult) (tool.Output, error) {
	if res == nil {
		return tool.Output{}, tool.Failed(errors.New("no result"), "The MCP server answered with nothing.")
	}
	if len(res.InputRequests) > 0 { // of a task: a task that ends asks nothing more
		return tool.Output{}, tool.Failed(nil, "The MCP server wants to ask a person something before it goes on, "+
			"which is not possible here. The tool did not finish.")
	}
	out := tool.Output{}
	for _, c := range res.Content {
		if part, ok := content(c); ok {
			out.Content = append(out.Content, part)
		}
	}
	if res.StructuredContent != nil {
		raw, err := structured(res)
		if err != nil {
			return out, &tool.Error{Code: toolyard.ResultMappingFailed,
				Message: "the server's structured output cannot be read", Err: err}
		}
		out.Structured = raw
	}
	if res.IsError {
		message := toolyard.TextOf(out.Content)
		if message == "" {
			message = "The MCP server says that the tool failed, and not why."
		}
		if len(message) <= maxFailureBytes {
			return tool.Output{}, tool.Failed(nil, "%s", message)
		}
		return tool.Output{Text: message}, tool.Failed(nil, "The MCP server says that the tool failed.")
	}
	return out, nil
}

// structured is the structured content of a result, with its numbers as the server wrote them.
func structured(res *mcp.CallToolResult) (json.RawMessage, error) {
	text, ok := res.Meta[wire.MetaStructured].(string)
	if !ok {
		return json.Marshal(res.StructuredContent)
	}
	if !json.Valid([]byte(text)) { // the server has set the field itself
		return nil, errors.New("it is no JSON")
	}
	return json.RawMessage(text), nil
}

// content converts one part of a result; false if there is none.
func content(c mcp.Content) (toolyard.Content, bool) {
	switch c := c.(type) {
	case nil:
		return toolyard.Content{}, false
	case *mcp.TextContent:
		return toolyard.Content{Type: toolyard.ContentText, Text: c.Text}, true
	case *mcp.ImageContent:
		return toolyard.Content{Type: toolyard.ContentImage, MIMEType: c.MIMEType, Data: c.Data}, true
	case *mcp.AudioContent:
		return toolyard.Content{Type: toolyard.ContentAudio, MIMEType: c.MIMEType, Data: c.Data}, true
	case *mcp.ResourceLink:
		return toolyard.Content{Type: toolyard.ContentLink, URI: c.URI, Name: c.Name, Title: c.Title,
			Description: c.Description, MIMEType: c.MIMEType}, true
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			return toolyard.Content{}, false
		}
		return toolyard.Content{Type: toolyard.ContentResource, URI: c.Resource.URI, MIMEType: c.Resource.MIMEType,
			Text: c.Resource.Text, Data: c.Resource.Blob}, true
	}
	return toolyard.Content{Type: toolyard.ContentText,
		Text: fmt.Sprintf("[a part of a kind that cannot be shown: %T]", c)}, true
}

// lift is [wire.LiftResponse], unless the message would then be longer than the library takes.
func lift(message []byte) []byte {
	const around = 64 // bytes that may stand around a message
	if next := wire.LiftResponse(message); len(next) <= MaxMessageBytes-around {
		return next
	}
	return message
}
