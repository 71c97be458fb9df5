package dispatchercmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestDead lists dead letters: for people with terminal escapes made visible, for programs unchanged.
func TestDead(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	dead := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		cmd := Command(strings.NewReader(""), &out, &errs)
		cmd.SetArgs(append([]string{"dead", "--nats", s.ClientURL()}, args...))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("dead %q: %v\n%s", args, err, errs.String())
		}
		return out.String()
	}
	if got := dead(); got != "0 dead letters\n" {
		t.Errorf("without any: %q", got)
	}
	const evil = "a\x1b]0;owned\x07\x1b[2Jb\r\u009bc\u202ed"
	call := 3
	for _, l := range []broker.DeadLetter{
		{Kind: broker.DeadBatch, Agent: evil, Batch: evil, Cause: evil, Subject: evil, Seq: 7},
		{Kind: broker.DeadCall, Agent: "a", Batch: "b", Call: &call, Cause: "it cannot be read", Subject: "ty.call.x",
			Seq: 8},
	} {
		if err := b.Bury(t.Context(), l, []byte(evil+strings.Repeat("x", 1_000))); err != nil {
			t.Fatal(err)
		}
	}
	text := dead()
	if i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && r < 0x20 || r >= 0x7f && r < 0xa0 ||
			r == '\u202e'
	}); i >= 0 {
		t.Errorf("a control character at byte %d of %q", i, text)
	}
	for _, want := range []string{"call  a/b [3]  message 8 on ty.call.x, ", "found by /test: it cannot be read\n",
		"2 dead letters\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	var letters []client.DeadLetter
	if err := json.Unmarshal([]byte(dead("--json", "--limit", "1")), &letters); err != nil || len(letters) != 1 ||
		letters[0].Seq != 8 || *letters[0].Call != 3 {
		t.Errorf("as JSON, the newest: %+v, %v", letters, err)
	}
	bad := Command(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	bad.SetArgs([]string{"dead", "--limit", "0"})
	if err := bad.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--limit 0") {
		t.Errorf("a limit of 0: %v", err)
	}
}
