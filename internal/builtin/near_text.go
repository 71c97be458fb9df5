package builtin

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/tool"
)

// notFound is the error of an old_string that is not in the file. It says why, if known, and shows the most similar
// lines, so that the next call can be right.
func notFound(clean cleaner, t target, text, old string) error {
	lead := fmt.Sprintf("old_string is not in %s", show(t.written))
	if bare := withoutNumbers(old); bare != old && strings.Contains(text, bare) {
		return tool.Invalid("%s: it holds the line numbers of read_file; leave each number and the tab after it out",
			lead)
	}
	if strings.Contains(text, "\r\n") && strings.Contains(text,
		strings.ReplaceAll(strings.ReplaceAll(old, "\r\n", "\n"), "\n", "\r\n")) {
		return tool.Invalid("%s: the lines of the file end in \\r\\n; write \\r\\n for each line end in old_string "+
			"and new_string", lead)
	}
	if len(text) > MaxNearBytes {
		return tool.Invalid("%s; the file is too large to look for text like it: use grep, then read_file, and copy "+
			"the text exactly", lead)
	}
	lines := strings.Split(text, "\n")
	if from, to, ok := otherSpace(lines, old); ok {
		return tool.Invalid("%s, but the same text with other white space is in lines %d to %d (tabs shown as \\t, "+
			"trailing spaces in quotes):\n%s\ncopy its white space exactly",
			lead, from+1, to, quoted(clean, lines, from, to))
	}
	if near := nearLines(lines, old); len(near) > 0 {
		var b strings.Builder
		for _, n := range near {
			b.WriteString(quoted(clean, lines, n, n+1))
		}
		return tool.Invalid("%s; the lines most like it are:\n%s\nread the file again and copy the text exactly", lead,
			strings.TrimSuffix(b.String(), "\n"))
	}
	return tool.Invalid("%s, nor is anything like it; read the file and copy the text exactly", lead)
}

var numbered = regexp.MustCompile(`(?m)^ *\d+\t`)

// withoutNumbers removes read_file's line numbers, if each line has one.
func withoutNumbers(s string) string {
	if len(numbered.FindAllStringIndex(s, -1)) != 1+strings.Count(strings.TrimSuffix(s, "\n"), "\n") {
		return s
	}
	return numbered.ReplaceAllString(s, "")
}

// otherSpace finds lines that differ from old's only in white space. Its time is in proportion to the two texts.
func otherSpace(lines []string, old string) (from, to int, ok bool) {
	var want []string
	for l := range strings.SplitSeq(strings.Trim(old, "\n"), "\n") {
		want = append(want, squeeze(l))
	}
	if strings.Join(want, "") == "" {
		return 0, 0, false
	}
	var have strings.Builder // a line break stands before and behind each line
	have.WriteByte('\n')
	for _, l := range lines {
		have.WriteString(squeeze(l))
		have.WriteByte('\n')
	}
	text := strings.Join(want, "\n")
	if len(want) > 1 {
		text = "\n" + text + "\n"
	}
	at := strings.Index(have.String(), text)
	if at < 0 {
		return 0, 0, false
	}
	from = strings.Count(have.String()[:at+1], "\n") - 1
	return from, from + len(want), true
}

// squeeze makes each run of white space one space, and none at the ends.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// nearLines returns the indices of the lines most similar to the longest line of old, in the order of the file.
func nearLines(lines []string, old string) []int {
	var longest string
	for l := range strings.SplitSeq(old, "\n") {
		if l = squeeze(l); len(l) > len(longest) {
			longest = l
		}
	}
	want := pairs(longest)
	type candidate struct {
		line int
		like float64
	}
	const least = 0.4 // below it two lines are similar by accident
	var found []candidate
	for i, l := range lines {
		if like := likeness(want, pairs(squeeze(l[:min(len(l), MaxLineChars)]))); like >= least {
			found = append(found, candidate{i, like})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.like, a.like) })
	var near []int
	for _, c := range found[:min(len(found), MaxNearLines)] {
		near = append(near, c.line)
	}
	slices.Sort(near)
	return near
}

// pairs counts the pairs of neighbouring bytes of a line.
func pairs(s string) map[[2]byte]int {
	s = s[:min(len(s), MaxLineChars)]
	m := make(map[[2]byte]int, len(s))
	for i := 1; i < len(s); i++ {
		m[[2]byte{s[i-1], s[i]}]++
	}
	return m
}

// likeness is Dice's coefficient of two counts: 1 for the same, 0 for nothing in common.
func likeness(a, b map[[2]byte]int) float64 {
	common, total := 0, 0
	for k, n := range a {
		common += min(n, b[k])
		total += n
	}
	for _, n := range b {
		total += n
	}
	if total == 0 {
		return 0
	}
	return 2 * float64(common) / float64(total)
}

// quoted renders lines with their numbers and with visible white space. It cuts long lines and long blocks.
func quoted(clean cleaner, lines []string, from, to int) string {
	const most = 20 // lines
	var b strings.Builder
	for i := from; i < min(to, from+most); i++ {
		text, cut := clean.cut(lines[i], MaxGrepLineChars)
		if cut {
			text += "…"
		}
		text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\t", `\t`)
		if text != strings.TrimRight(text, " \r") {
			text = fmt.Sprintf("%q", text)
		}
		fmt.Fprintf(&b, "%d: %s\n", i+1, text)
	}
	if to > from+most {
		fmt.Fprintf(&b, "... (to line %d)\n", to)
	}
	return strings.TrimSuffix(b.String(), "\n") + "\n"
}
