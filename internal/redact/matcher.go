package redact

import "strings"

// matcher finds texts of at least [MinValueBytes] bytes in a longer one, in a time that hardly grows with their number.
type matcher struct {
	byStart map[string][]known // by their first [MinValueBytes] bytes
	pairs   pairSet            // those that one begins with
	longest int                // bytes of the longest
}

type known struct{ text, mark string }

// add makes a text found. The first mark of a text stands; one that is too short is left out.
func (m *matcher) add(text, mark string) {
	if len(text) < MinValueBytes {
		return
	}
	if m.byStart == nil {
		m.byStart = map[string][]known{}
	}
	start := text[:MinValueBytes]
	for _, k := range m.byStart[start] {
		if k.text == text {
			return
		}
	}
	m.byStart[start] = append(m.byStart[start], known{text, mark})
	m.pairs.add(text)
	m.longest = max(m.longest, len(text))
}

// finds reports whether some text of the matcher stands in a longer one.
func (m *matcher) finds(text string) (yes bool) {
	m.find(text, func(int, int, string) { yes = true })
	return yes
}

// pairSet has a bit for each two bytes.
type pairSet [1 << 10]uint64

func pair(text string) int { return int(text[0])<<8 | int(text[1]) }

// add puts the first two bytes of a text into the set.
func (s *pairSet) add(text string) {
	p := pair(text)
	s[p/64] |= 1 << (p % 64)
}

// has reports whether the first two bytes of a text are in the set.
func (s *pairSet) has(text string) bool {
	p := pair(text)
	return s[p/64]&(1<<(p%64)) != 0
}

func (m *matcher) empty() bool { return len(m.byStart) == 0 }

// find calls found for each place where a text of the matcher stands, with the longest one there.
func (m *matcher) find(text string, found func(lo, hi int, mark string)) {
	if m.empty() {
		return
	}
	for at := 0; at+MinValueBytes <= len(text); at++ {
		if !m.pairs.has(text[at:]) {
			continue
		}
		var longest known
		for _, k := range m.byStart[text[at:at+MinValueBytes]] {
			if len(k.text) > len(longest.text) && strings.HasPrefix(text[at:], k.text) {
				longest = k
			}
		}
		if longest.text != "" {
			found(at, at+len(longest.text), longest.mark)
		}
	}
}
