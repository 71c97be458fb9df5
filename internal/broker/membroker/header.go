package membroker

import (
	"bytes"
	"fmt"
	"strings"
)

// A block of headers is kept as it stands on the wire: a version line, the headers, and an empty line.

const headerLine = "NATS/1.0\r\n"

// header returns the first value of a header; its name is compared exactly, as nats-server does.
func header(hdr []byte, name string) string {
	for line := range bytes.SplitSeq(hdr, []byte("\r\n")) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return strings.TrimSpace(string(rest))
		}
	}
	return ""
}

// withHeaders returns a block with headers added behind those that are there: names and values in turn.
func withHeaders(hdr []byte, pairs ...string) []byte {
	var b bytes.Buffer
	if len(hdr) == 0 {
		b.WriteString(headerLine)
	} else {
		b.Write(hdr[:len(hdr)-len("\r\n")])
	}
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", pairs[i], pairs[i+1])
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// withoutHeader returns a block without a header.
func withoutHeader(hdr []byte, name string) []byte {
	var b bytes.Buffer
	for line := range bytes.SplitAfterSeq(hdr, []byte("\r\n")) {
		if !bytes.HasPrefix(line, []byte(name+":")) {
			b.Write(line)
		}
	}
	if b.String() == headerLine+"\r\n" {
		return nil
	}
	return b.Bytes()
}

// status is a block that only has a status, with headers behind it.
func status(code int, text string, pairs ...string) []byte {
	return withHeaders(fmt.Appendf(nil, "NATS/1.0 %d %s\r\n\r\n", code, text), pairs...)
}
