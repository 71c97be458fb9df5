package redact

import (
	"strings"
	"testing"
)

// TestUnfinished: wherever a text is cut, what is let go before a cut and what follows it have no secret between them.
func TestUnfinished(t *testing.T) {
	const secret = "hunter2-correct horse%battery"
	r := New([]Secret{{"DOOR", secret}, {"LONGER", secret + "-and-more"}, {"WORDS", "first Bearer second ghp_third"},
		{"KEY", "0123456789abcdef0123456789abcdef"}})
	for _, text := range []string{
		"the key is " + secret + " and so on",
		"the key is " + secret + "-and-more and so on",
		`{"key": "hunter2-correct\u0020horse\u0025battery"} and so on`,
		"?key=hunter2-correct%20horse%25battery&x=1",
		"key: hunter2-\x1b[31mcorrect horse\x1b[0m%battery and so on",
		"in hex 68756e746572322d636f727265637420686f727365256261747465727900 and so on",
		"in base64 aHVudGVyMi1jb3JyZWN0IGhvcnNlJWJhdHRlcnk= and so on",
		"a token ghp_abcdefghijklmnopqrstuvwxyz0123456789AB and so on",
		"GET / Authorization: Bearer abcdef0123456789ABCDEF and so on",
		`"authorization" : "Basic abcdef0123456789ABCDEF"`,
		"Authorization: Basic eyJhbGciOiJIUzI1NiJ9abcdef and so on",
		"it is first Bearer second ghp_third and so on",
		"postgres://me:correct-horse@host/db and so on",
		"x-api-key: abcdef0123456789ABCDEF and so on",
		"aws_secret_access_key = abcdefghij0123456789ABCDEFGHIJ0123456789 and so on",
	} {
		want := r.Redact(text)
		if want == text {
			t.Fatalf("%q has no secret", text)
		}
		for cut := range text {
			at := r.Unfinished(text[:cut])
			if got := r.Redact(text[:at]) + r.Redact(text[at:]); got != want {
				t.Errorf("cut behind %q and let go up to %d:\n got %q\nwant %q", text[:cut], at, got, want)
			}
		}
	}
	for _, text := range []string{
		"", "..........", "Continue? [y/N] ", "copying 43%,", "see https://example.com/x for a list of them: ",
		"\x1b[31mred\x1b[0m.", "it is hunter2-correct horse%battery-and-more",
		strings.Repeat("Authorization: ", 20) + "a b c d ",
	} {
		if at := r.Unfinished(text); at != len(text) {
			t.Errorf("%q: %q is held back", text, text[at:])
		}
	}
	if text := "the key is " + secret[:9]; r.Unfinished(text) != len("the key is ") {
		t.Errorf("%q: let go up to %d", text, r.Unfinished(text))
	}
}

// TestUnfinishedIsFast: of text that begins a secret everywhere.
func TestUnfinishedIsFast(t *testing.T) {
	r := New([]Secret{{"DOOR", strings.Repeat("://", 5_000)}})
	for _, part := range []string{"://", "Bearer ", "a", `\`, "%25", "\x1b]", "\x1b[", "eyJ ", "-----BEGIN "} {
		text := strings.Repeat(part, 16<<10/len(part))
		if at := r.Unfinished(text); at < 0 || at > len(text) {
			t.Errorf("%q: %d", part, at)
		}
	}
}
