package strictjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// keySet holds the keys of one object. Most objects have few: they are compared one by one, without allocation; past
// fewKeys a map takes over, so that a million keys cost a million steps and not their square.
type keySet struct {
	few  [][]byte
	many map[string]struct{}
}

const fewKeys = 16

func (k *keySet) reset() {
	k.few = k.few[:0]
	k.many = nil
}

// add reports whether key is new.
func (k *keySet) add(key []byte) bool {
	if k.many != nil {
		if _, ok := k.many[string(key)]; ok {
			return false
		}
		k.many[string(key)] = struct{}{}
		return true
	}
	for _, other := range k.few {
		if bytes.Equal(other, key) {
			return false
		}
	}
	k.few = append(k.few, key)
	if len(k.few) > fewKeys {
		k.many = make(map[string]struct{}, 2*len(k.few))
		for _, key := range k.few {
			k.many[string(key)] = struct{}{}
		}
	}
	return true
}

// decodeString decodes a string token that is known to be valid. encoding/json does it, since its reading is the one
// that counts later: it takes every lone surrogate for U+FFFD, so two keys that differ only there are one key to it.
func decodeString(token []byte, escaped bool) []byte {
	if !escaped {
		return token[1 : len(token)-1]
	}
	var text string
	if err := json.Unmarshal(token, &text); err != nil {
		panic("strictjson: a string token that was scanned does not decode: " + err.Error())
	}
	return []byte(text)
}

// path names the place where the scanner stands, such as calls[2].input.file_path, cut in the middle when long.
func (s *scanner) path() string {
	var path string
	for _, f := range s.stack {
		if f.object {
			path = Join(path, string(f.key))
		} else {
			path = Item(path, f.index)
		}
	}
	if len(path) > pathBytes {
		head, tail := path[:pathBytes/2], path[len(path)-pathBytes/2:]
		path = strings.ToValidUTF8(head, "") + "..." + strings.ToValidUTF8(tail, "")
	}
	return path
}

// Join is the path of a field of the object at path. A key that is not a plain name is quoted and cut, so that a path
// can always be shown on a terminal.
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

// Quote quotes text that a stranger wrote for use in a message: control characters escaped, cut to a few words.
func Quote(text string) string {
	if len(text) <= keyBytes {
		return strconv.Quote(text)
	}
	cut := keyBytes
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strconv.Quote(text[:cut]) + "..."
}

func plain(key string) bool {
	for _, r := range key {
		if r != '_' && r != '-' && r != '$' && !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return false
		}
	}
	return key != "" && len(key) <= keyBytes
}
