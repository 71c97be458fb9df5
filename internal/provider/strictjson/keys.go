package strictjson

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolyard/toolyard/internal/clip"
)

// path writes a position in the open objects and arrays as calls[2].input.file_path, cut in the middle if it is long.
func (s *scanner) path(pointer jsontext.Pointer) string {
	var path string
	level := 0
	for name := range pointer.Tokens() {
		level++
		if kind, _ := s.StackIndex(level); kind == '{' {
			path = Join(path, name)
		} else {
			path += "[" + name + "]"
		}
	}
	if len(path) > pathBytes {
		head, tail := path[:pathBytes/2], path[len(path)-pathBytes/2:]
		path = strings.ToValidUTF8(head, "") + "..." + strings.ToValidUTF8(tail, "")
	}
	return path
}

// Join is the path of a field of the object at path. A key that is not a plain name is quoted and cut, so that every
// path can be shown on a terminal.
func Join(path, key string) string {
	if !plain(key) {
		return path + "[" + Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Item is the path of an item of the array at path.
func Item(path string, index int) string { return path + "[" + strconv.Itoa(index) + "]" }

// Quote quotes untrusted text for use in a message: control characters are escaped, and long text is cut.
func Quote(text string) string {
	if len(text) <= keyBytes {
		return strconv.Quote(text)
	}
	return strconv.Quote(clip.Bytes(text, keyBytes)) + "..."
}

func plain(key string) bool {
	for _, r := range key {
		if r != '_' && r != '-' && r != '$' && !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return false
		}
	}
	return key != "" && len(key) <= keyBytes
}
