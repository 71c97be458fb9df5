package server

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
)

// failed is a result that says why there is none.
func failed(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format,
		args...)}}}
}

// wish is what a client makes of a result.
type wish struct {
	// anyData says that it takes data that is no object; older ones do not.
	anyData bool
	// links says that it has asked for links to what is stored. Adapters hand all parts of a result to their model's
	// API, and most of these take no link: the text says how to read the rest.
	links bool
}

// render is a result as the protocol has it, with what hooks have to say of the batch.
func render(r *toolyard.Result, notice *toolyard.Notice, w wish) (*mcp.CallToolResult, error) {
	texts, err := answer.Pair([]toolyard.Call{{ID: r.CallID, Tool: r.Tool}}, []toolyard.Result{*r})
	if err != nil {
		return nil, err
	}
	answer.AddNotice(texts, notice)
	out := &mcp.CallToolResult{IsError: r.IsError}
	for i := range texts[0].Parts { // of a failure the text says what there is
		out.Content = append(out.Content, parts(&texts[0].Parts[i], w.links)...)
	}
	if len(out.Content) == 0 {
		out.Content = append(out.Content, &mcp.TextContent{Text: texts[0].Text})
	}
	if len(r.Structured) > 0 && (w.anyData || r.Structured[0] == '{') {
		out.StructuredContent = r.Structured
	}
	if w.links && r.Blob != "" && !linked(r) {
		out.Content = append(out.Content, blobLink(r.Blob, "the whole output", "text/plain", 0))
	}
	return out, nil
}

// linked reports whether a part refers to the whole output already.
func linked(r *toolyard.Result) bool {
	return !r.IsError && slices.ContainsFunc(r.Content, func(c toolyard.Content) bool { return c.Blob == r.Blob })
}

// parts are one part of an output as the protocol has it: the part, or what can be shown of it, and a link to the rest,
// or the words that lead there.
func parts(c *toolyard.Content, links bool) []mcp.Content {
	switch {
	case c.Blob == "" || !links && c.Data != nil:
	case !links && c.Text != "":
		return []mcp.Content{&mcp.TextContent{Text: c.Text}}
	case !links:
		return []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%s\nRead it with the tool read_result and ref %q.", c,
			c.Blob)}}
	default:
		out := []mcp.Content{}
		kind := c.MIMEType
		if c.Text != "" {
			out = append(out, &mcp.TextContent{Text: c.Text})
			kind = "text/plain"
		}
		return append(out, blobLink(c.Blob, c.String(), kind, c.Size))
	}
	switch c.Type {
	case toolyard.ContentText:
		return []mcp.Content{&mcp.TextContent{Text: c.Text}}
	case toolyard.ContentImage:
		return []mcp.Content{&mcp.ImageContent{Data: c.Data, MIMEType: c.MIMEType}}
	case toolyard.ContentAudio:
		return []mcp.Content{&mcp.AudioContent{Data: c.Data, MIMEType: c.MIMEType}}
	case toolyard.ContentResource:
		contents := &mcp.ResourceContents{URI: c.URI, MIMEType: c.MIMEType, Text: c.Text}
		if c.Text == "" && c.Data != nil {
			contents.Blob = c.Data
		}
		return []mcp.Content{&mcp.EmbeddedResource{Resource: contents}}
	case toolyard.ContentLink:
		return []mcp.Content{&mcp.ResourceLink{URI: c.URI, Name: linkName(c), Title: c.Title,
			Description: c.Description, MIMEType: c.MIMEType}}
	default: // a tool that can be called from here on: the list has its definition
		return []mcp.Content{&mcp.TextContent{Text: c.String()}}
	}
}

// linkName is the name that a link must have.
func linkName(c *toolyard.Content) string {
	if c.Name != "" {
		return c.Name
	}
	return c.URI
}

// blobLink is a link to an offloaded result, which resources/read follows. size is 0 when it is not known.
func blobLink(ref, about, kind string, size int64) *mcp.ResourceLink {
	link := &mcp.ResourceLink{URI: blobURI(ref, kind), Name: ref, Description: cut(about, maxMessageBytes),
		MIMEType: kind}
	if size > 0 {
		link.Size = &size
	}
	return link
}

// blobURI names an offloaded result. Its kind is part of the name: the store keeps bytes alone.
func blobURI(ref, kind string) string {
	u := url.URL{Scheme: blobScheme, Host: blobHost, Path: "/" + ref}
	if kind != "" && kind != "text/plain" {
		u.RawQuery = url.Values{"type": {kind}}.Encode()
	}
	return u.String()
}
