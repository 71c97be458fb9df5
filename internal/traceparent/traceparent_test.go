package traceparent

import (
	"context"
	"testing"
)

const one = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestValid: what is no trace context is not passed on, and one of a later version is passed on as ours.
func TestValid(t *testing.T) {
	for text, want := range map[string]string{
		one:                     one,
		"00" + one[2:53] + "00": one[:53] + "00",
		"cc" + one[2:]:          one,
		"cc" + one[2:] + "-what the future brings": "00" + one[2:],
		"cc" + one[2:] + ".what":                   "",
		one + "-more":                              "",
		"ff" + one[2:]:                             "",
		"":                                         "",
		"00":                                       "",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01":  "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":  "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":  "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g":  "",
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01":  "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331\r\n": "",
	} {
		if got := Valid(text); got != want {
			t.Errorf("%q is passed on as %q; want %q", text, got, want)
		}
	}
	if got := TraceID(one); got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the trace of %s is %s", one, got)
	}
	if got := TraceID(""); got != "" {
		t.Errorf("no trace context names the trace %s", got)
	}
}

// TestNothingIsMadeOfNothing: where no trace is followed, carrying one costs nothing.
func TestNothingIsMadeOfNothing(t *testing.T) {
	ctx := context.WithValue(t.Context(), t, "something else")
	if got := testing.AllocsPerRun(100, func() {
		if With(ctx, Context{}) != ctx || From(ctx) != (Context{}) || Of(one, "", "") != (Context{Parent: one}) {
			t.Error("a context that carries nothing carries something")
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
	all := Context{Parent: one, State: "a=1", Baggage: "b=2"}
	if got := From(With(ctx, all)); got != all {
		t.Errorf("the context carries %q", got)
	}
}

// FuzzValid: what is passed on is always a trace context of version 00, and stays what it is.
func FuzzValid(f *testing.F) {
	f.Add(one)
	f.Add("cc" + one[2:] + "-more")
	f.Fuzz(func(t *testing.T, text string) {
		v := Valid(text)
		if v != "" && (len(v) != len(one) || v[:3] != "00-" || Valid(v) != v || len(TraceID(v)) != 32) {
			t.Errorf("%q is passed on as %q", text, v)
		}
	})
}
