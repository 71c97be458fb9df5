package pipeline

import (
	"encoding/json"
	"reflect"
)

// restore puts the original back where a hook returns what it was shown: a redacted or cut string in the same place as
// in the observable copy stands for the string at that place in the input. An element of a list keeps its place when
// others are added or removed.
func restore(update, observed, original any) any {
	if s, ok := update.(string); ok {
		if s == observed {
			if o, ok := original.(string); ok {
				return o
			}
		}
		return s
	}
	switch u := update.(type) {
	case []any:
		of, _ := places(u, observed, original) // [hasStandIns] has said that they can be told
		out := make([]any, len(u))
		for i, e := range u {
			if out[i] = e; of[i] >= 0 {
				out[i] = restore(e, observed.([]any)[of[i]], original.([]any)[of[i]])
			}
		}
		return out
	case map[string]any:
		seen, ok1 := observed.(map[string]any)
		was, ok2 := original.(map[string]any)
		out := make(map[string]any, len(u))
		for k, e := range u {
			out[k] = e
			if ok1 && ok2 {
				s, in1 := seen[k]
				w, in2 := was[k]
				if in1 && in2 {
					out[k] = restore(e, s, w)
				}
			}
		}
		return out
	}
	return update
}

// hasStandIns reports whether an update has something of the observable copy that stands for something hidden, where
// [restore] does not know what to put back: a name that the original lacks, for a secret or for an input that is shown
// in part, or an element of a list that may be any of several.
func hasStandIns(update, observed, original any) bool {
	switch u := update.(type) {
	case []any:
		of, ok := places(u, observed, original)
		if !ok {
			return true
		}
		for i, e := range u {
			if of[i] >= 0 && hasStandIns(e, observed.([]any)[of[i]], original.([]any)[of[i]]) {
				return true
			}
		}
	case map[string]any:
		seen, _ := observed.(map[string]any)
		was, _ := original.(map[string]any)
		for k, e := range u {
			s, shown := seen[k]
			w, own := was[k]
			if shown && (!own || hasStandIns(e, s, w)) {
				return true
			}
		}
	}
	return false
}

// places says of each element of a list from a hook which one it is of those that the hook was shown, -1 if it is none
// of them. One that came back as it was shown is that one, wherever it stands now. Another one is what was shown at its
// index, if no element was added or removed and that one did not come back elsewhere. ok is false if an element has a
// stand-in, and it cannot be told for what.
func places(update []any, observed, original any) (of []int, ok bool) {
	of = make([]int, len(update))
	for i := range of {
		of[i] = -1
	}
	seen, ok1 := observed.([]any)
	was, ok2 := original.([]any)
	if !ok1 || !ok2 || len(seen) != len(was) || same(observed, original) { // nothing in it is hidden
		return of, true
	}
	shown := alike(seen)
	back := make([]bool, len(seen))
	for text, at := range alike(update) {
		from := shown[text]
		if len(from) == 0 {
			continue
		}
		if len(from) != len(at) {
			for _, j := range from[1:] {
				if !same(was[j], was[from[0]]) {
					return of, false
				}
			}
		}
		for k, i := range at {
			of[i] = from[min(k, len(from)-1)]
			back[of[i]] = true
		}
	}
	var hidden map[string]bool
	for i, e := range update {
		switch {
		case of[i] >= 0:
		case len(update) == len(seen) && !back[i]:
			of[i] = i
		default:
			if hidden == nil {
				hidden = map[string]bool{}
				standIns(seen, was, hidden)
			}
			if hasAny(e, hidden) {
				return of, false
			}
		}
	}
	return of, true
}

// alike are the indices of the elements of a list by their JSON.
func alike(list []any) map[string][]int {
	out := make(map[string][]int, len(list))
	for i, e := range list {
		if text, err := json.Marshal(e); err == nil { // as it was read from JSON
			out[string(text)] = append(out[string(text)], i)
		}
	}
	return out
}

// standIns notes the strings and names of an observable copy that the original does not have at their places.
func standIns(observed, original any, into map[string]bool) {
	switch seen := observed.(type) {
	case string:
		if !same(observed, original) {
			into[seen] = true
		}
	case []any:
		was, _ := original.([]any)
		for i := range min(len(seen), len(was)) {
			standIns(seen[i], was[i], into)
		}
	case map[string]any:
		was, _ := original.(map[string]any)
		for k, s := range seen {
			w, own := was[k]
			if !own {
				into[k] = true
				continue
			}
			standIns(s, w, into)
		}
	}
}

// hasAny reports whether a value has one of these strings or names.
func hasAny(doc any, of map[string]bool) bool {
	switch v := doc.(type) {
	case string:
		return of[v]
	case []any:
		for _, e := range v {
			if hasAny(e, of) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if of[k] || hasAny(e, of) {
				return true
			}
		}
	}
	return false
}

// same reports whether two decoded JSON values are equal.
func same(a, b any) bool { return reflect.DeepEqual(a, b) }
