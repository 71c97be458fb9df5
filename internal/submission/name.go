package submission

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
)

// ShownName is a name that a model wrote for a tool as results and plans have it: the name itself, or, where no tool
// can have it, it in quotes, at most [toolyard.MaxNameBytes] bytes long and printable.
func ShownName(name string) string {
	if toolyard.CheckName("", name) == nil {
		return name
	}
	const room = toolyard.MaxNameBytes - len(`""...`)
	shown := strconv.QuoteToGraphic(strings.ToValidUTF8(name[:min(len(name), toolyard.MaxNameBytes)], ""))
	shown = strings.ReplaceAll(shown[1:len(shown)-1], string(utf8.RuneError), "?")
	if len(shown) <= room && len(name) <= toolyard.MaxNameBytes {
		return `"` + shown + `"`
	}
	return `"` + strings.ToValidUTF8(shown[:min(len(shown), room)], "") + `"...`
}

// PathSegment is a name as one segment of a URL's path. Clients and servers drop the segments "." and ".." from a path.
func PathSegment(name string) string {
	if name == "." || name == ".." {
		return strings.Repeat("%2E", len(name))
	}
	return url.PathEscape(name)
}
