package traceparent

import (
	"fmt"
	"strings"
	"testing"
)

// members are n members of a list.
func members(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("k%d=v", i)
	}
	return strings.Join(out, ",")
}

// TestState: what is no trace state is not passed on, and no part of it.
func TestState(t *testing.T) {
	wide := "a=" + strings.Repeat("x", 256) + ",b=" + strings.Repeat("x", 256)
	for text, want := range map[string]string{
		"":                                     "",
		",, ,":                                 "",
		"vendor=1":                             "vendor=1",
		" vendor=1 ,\tother=a b\t":             "vendor=1,other=a b",
		"vendor=1,,other=2":                    "vendor=1,other=2",
		"1tenant@sys=a,t@s=b":                  "1tenant@sys=a,t@s=b",
		"a_-*/9=!":                             "a_-*/9=!",
		"vendor=1,vendor=2":                    "",
		"vendor":                               "",
		"vendor=":                              "",
		"=1":                                   "",
		"Vendor=1":                             "",
		"1vendor=1":                            "",
		"a@1sys=1":                             "",
		"a@b@c=1":                              "",
		"a@=1":                                 "",
		"@a=1":                                 "",
		"ven dor=1":                            "",
		"vendor=1=2":                           "",
		"vendor=a\nb":                          "",
		"vendor=ä":                             "",
		"vendor=1,other=\x7f":                  "",
		members(MaxStateMembers):               members(MaxStateMembers),
		members(MaxStateMembers + 1):           "",
		"a=" + strings.Repeat("x", 257):        "",
		strings.Repeat("a", 257) + "=1":        "",
		"a@" + strings.Repeat("s", 15) + "=1":  "",
		wide[:MaxStateBytes]:                   wide[:MaxStateBytes],
		wide:                                   "",
		strings.Repeat("a", 256) + "=1":        strings.Repeat("a", 256) + "=1",
		strings.Repeat("a", 241) + "@sys=1":    strings.Repeat("a", 241) + "@sys=1",
		strings.Repeat("a", 242) + "@sys=1":    "",
		"vendor=1\r\nTraceparent: 00-1-2-01":   "",
		"vendor=1,\"quoted\"=2":                "",
		"rojo=00f067aa0ba902b7,congo=t61rcWkg": "rojo=00f067aa0ba902b7,congo=t61rcWkg",
	} {
		if got := State(text); got != want {
			t.Errorf("%q is passed on as %q; want %q", text, got, want)
		}
	}
}

// TestBaggage: the same of baggage, whose members may have properties.
func TestBaggage(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"user=ann":                     "user=ann",
		" user = ann , region=eu":      "user=ann,region=eu",
		"user=ann ; ttl = 60 ; safe":   "user=ann;ttl=60;safe",
		"user=":                        "user=",
		"user=a%20b==":                 "user=a%20b==",
		"user=ann,user=bob":            "user=ann,user=bob",
		"user":                         "",
		"user;ttl=60":                  "",
		"user=ann;":                    "",
		"user=ann;=60":                 "",
		"us er=ann":                    "",
		"user=a b":                     "",
		`user="ann"`:                   "",
		`user=a\b`:                     "",
		"user=ann;ttl=6 0":             "",
		"user=ä":                       "",
		"user=ann\r\nCookie: a=b":      "",
		members(MaxBaggageMembers):     members(MaxBaggageMembers),
		members(MaxBaggageMembers + 1): "",
		"a=" + strings.Repeat("x", MaxBaggageBytes-2): "a=" + strings.Repeat("x", MaxBaggageBytes-2),
		"a=" + strings.Repeat("x", MaxBaggageBytes-1): "",
	} {
		if got := Baggage(text); got != want {
			t.Errorf("%q is passed on as %q; want %q", text, got, want)
		}
	}
}

// TestOf: a trace state counts only beside a trace context, and baggage also alone. Lists come in several fields.
func TestOf(t *testing.T) {
	if got, want := Of("none", "a=1", "b=2"), (Context{Baggage: "b=2"}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	sent := map[string][]string{Header: {one}, StateHeader: {"a=1", "b=2"}, BaggageHeader: {"", "c=3"}}
	got := OfFields(func(name string) []string { return sent[name] })
	want := Context{Parent: one, State: "a=1,b=2", Baggage: "c=3"}
	if got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	var fields []string
	for name, value := range want.Fields {
		fields = append(fields, name+": "+value)
	}
	if said := strings.Join(fields, "\n"); said != "traceparent: "+one+"\ntracestate: a=1,b=2\nbaggage: c=3" {
		t.Errorf("the fields are %q", fields)
	}
	for range want.Fields { // who has enough gets no more
		break
	}
	for name := range (Context{}).Fields {
		t.Errorf("nothing has the field %s", name)
	}
	if got := OfFields(func(string) []string { return []string{one, one} }); got != (Context{}) {
		t.Errorf("two trace contexts are passed on as %+v", got)
	}
}

// FuzzBeside: what is passed on stays what it is, is within its limits, and ends no header.
func FuzzBeside(f *testing.F) {
	f.Add("vendor=t61rcWkgMzE , ,other@sys=a b")
	f.Add("user = ann ; ttl=60;safe, region=eu%20west")
	f.Fuzz(func(t *testing.T, text string) {
		for name, read := range map[string]struct {
			of             func(string) string
			bytes, members int
		}{"state": {State, MaxStateBytes, MaxStateMembers}, "baggage": {Baggage, MaxBaggageBytes, MaxBaggageMembers}} {
			got := read.of(text)
			if read.of(got) != got || len(got) > read.bytes || got != "" && strings.Count(got, ",") >= read.members ||
				strings.TrimSpace(got) != got || !all(got, func(c byte) bool { return ' ' <= c && c <= '~' }) {
				t.Errorf("the %s %q is passed on as %q", name, text, got)
			}
		}
	})
}
