package answer

import (
	"encoding/base64"
	"slices"

	"github.com/toolyard/toolyard"
)

// MaxMediaBytes is the largest image or document that goes to a model, encoded in base64. A line of text replaces a
// larger one.
const MaxMediaBytes = 5 << 20

var images = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// Media is the form in which a part is shown to a model that reads more than text.
type Media int

// The kinds of media.
const (
	Words    Media = iota // none: only the part's text
	Image                 // an image of a type that most providers accept
	Document              // a PDF
)

// MediaOf says how a part is shown. A part that is stored elsewhere, too large, or of another type than most providers
// accept is described by text; so is audio.
func MediaOf(p *toolyard.Content) Media {
	switch {
	case len(p.Data) == 0 || base64.StdEncoding.EncodedLen(len(p.Data)) > MaxMediaBytes:
	case (p.Type == toolyard.ContentImage || p.Type == toolyard.ContentResource) && slices.Contains(images, p.MIMEType):
		return Image
	case p.Type == toolyard.ContentResource && p.MIMEType == "application/pdf":
		return Document
	}
	return Words
}

// HasMedia reports whether a part is more than text.
func HasMedia(parts []toolyard.Content) bool {
	return slices.ContainsFunc(parts, func(p toolyard.Content) bool { return MediaOf(&p) != Words })
}

// Base64 is a part's data, encoded.
func Base64(p *toolyard.Content) string { return base64.StdEncoding.EncodeToString(p.Data) }

// DataURL is a part's data as a URL.
func DataURL(p *toolyard.Content) string { return "data:" + p.MIMEType + ";base64," + Base64(p) }

// SentName is the name of a ContentTool for providers that limit names to 64 characters.
func SentName(p *toolyard.Content) string {
	if p.WireName != "" {
		return p.WireName
	}
	return p.Name
}
