package builtin

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/toolyard/toolyard/tool"
)

// The weights of a query's word by the place where a tool has it. A word that is a prefix of the tool's word, as
// "issue" of "issues", has half the weight.
const (
	inName        = 8
	inInput       = 3
	inDescription = 2
)

// farBehind is the largest ratio between the best tool's score and that of another answer.
const farBehind = 8

// filling are words that say nothing about a tool.
var filling = []string{"a", "an", "and", "for", "from", "i", "in", "is", "my", "of", "on", "or", "that", "the", "to",
	"tool", "tools", "with"}

// shortestStem is the shortest prefix that counts, in letters.
const shortestStem = 3

// searchable is a tool with its words.
type searchable struct {
	offered                   *tool.Offered
	name, inputs, description map[string]bool
}

// rankTools sorts the tools that match a query, best first. A rare word has more weight than a common one. Tools with
// equal scores are sorted by name, so that the answer depends only on the query and the tools.
func rankTools(tools []tool.Offered, query string) []tool.Offered {
	var asked []string
	for _, w := range words(query) {
		if !slices.Contains(asked, w) && !slices.Contains(filling, w) {
			asked = append(asked, w)
		}
	}
	asked = asked[:min(len(asked), MaxQueryWords)]
	all := make([]searchable, len(tools))
	for i := range tools {
		all[i] = searchableOf(&tools[i])
	}
	scores := make([]float64, len(all))
	for _, word := range asked {
		worth, have := make([]float64, len(all)), 0
		for i := range all {
			if worth[i] = all[i].worth(word); worth[i] > 0 {
				have++
			}
		}
		for i := range all {
			scores[i] += worth[i] * math.Log(1+float64(len(all))/float64(max(have, 1)))
		}
	}
	var order []int
	best := slices.Max(append([]float64{0}, scores...))
	for i := range all {
		if scores[i] > 0 && scores[i]*farBehind >= best {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(tools[a].Name, tools[b].Name))
	})
	out := make([]tool.Offered, len(order))
	for n, i := range order {
		out[n] = tools[i]
	}
	return out
}

func searchableOf(o *tool.Offered) searchable {
	s := searchable{offered: o, name: set(words(o.Name)), description: set(words(o.Description)),
		inputs: map[string]bool{}}
	var schema struct {
		Properties map[string]struct {
			Description string `json:"description"`
		} `json:"properties"`
	}
	if json.Unmarshal(o.InputSchema, &schema) == nil {
		for name, p := range schema.Properties {
			for _, w := range words(name) {
				s.inputs[w] = true
			}
			for _, w := range words(p.Description) {
				s.description[w] = true
			}
		}
	}
	return s
}

// worth is the score of a word in a tool: the best place where it is found counts.
func (s *searchable) worth(word string) float64 {
	best := 0.0
	for _, place := range []struct {
		words map[string]bool
		worth float64
	}{{s.name, inName}, {s.inputs, inInput}, {s.description, inDescription}} {
		if place.words[word] {
			best = max(best, place.worth)
			continue
		}
		for w := range place.words {
			if begins(w, word) || begins(word, w) {
				best = max(best, place.worth/2)
				break
			}
		}
	}
	return best
}

func begins(word, stem string) bool {
	return len(stem) >= shortestStem && strings.HasPrefix(word, stem)
}

func set(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, w := range list {
		out[w] = true
	}
	return out
}

// words splits a text into its words, in lower case: at everything that is not a letter or digit, and at the capital in
// createIssue.
func words(text string) []string {
	var out []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			out = append(out, word.String())
			word.Reset()
		}
	}
	small := false
	for _, r := range text {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end()
			small = false
			continue
		}
		if small && unicode.IsUpper(r) {
			end()
		}
		small = unicode.IsLower(r)
		word.WriteRune(unicode.ToLower(r))
	}
	end()
	return out
}
