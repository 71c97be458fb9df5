package wire

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/version"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// stored are what is kept in keys, metadata and objects, and sent from process to process, beside events. The form of
// the index is that of its keys, which TestIndexKeys holds.
var stored = map[string]any{
	"settings": broker.Settings{}, "worker": broker.Worker{}, "session": broker.Session{},
	"approval": broker.Approval{},
	"tickets":  ticket.Queue{}, "dead letter": broker.DeadLetter{}, "surface": registry.Surface{},
	"judge": broker.JudgeCall{}, "judged": broker.Judged{}, "abort": broker.AbortNotice{},
	"progress": broker.Progress{}, "room": broker.Room{},
}

// TestWireForms: whoever changes what is written for other processes to read raises the wire version.
func TestWireForms(t *testing.T) {
	var f forms
	for _, b := range events.Bodies() {
		f.add(string(b.EventType()), reflect.TypeOf(b))
	}
	for name, v := range stored {
		f.add(name, reflect.TypeOf(v))
	}
	for name, v := range events.SlimForms() {
		f.add(name, reflect.TypeOf(v))
	}
	slices.Sort(f.lines)
	got := fmt.Sprintf("wire version %d\n\n%s\n", version.Wire, strings.Join(f.lines, "\n"))
	file := filepath.Join("testdata", "forms.txt")
	if *update {
		must.OK(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Read(t, file)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("what is written for others to read has changed: raise Wire in internal/version/version.go, with a dated "+
			"line, and run go test ./test/wire -update (-was +is):\n%s", d)
	}
}

// forms are lines "type field kind", of each type once.
type forms struct {
	lines []string
	seen  map[reflect.Type]bool
}

func (f *forms) add(name string, t reflect.Type) {
	if f.seen == nil {
		f.seen = map[reflect.Type]bool{}
	}
	fields := 0
	for _, field := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && tag == "" || tag == "-" || !field.IsExported() {
			continue
		}
		fields++
		f.lines = append(f.lines, fmt.Sprintf("%s  %s  %s", name, tag, f.kind(field.Type)))
	}
	if fields == 0 {
		f.lines = append(f.lines, name)
	}
}

// kind says what the JSON of a type is. Structs are added by their names in Go.
func (f *forms) kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[json.RawMessage]():
		return t.String()
	case t.Kind() == reflect.Pointer:
		return f.kind(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]" + f.kind(t.Elem())
	case t.Kind() == reflect.Map:
		return "map of " + f.kind(t.Elem())
	case t.Kind() == reflect.Struct:
		if !f.seen[t] {
			f.seen[t] = true
			f.add(t.String(), t)
		}
		return t.String()
	}
	return t.Kind().String()
}
