package server

import (
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/tool"
)

// bar makes a tool's reports into notifications, whose values must increase with each of them. A report that says no
// more of the fraction than the one before, but has words, moves the value by as little as shows in no bar.
// A request that is asked something in between has one bar, also where its call begins anew with the answer.
type bar struct {
	value float64
	began bool
}

const nudge = 1e-6

// next is the notification for a report; ok is false for one that has nothing new. That of the end of an attempt has
// not: the result says it, or a question, behind which the call begins anew and needs the room.
func (b *bar) next(p tool.Progress) (n *mcp.ProgressNotificationParams, ok bool) {
	n = &mcp.ProgressNotificationParams{Message: message(p)}
	switch {
	case p == tool.Progress{Fraction: 1}:
		return nil, false
	case p.Fraction >= 0 && p.Fraction <= 1 && (!b.began || p.Fraction > b.value):
		b.value = p.Fraction
	case n.Message == "" || b.value+nudge > 1:
		return nil, false
	case b.began:
		b.value += nudge
	}
	b.began = true
	n.Progress = b.value
	if p.Fraction >= 0 {
		n.Total = 1
	}
	return n, true
}

// message is a tool's status, or else the last line of what it has written.
func message(p tool.Progress) string {
	text := p.Status
	if text == "" {
		lines := strings.Split(strings.TrimRight(p.Output, "\n"), "\n")
		text = lines[len(lines)-1]
	}
	text = strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD")
	return cut(text, maxMessageBytes)
}

// cut is the beginning of a text, in whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
