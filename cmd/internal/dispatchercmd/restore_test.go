package dispatchercmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/testenv"
)

// lineFunc calls a function at the first write.
type lineFunc struct {
	bytes.Buffer
	do func()
}

func (l *lineFunc) Write(p []byte) (int, error) {
	if l.do != nil {
		l.do()
		l.do = nil
	}
	return l.Buffer.Write(p)
}

// TestARestoreThatFailsRemovesOnlyWhatItMade: a dispatcher that starts meanwhile makes a system of its own, and what it
// has accepted stays.
func TestARestoreThatFailsRemovesOnlyWhatItMade(t *testing.T) {
	platform := access.Principal{Role: access.Dispatcher}
	from := testenv.Guarded(t)
	testenv.BrokerAs(t, from, platform, "/a")
	dir := filepath.Join(t.TempDir(), "saved")
	s := &std{in: strings.NewReader(""), out: &bytes.Buffer{}, err: os.Stderr}
	if err := s.save(t.Context(), testenv.ConnAs(t, from, platform), dir, &streamsDone{}); err != nil {
		t.Fatal(err)
	}
	to := testenv.Guarded(t)
	nc := testenv.ConnAs(t, to, platform)
	js, err := jetstream.New(testenv.ConnAs(t, to, platform))
	if err != nil {
		t.Fatal(err)
	}
	s.out = &lineFunc{do: func() { // as a dispatcher does that starts now
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TY_BATCH",
			Subjects: []string{"ty.batch.*.*", "ty.wake.*.*"}}); err != nil {
			t.Error(err)
		}
		if _, err := js.Publish(t.Context(), "ty.batch.a.accepted", []byte("x")); err != nil {
			t.Error(err)
		}
	}}
	b, err := readBackup(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = s.restore(t.Context(), nc, b, dir, &streamsDone{})
	t.Logf("restore: %v", err)
	if err == nil {
		t.Fatal("it restored over a system")
	}
	st, err := js.Stream(t.Context(), "TY_BATCH")
	if err != nil {
		t.Fatalf("the other's stream, with what was acknowledged, is gone: %v", err)
	}
	if m, err := st.GetLastMsgForSubject(t.Context(), "ty.batch.a.accepted"); err != nil {
		t.Errorf("what was acknowledged is gone: %v, %v", m, err)
	}
}
