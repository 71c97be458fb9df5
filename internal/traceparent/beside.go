package traceparent

import "strings"

// What goes beside a trace context is stored with a batch, and sent with each of its calls. So it is bounded.
const (
	// MaxStateBytes is how long a trace state may be, and MaxStateMembers how many members it has at most: as much as
	// W3C asks everybody to pass on.
	MaxStateBytes   = 512
	MaxStateMembers = 32
	// MaxBaggageBytes is how long baggage may be. W3C asks for 8,192 bytes: a call's message is about 1 KiB long, and
	// would be nine times as long with them. MaxBaggageMembers is how many members it has at most, as W3C has it.
	MaxBaggageBytes   = 2_048
	MaxBaggageMembers = 64

	maxStateKey    = 256 // in a trace state: bytes of a key without a tenant
	maxStateTenant = 241
	maxStateSystem = 14
	maxStateValue  = 256
)

// State returns a trace state as we pass it on: without blanks around its members. It is empty if the text is none, or
// past a limit.
func State(text string) string {
	seen := map[string]bool{}
	return list(text, MaxStateBytes, MaxStateMembers, func(member string) string {
		key, value, ok := strings.Cut(member, "=")
		if !ok || !stateKey(key) || !stateValue(value) || seen[key] {
			return ""
		}
		seen[key] = true
		return member
	})
}

// Baggage returns baggage as we pass it on: without blanks between its parts. It is empty if the text is none, or past
// a limit.
func Baggage(text string) string {
	return list(text, MaxBaggageBytes, MaxBaggageMembers, func(member string) string {
		pair, properties, more := strings.Cut(member, ";")
		out, ok := baggagePair(pair, true)
		for ok && more {
			var property string
			property, properties, more = strings.Cut(properties, ";")
			property, ok = baggagePair(property, false)
			out += ";" + property
		}
		if !ok {
			return ""
		}
		return out
	})
}

// list reads members between commas, and returns them as one text, or "" where one is bad or there are too many. member
// returns one as it is passed on, or "" if it is bad. Empty ones do not count.
func list(text string, maxBytes, maxMembers int, member func(string) string) string {
	if text == "" || len(text) > maxBytes {
		return ""
	}
	var out []string
	for m := range strings.SplitSeq(text, ",") {
		if m = trim(m); m == "" {
			continue
		}
		if m = member(m); m == "" || len(out) == maxMembers {
			return ""
		}
		out = append(out, m)
	}
	return strings.Join(out, ",")
}

// trim takes away what may stand around a member.
func trim(text string) string { return strings.Trim(text, " \t") }

// stateKey reports whether a text is a key of a trace state: a name, or tenant@system.
func stateKey(key string) bool {
	part := func(text string, most int, first func(byte) bool) bool {
		return text != "" && len(text) <= most && first(text[0]) && all(text, func(c byte) bool {
			return lower(c) || digit(c) || strings.IndexByte("_-*/", c) >= 0
		})
	}
	tenant, system, ok := strings.Cut(key, "@")
	if !ok {
		return part(key, maxStateKey, lower)
	}
	return part(tenant, maxStateTenant, func(c byte) bool { return lower(c) || digit(c) }) &&
		part(system, maxStateSystem, lower)
}

// stateValue reports whether a text is a value of a trace state. Its end is no blank, since its member was trimmed.
func stateValue(text string) bool {
	return text != "" && len(text) <= maxStateValue && all(text, func(c byte) bool {
		return ' ' <= c && c <= '~' && c != ',' && c != '='
	})
}

// baggagePair reads a key with its value, without the blanks around them. Only properties may lack a value.
func baggagePair(text string, needed bool) (string, bool) {
	key, value, ok := strings.Cut(text, "=")
	if key = trim(key); key == "" || !all(key, tokenChar) || !ok {
		return key, key != "" && all(key, tokenChar) && !needed
	}
	value = trim(value)
	return key + "=" + value, all(value, func(c byte) bool {
		return '!' <= c && c <= '~' && strings.IndexByte(`",;\`, c) < 0
	})
}

// tokenChar reports whether a character may stand in a token of HTTP.
func tokenChar(c byte) bool {
	return lower(c) || 'A' <= c && c <= 'Z' || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' }
func digit(c byte) bool { return '0' <= c && c <= '9' }

func all(text string, ok func(byte) bool) bool {
	for i := range len(text) {
		if !ok(text[i]) {
			return false
		}
	}
	return true
}
