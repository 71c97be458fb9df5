package sse

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// read feeds a text in pieces of so many bytes.
func read(text string, size, most int) (events []Event, err error) {
	p := Parser{MaxEventBytes: most}
	for rest := text; rest != "" && err == nil; {
		n := min(size, len(rest))
		err = p.Feed([]byte(rest[:n]), func(e Event) error {
			events = append(events, e)
			return nil
		})
		rest = rest[n:]
	}
	return events, err
}

// TestParser: lines, events and what is none, however the bytes are cut.
func TestParser(t *testing.T) {
	for text, want := range map[string][]string{
		"data: a\n\ndata:b\n\n":                      {"a", "b"},
		"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n":    {"a", "b", "c"},
		"data: a\ndata: b\ndata:\n\n":                {"a\nb\n"},
		"event: x\nid: 1\nretry: 5\n: words\n\n\n\n": nil,
		"data\n\n":                            {""},
		"data:  two\n\ndatum: x\n\n":          {" two"},
		"\xef\xbb\xbfdata: a\n\n":             {"a"},
		"data: never ended":                   nil,
		"data: never ended\n":                 nil,
		"event: x\ndata: \xef\xbb\xbfb\n\n\n": {"\xef\xbb\xbfb"},
	} {
		for size := 1; size <= len(text); size++ {
			events, err := read(text, size, 100)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range events {
				got = append(got, string(e.Data))
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, got, want)
			}
		}
	}
}

// TestNamesAndIDs: they belong to one event, and an event without data has none to give.
func TestNamesAndIDs(t *testing.T) {
	got, err := read("id: 1\nevent: a\ndata: x\n\ndata: y\n\nid: 2\nevent: b\n\nid:3\ndata: z\n\n", 7, 100)
	want := []Event{{"1", "a", []byte("x")}, {"", "", []byte("y")}, {"3", "", []byte("z")}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// TestLongEventsAreRefused: a stream cannot make a reader hold more than it says.
func TestLongEventsAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"one line":   "data: " + strings.Repeat("x", 200) + "\n\n",
		"many lines": strings.Repeat("data: xxxxxxxxx\n", 20) + "\n",
		"names":      "event: " + strings.Repeat("x", 60) + "\nid: " + strings.Repeat("x", 60) + "\n\n",
		"a comment":  ":" + strings.Repeat("x", 200),
		"no end":     strings.Repeat("x", 1<<20),
	} {
		for _, size := range []int{1, 64, 1 << 20} {
			if events, err := read(text, size, 100); !errors.Is(err, ErrTooLong) || len(events) != 0 {
				t.Errorf("%s: %+v, %v", name, events, err)
			}
		}
	}
}

// FuzzParser: whatever comes, the same events come of it in any pieces, and none is longer than it may be.
func FuzzParser(f *testing.F) {
	f.Add("id: 1\nevent: result\ndata: {}\n\n", 7)
	f.Add("data: a\ndata: b\r\n\r\n: c\n\ndata\n\n", 1)
	f.Fuzz(func(t *testing.T, text string, size int) {
		const most = 1 << 10
		whole, err := read(text, max(1, len(text)), most)
		pieces, errPieces := read(text, 1+max(0, size%64), most)
		if !reflect.DeepEqual(whole, pieces) || err != errPieces {
			t.Errorf("at once %q, %v; in pieces %q, %v", whole, err, pieces, errPieces)
		}
		for _, e := range whole {
			if len(e.Data)+len(e.ID)+len(e.Name) > most {
				t.Errorf("an event of %d bytes", len(e.Data)+len(e.ID)+len(e.Name))
			}
		}
	})
}
