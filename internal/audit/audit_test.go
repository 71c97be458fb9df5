package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// entries are the lines of a file.
func entries(t *testing.T, path string) (out []Entry) {
	t.Helper()
	data, err := os.ReadFile(path)
	must.OK(t, err)
	for line := range bytes.Lines(data) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

// TestLog: every entry is a whole line, whoever writes at the same time; after a rename the log goes on in a new file.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	var said bytes.Buffer
	l, err := Open(path, slog.New(slog.NewTextHandler(&said, nil)))
	must.OK(t, err)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				l.Put(Entry{Action: "submit", By: "ann\n", Reason: strings.Repeat("x", 2*MaxTextBytes),
					Tools: make([]string, 2*MaxTools)})
			}
		})
	}
	all.Wait()
	got := entries(t, path)
	if len(got) != 400 {
		t.Errorf("%d lines; want 400", len(got))
	}
	for _, e := range got {
		if e.Time.IsZero() || e.By != "ann\n" || len(e.Reason) != MaxTextBytes || len(e.Tools) != MaxTools {
			t.Fatalf("%+v", e)
		}
	}
	must.OK(t, os.Rename(path, path+".1"))
	must.OK(t, l.Reopen())
	l.Put(Entry{Action: "decide"})
	if got := entries(t, path); len(got) != 1 || got[0].Action != "decide" {
		t.Errorf("the new file has %+v", got)
	}
	must.OK(t, l.Close())
	l.Put(Entry{Action: "lost"})
	if !strings.Contains(said.String(), "lost") {
		t.Errorf("an entry that was not written is not told: %s", said.String())
	}
	var none *Log
	none.Put(Entry{})
}

// TestAnEntryThatIsNotWrittenIsToldWhole: the process's log has all that the line would have had, in the same form.
func TestAnEntryThatIsNotWrittenIsToldWhole(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	l, err := Open(filepath.Join(t.TempDir(), "audit"), slog.New(slog.NewJSONHandler(&said, nil)))
	must.OK(t, err)
	must.OK(t, l.Close())
	l.Put(Entry{Action: "decide", By: "ann", Batch: "b", Call: new(3), Decision: "allow", Tools: []string{"x y", "z"}})
	var told struct{ Entry string }
	must.OK(t, json.Unmarshal(said.Bytes(), &told))
	var e Entry
	if err := json.Unmarshal([]byte(told.Entry), &e); err != nil || e.Call == nil || *e.Call != 3 || e.By != "ann" ||
		len(e.Tools) != 2 || e.Time.IsZero() {
		t.Errorf("%v: the log has the entry as %s", err, told.Entry)
	}
}

// tight is a file on a disk that is full after some bytes, until there is room again.
type tight struct {
	*os.File
	room int
}

func (f *tight) Write(b []byte) (int, error) {
	n, err := f.File.Write(b[:min(len(b), f.room)])
	f.room -= n
	if err == nil && n < len(b) {
		err = errors.New("no space left on device")
	}
	return n, err
}

// TestACutLineTakesNoOtherAlong: a line of which only a part was written, as on a full disk, ends there. The next entry
// has a line of its own, also after the process has started anew.
func TestACutLineTakesNoOtherAlong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	quiet := slog.New(slog.DiscardHandler)
	l, err := Open(path, quiet)
	must.OK(t, err)
	file, ok := l.file.(*os.File)
	if !ok {
		t.Fatalf("the file is a %T", l.file)
	}
	for _, room := range []int{20, 0, 1 << 20, 20} {
		l.file = &tight{file, room}
		l.Put(Entry{Action: fmt.Sprint("room ", room)})
	}
	must.OK(t, l.Close())
	for range 2 {
		if l, err = Open(path, quiet); err != nil {
			t.Fatal(err)
		}
		l.Put(Entry{Action: "anew"})
		must.OK(t, l.Close())
	}
	data, err := os.ReadFile(path)
	must.OK(t, err)
	var whole []string
	cut := 0
	for line := range bytes.Lines(data) {
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			cut++
			continue
		}
		whole = append(whole, e.Action)
	}
	if got := strings.Join(whole, ", "); got != "room 1048576, anew, anew" || cut != 2 {
		t.Errorf("entries %s, and %d cut lines, in\n%s", got, cut, data)
	}
}
