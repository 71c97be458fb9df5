package natsbroker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// An entry of the index is a key without a value. The key contains everything that is listed of a batch:
//
//	<life>.<status>.<high>.<middle>.<agent>.<session>.<low>.<batch>.<workspace>.<calls>.<submitted>.<changed>.<revision>
//
// life is "live" or "over". high, middle and low are the batch's place: low has its last ten bits, middle the four
// before them. So a filter of keys selects a span of 1,024 or of 16,384 places, and in it an agent, a session and a
// status. The server finds these in its subject tree, without reading a message. Numbers have base 36; times are
// milliseconds. A later version may add tokens at the end.

const (
	prefixIndex = "$KV." + bucketIndex + "."
	indexTokens = 13 // how many tokens a key has
	indexBase   = 36 // of the numbers in it

	lifeLive, lifeOver = "live", "over"

	lowBits    = 10 // bits of a place in its last token: a narrow span has all of their values
	middleBits = 4  // bits in the token before; a wide span also has all of their values
)

func lifeOf(s toolyard.Status) string {
	if broker.IsLive(s) {
		return lifeLive
	}
	return lifeOver
}

func digits(n uint64) string { return strconv.FormatUint(n, indexBase) }

// The three tokens of a place.
func high(place uint64) string   { return digits(place >> (lowBits + middleBits)) }
func middle(place uint64) string { return digits(place >> lowBits & (1<<middleBits - 1)) }
func low(place uint64) string    { return digits(place & (1<<lowBits - 1)) }

// indexSubject is the subject of an entry's key.
func indexSubject(e *broker.Entry) (string, error) {
	names := []string{string(e.Status), string(e.Agent), string(e.Session), string(e.ID), string(e.Workspace)}
	if slices.Contains(names, "") || e.Place == 0 {
		return "", fmt.Errorf("an entry of the index lacks a name or a place: %q, place %d", names, e.Place)
	}
	at := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), indexBase) }
	return prefixIndex + strings.Join([]string{
		lifeOf(e.Status), broker.Escape(string(e.Status)), high(e.Place), middle(e.Place),
		broker.Escape(string(e.Agent)),
		broker.Escape(string(e.Session)), low(e.Place), broker.Escape(string(e.ID)), broker.Escape(string(e.Workspace)),
		digits(uint64(max(e.Calls, 0))), at(e.Submitted), at(e.Changed), digits(e.Revision),
	}, "."), nil
}

// parseIndexSubject is the inverse of [indexSubject].
func parseIndexSubject(subject string) (e broker.Entry, err error) {
	key, ok := strings.CutPrefix(subject, prefixIndex)
	t := strings.Split(key, ".")
	if !ok || len(t) < indexTokens {
		return e, fmt.Errorf("subject %q is no key of the index", subject)
	}
	var errs []error
	name := func(i int) string {
		s, err := broker.Unescape(t[i])
		errs = append(errs, err)
		return s
	}
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(t[i], indexBase, 64)
		errs = append(errs, err)
		return n
	}
	at := func(i int) time.Time {
		ms, err := strconv.ParseInt(t[i], indexBase, 64)
		errs = append(errs, err)
		return time.UnixMilli(ms).UTC()
	}
	e = broker.Entry{
		Status: toolyard.Status(name(1)), Place: number(2)<<(lowBits+middleBits) | number(3)<<lowBits | number(6),
		Agent: toolyard.Agent(name(4)), Session: toolyard.Session(name(5)), ID: toolyard.BatchID(name(7)),
		Workspace: toolyard.Workspace(name(8)), Calls: int(number(9)), Submitted: at(10), Changed: at(11),
		Revision: number(12),
	}
	if err := errors.Join(errs...); err != nil {
		return e, fmt.Errorf("subject %q is no key of the index: %w", subject, err)
	}
	if again, err := indexSubject(&e); err != nil || again != prefixIndex+strings.Join(t[:indexTokens], ".") {
		return e, fmt.Errorf("subject %q is no key of the index: its entry belongs under %q", subject, again)
	}
	return e, nil
}

// subjectsOf selects all entries of one batch, or those that say that it is live.
func subjectsOf(e *broker.Entry, life string) string {
	return prefixIndex + strings.Join([]string{
		life, "*", high(e.Place), middle(e.Place), broker.Escape(string(e.Agent)), broker.Escape(string(e.Session)),
		low(e.Place),
		broker.Escape(string(e.ID)), ">",
	}, ".")
}

// span is a range of places that one filter selects.
type span struct {
	high, middle string
	first, last  uint64
}

// spanOf is the span that contains a place.
func spanOf(place uint64, wide bool) span {
	s, bits := span{high: high(place), middle: middle(place)}, lowBits
	if wide {
		s.middle, bits = "*", lowBits+middleBits
	}
	s.first = place >> bits << bits
	s.last = s.first + 1<<bits - 1
	return s
}

// filterSubjects selects the entries of a span that match a filter.
func filterSubjects(f *broker.Filter, s span) string {
	or := func(token string) string { return cmp.Or(token, "*") }
	life := ""
	switch {
	case f.Status != "":
		life = lifeOf(f.Status)
	case f.Live:
		life = lifeLive
	}
	return prefixIndex + strings.Join([]string{
		or(life), or(broker.Escape(string(f.Status))), s.high, s.middle,
		or(broker.Escape(string(f.Agent))), or(broker.Escape(string(f.Session))), ">",
	}, ".")
}

// walk goes down through the places from the newest, span by span. It uses wide spans after it has found little for a
// while.
type walk struct {
	oldest, newest uint64 // the remaining range
	quiet          uint64 // number of places in which little was found
}

const (
	// sparse is the minimum number of places per entry for a span in which little is found: a wide span is then
	// expected to have at most as many entries as a full narrow one.
	sparse = 1 << middleBits
	// quietPlaces is in how many places little must be found before a walk uses wide spans. The newest places are those
	// of running batches, whose number says nothing about the completed ones below them.
	quietPlaces = 4 << lowBits
)

// next is the next span, cut to the remaining range.
func (w *walk) next() (span, bool) {
	if w.newest < max(w.oldest, 1) { // no submission has place 0
		return span{}, false
	}
	s := spanOf(w.newest, w.quiet >= quietPlaces)
	s.first, s.last = max(s.first, w.oldest, 1), min(s.last, w.newest)
	return s, true
}

// advance continues after a span that had a number of entries.
func (w *walk) advance(s span, entries int) {
	places := s.last - s.first + 1
	if w.newest = s.first - 1; uint64(entries)*sparse <= places {
		w.quiet += places
	} else {
		w.quiet = 0
	}
}
