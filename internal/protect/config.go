package protect

import (
	"slices"
	"strings"
)

// variable is one of git's configuration. Section and key are in lower case; the subsection says nothing about what a
// value is.
type variable struct{ section, key, value string }

// kind is what a variable's value is to git.
type kind int

const (
	aValue kind = iota
	anInclude
	aPath
	aProgram
)

// programKeys are the keys whose value git runs, in whatever section they stand.
var programKeys = []string{
	"fsmonitor", "sshcommand", "pager", "editor", "askpass", "gitproxy", "alternaterefscommand", "clean", "smudge",
	"process", "external", "command", "cmd", "textconv", "driver",
	"helper", "program", "defaultkeycommand", "difffilter", "packobjectshook", "uploadpack", "receivepack",
	"uploadarchive", "vcs", "update", "browser", "tunnel",
	"smtpserver", "sendmailcmd", "tocmd", "cccmd", "headercmd", "httpd",
}

func (v variable) is() kind {
	switch {
	case v.section == "include" && v.key == "path", v.section == "includeif" && v.key == "path":
		return anInclude
	case v.section == "core" && (v.key == "hookspath" || v.key == "attributesfile"), v.section == "init" &&
		v.key == "templatedir":
		return aPath
	case v.section == "alias", v.section == "pager", slices.Contains(programKeys, v.key):
		return aProgram
	case v.key == "path" && slices.Contains([]string{"difftool", "mergetool", "man", "browser", "guitool"}, v.section):
		return aProgram
	}
	return aValue
}

// parseConfig reads git's configuration and skips what is none: git itself refuses that.
func parseConfig(text string) (out []variable) {
	section := ""
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for text != "" {
		text = strings.TrimLeft(text, " \t\n")
		switch {
		case text == "":
		case text[0] == '#' || text[0] == ';':
			_, text, _ = strings.Cut(text, "\n")
		case text[0] == '[':
			section, text = header(text[1:])
		default:
			end := strings.IndexAny(text, "=\n#;")
			if end < 0 {
				end = len(text)
			}
			v := variable{section: section, key: strings.ToLower(strings.TrimSpace(text[:end]))}
			if text = text[end:]; strings.HasPrefix(text, "=") {
				v.value, text = value(text[1:])
			} else {
				_, text, _ = strings.Cut(text, "\n")
			}
			out = append(out, v)
		}
	}
	return out
}

// header reads a section's name, up to its bracket. What stands behind it on the line may be a variable.
func header(text string) (section, rest string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '\n', c == ']' && !quoted:
			name := strings.TrimSpace(text[:i])
			if end := strings.IndexAny(name, " \t\"."); end >= 0 {
				name = name[:end]
			}
			return strings.ToLower(name), text[i+1:]
		}
	}
	return "", ""
}

// value reads a value up to its end: quotes may stand anywhere in it, and a backslash at the end of a line joins the
// next.
func value(text string) (v, rest string) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			switch text[i] {
			case '\n':
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'b':
				b.WriteByte('\b')
			default:
				b.WriteByte(text[i])
			}
		case c == '"':
			quoted = !quoted
		case c == '\n':
			return strings.TrimSpace(b.String()), text[i+1:]
		case (c == '#' || c == ';') && !quoted:
			_, rest, _ = strings.Cut(text[i:], "\n")
			return strings.TrimSpace(b.String()), rest
		default:
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String()), ""
}

// words are the words of a command line as a shell splits it, and what stands behind a = in one. No variable is
// expanded but the working directory's.
func words(line string) (out []string) {
	var b strings.Builder
	var quote byte
	flush := func() {
		word := b.String()
		b.Reset()
		for _, pwd := range []string{"$PWD/", "${PWD}/"} {
			word = strings.TrimPrefix(word, pwd)
		}
		if word == "" {
			return
		}
		out = append(out, word)
		if _, behind, ok := strings.Cut(word, "="); ok && behind != "" {
			out = append(out, behind)
		}
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			b.WriteByte(line[i])
		case quote != 0:
			b.WriteByte(c)
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(" \t\n;&|()<>`!", c) >= 0:
			flush()
		default:
			b.WriteByte(c)
		}
	}
	flush()
	// A program in quotes may be a command line itself: sh -c 'tools/x.sh'.
	for _, w := range out {
		if strings.ContainsAny(w, " \t\n;&|()<>`") && w != line {
			out = append(out, words(w)...)
		}
	}
	return out
}
