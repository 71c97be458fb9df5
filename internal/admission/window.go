package admission

import "time"

// windowSlots is in how many slots a window counts.
const windowSlots = 60

// window counts what has begun in the last span, in all dispatchers and in this one.
type window struct {
	slot time.Duration
	// since is when the first slot begins. Slots are counted from it and not by the time of day, since somebody may set
	// the clock: what began before would count for as long as the clock was put back, or not at all.
	since time.Time
	// begun are those of all dispatchers, and own those of this one, by slot. last is the slot that was counted last.
	begun, own [windowSlots]int
	last       int64
}

// newWindow makes a window of a span, in which nothing has begun. It has a slot more than the span, since the first one
// counts only in part.
func newWindow(span time.Duration, now time.Time) window {
	return window{slot: span/(windowSlots-1) + 1, since: now}
}

// number is the slot of a time.
func (w *window) number(now time.Time) int64 { return int64(now.Sub(w.since) / w.slot) }

// at forgets what began before the window.
func (w *window) at(now time.Time) {
	number := w.number(now)
	for n := max(w.last+1, number-windowSlots+1); n <= number; n++ {
		w.begun[n%windowSlots], w.own[n%windowSlots] = 0, 0
	}
	w.last = max(w.last, number)
}

// begin counts calls, as of the time of the last at.
func (w *window) begin(calls int, own bool) {
	w.begun[w.last%windowSlots] += calls
	if own {
		w.own[w.last%windowSlots] += calls
	}
}

// next is when the oldest calls leave the window, after the last at; the zero time if there are none.
func (w *window) next() time.Time {
	for n := w.last - windowSlots + 1; n <= w.last; n++ {
		if n >= 0 && w.begun[n%windowSlots] > 0 {
			return w.since.Add(time.Duration(n+windowSlots) * w.slot)
		}
	}
	return time.Time{}
}

func sum(of *[windowSlots]int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}
