package display

import "strings"

// change is one line of a comparison; op says whether it is in both texts, in the old one or in the new one.
type change struct {
	op   string
	text string
}

const (
	same  = "|"
	taken = "-"
	put   = "+"
)

// compare compares two texts by lines: the lines with same and taken are the old text, those with same and put the new
// one.
func compare(before, after string) []change {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	var head, tail []change
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, change{same, a[0]})
		a, b = a[1:], b[1:]
	}
	end := 0
	for end < len(a) && end < len(b) && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	for _, line := range a[len(a)-end:] {
		tail = append(tail, change{same, line})
	}
	return append(append(head, middle(a[:len(a)-end], b[:len(b)-end])...), tail...)
}

// middle compares lines that differ at both ends.
func middle(a, b []string) (out []change) {
	if len(a)*len(b) > maxDiffCells {
		return append(all(taken, a), all(put, b)...)
	}
	// longest[i][j] is the number of common lines of a[i:] and b[j:].
	longest := make([][]int32, len(a)+1)
	for i := range longest {
		longest[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = append(out, change{same, a[i]})
			i, j = i+1, j+1
		case longest[i+1][j] >= longest[i][j+1]:
			out = append(out, change{taken, a[i]})
			i++
		default:
			out = append(out, change{put, b[j]})
			j++
		}
	}
	return append(append(out, all(taken, a[i:])...), all(put, b[j:])...)
}

func all(op string, lines []string) []change {
	out := make([]change, len(lines))
	for i, line := range lines {
		out[i] = change{op, line}
	}
	return out
}

// DiffLines shows a unified diff: lines after "-" are removed, lines after "+" are added, lines after "|" stay, and the
// names of files and positions have no prefix. Long lines are folded, and characters that a screen does not show are
// marked, as in [Lines]. It shows at most most lines; the last one then says that there are more.
func DiffLines(diff string, columns, most int) []string {
	var p page
	header := 2 // lines that name the two files
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		op, text := "", line
		switch {
		case header > 0 && (strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")):
			header--
		case strings.HasPrefix(line, taken), strings.HasPrefix(line, put):
			op, text = line[:1], line[1:]
		case strings.HasPrefix(line, " "):
			op, text = same, line[1:]
		}
		p.add(op, tokens(text))
	}
	out := p.fold(max(columns, MinColumns))
	if len(out) > most {
		out = append(out[:most-1], "(more lines are not shown)")
	}
	return out
}
