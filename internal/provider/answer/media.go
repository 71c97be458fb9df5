package answer

import (
	"encoding/base64"
	"slices"

	"github.com/toolyard/toolyard"
)

// MaxMediaBytes is how large an image or a document may be to go to a model, encoded in base64. A larger one is told of
// in words.
const MaxMediaBytes = 5 << 20

var images = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// Media is what a part shows to a model that reads more than text.
type Media int

// The kinds of media.
const (
	Words    Media = iota // none: the part's words are all
	Image                 // an image of a type that all providers take
	Document              // a PDF
)

// MediaOf says how a part is shown. What is stored elsewhere, too large, or of a type that not every provider takes, is
// told of in words; so is audio.
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

// HasMedia reports whether some part is more than words.
func HasMedia(parts []toolyard.Content) bool {
	return slices.ContainsFunc(parts, func(p toolyard.Content) bool { return MediaOf(&p) != Words })
}

// Base64 is a part's data, encoded.
func Base64(p *toolyard.Content) string { return base64.StdEncoding.EncodeToString(p.Data) }

// DataURL is a part's data as a URL.
func DataURL(p *toolyard.Content) string { return "data:" + p.MIMEType + ";base64," + Base64(p) }

// SentName is the name of a ContentTool for providers whose names have 64 characters.
func SentName(p *toolyard.Content) string {
	if p.Sent != "" {
		return p.Sent
	}
	return p.Name
}
