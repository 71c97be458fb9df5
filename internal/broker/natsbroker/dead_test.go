package natsbroker_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestDeadLetters are listed with the newest first, and are clipped in whole characters.
func TestDeadLetters(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	if none, err := b.DeadLetters(t.Context(), 10); err != nil || len(none) != 0 {
		t.Fatalf("a system without dead letters has %v, %v", none, err)
	}
	texts := []string{"short", strings.Repeat("x", broker.MaxDeadDataBytes-1) +
		"€ and more", strings.Repeat("€", broker.MaxDeadDataBytes), "\xff\x00", ""}
	for n, text := range texts {
		letter := broker.DeadLetter{Kind: broker.DeadSubmission, Agent: "a.b > *", Cause: strings.Repeat("é", 3_000),
			Subject: fmt.Sprint("ty.batch.x.", n), Seq: uint64(n)}
		if err := b.Bury(t.Context(), letter, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	letters, err := b.DeadLetters(t.Context(), 10)
	if err != nil || len(letters) != len(texts) {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	for i, l := range letters {
		n := len(texts) - 1 - i
		text := texts[n]
		if l.Subject != fmt.Sprint("ty.batch.x.", n) || l.Seq != uint64(n) || l.By != "/test" || l.Time.IsZero() ||
			l.Agent != "a.b > *" || l.Bytes != len(text) {
			t.Errorf("letter %d is %+v", i, l)
		}
		if len(l.Cause) > broker.MaxDeadCauseBytes+len("…") || !utf8.ValidString(l.Cause) {
			t.Errorf("letter %d has a cause of %d bytes", i, len(l.Cause))
		}
		if utf8.ValidString(text) {
			short := len(text) - len(l.Data)
			if !strings.HasPrefix(text, l.Data) || len(text) > broker.MaxDeadDataBytes &&
				len(l.Data) < broker.MaxDeadDataBytes-utf8.UTFMax || short > 0 && len(text) <= broker.MaxDeadDataBytes {
				t.Errorf("letter %d has %d bytes of a text of %d", i, len(l.Data), len(text))
			}
		} else if !bytes.Equal(l.DataBase64, []byte(text)) {
			t.Errorf("letter %d has %q of %q", i, l.DataBase64, text)
		}
	}
	if two, err := b.DeadLetters(t.Context(), 2); err != nil || len(two) != 2 || two[0].Seq != letters[0].Seq {
		t.Errorf("the newest two are %+v, %v", two, err)
	}
}

// TestAFullBatchStream: a submission gets an error that there is no room, and is not accepted.
func TestAFullBatchStream(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Open(t, testenv.Conn(t, s), broker.Settings{MaxStoreBytes: 64 << 20}, "/test")
	for n := range 100 {
		sub := submission(fmt.Sprint(n))
		sub.Calls[0].Input = []byte(`"` + strings.Repeat("x", 400<<10) + `"`)
		err := b.Submit(t.Context(), sub)
		if err == nil {
			continue
		}
		if !errors.Is(err, broker.ErrFull) || !strings.Contains(err.Error(), "was not accepted") {
			t.Errorf("batch %d: %v, want ErrFull", n, err)
		}
		if _, err := b.Fold(t.Context(), sub.Key()); !errors.Is(err, broker.ErrNoBatch) {
			t.Errorf("batch %d was refused and is there: %v", n, err)
		}
		return
	}
	t.Error("a stream of 8 MiB took 40 MiB")
}
