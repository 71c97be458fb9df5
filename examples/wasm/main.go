// Command wasm is a tool as a WebAssembly module: it counts the words of the files that it may read. Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -o word_frequency.wasm ./examples/wasm
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// word is a word with how often it occurs.
type word struct {
	Word  string `json:"word"`
	Times int    `json:"times"`
}

func run() error {
	var in struct {
		Path string `json:"path"`
		Top  int    `json:"top"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	text, err := fs.ReadFile(os.DirFS("/"), in.Path)
	if err != nil {
		return err
	}
	times := map[string]int{}
	between := func(r rune) bool { return !unicode.IsLetter(r) }
	for _, w := range strings.FieldsFunc(strings.ToLower(string(text)), between) {
		times[w]++
	}
	words := []word{}
	for w, n := range times {
		words = append(words, word{w, n})
	}
	slices.SortFunc(words, func(a, b word) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), strings.Compare(a.Word, b.Word))
	})
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"words": words[:min(len(words), cmp.Or(in.Top, 10))]})
}
