package registry

import (
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// locking is a tool with locks whose inputs have two required fields and one that may be left out.
func locking(class toolyard.Class, locks ...string) Entry {
	return entry(Toolset, "edit", func(e *Entry) {
		e.InputSchema = json.RawMessage(`{"type": "object", "required": ["p", "q"], "properties": {
			"p": {"type": "string"}, "q": {}, "r": {"type": "string"}}}`)
		e.Class, e.ReadOnly, e.Locks = tool.ClassRule{Static: class}, class == toolyard.ReadOnly, locks
	})
}

func value(t testing.TB, input string) schema.Value {
	t.Helper()
	v, err := schema.Parse(json.RawMessage(input))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLocks: a call's names follow from its input and its class; where one is not certain, the call needs the whole
// workspace.
func TestLocks(t *testing.T) {
	const read, write = toolyard.ReadOnly, toolyard.WriteExclusive
	long := strings.Repeat("n", tool.MaxLockNameBytes)
	for name, c := range map[string]struct {
		class toolyard.Class
		locks []string
		input string
		want  string
	}{
		"a file":                  {write, []string{"file:{p}"}, `{"p": "a/b.go"}`, "file:a/b.go"},
		"a file that is read":     {read, []string{"file:{p}"}, `{"p": "a"}`, "file:a (shared)"},
		"another spelling":        {write, []string{"file:{p}"}, `{"p": "./A//b.go"}`, "file:a/b.go"},
		"two names, in one order": {write, []string{"db:{p}", "a:{q}"}, `{"p": "x", "q": "y"}`, "a:y, db:x"},
		"one shared":              {write, []string{"shared db:{p}", "t:{p}.{q}"}, `{"p": "x", "q": "y"}`, "db:x (shared), t:x.y"},
		"twice":                   {write, []string{"shared db:{p}", "db:{q}"}, `{"p": "x", "q": "x"}`, "db:x"},
		"no field":                {write, []string{"migrations"}, `{}`, "migrations"},
		"an unsafe call":          {toolyard.Unsafe, []string{"file:{p}"}, `{"p": "a"}`, ""},
		"a class that is unknown": {"", []string{"file:{p}"}, `{"p": "a"}`, ""},
		"only shared":             {write, []string{"shared db:{p}"}, `{"p": "x"}`, ""},
		"no value":                {write, []string{"db:{p}"}, `{}`, ""},
		"an empty value":          {write, []string{"db:{p}"}, `{"p": ""}`, ""},
		"a number":                {write, []string{"db:{p}"}, `{"p": 10.0}`, ""},
		"a field with a twin":     {write, []string{"db:{p}"}, `{"p": "x", "P": "y"}`, ""},
		"one of two is uncertain": {write, []string{"db:{q}", "file:{p}"}, `{"p": "/a", "q": "x"}`, ""},
		"a rule that is none":     {write, []string{"db:{p}", "{p}"}, `{"p": "x"}`, ""},
		"a value like a space":    {write, []string{"db:{p}"}, `{"p": "x, file:a"}`, "db:x, file:a"},
		"a long value":            {write, []string{"db:{p}"}, `{"p": "` + long + `"}`, shortName("db", long)},
		"a value of two lines":    {write, []string{"db:{p}"}, `{"p": "a\nb"}`, shortName("db", "a\nb")},
	} {
		e := locking(c.class, c.locks...)
		if got := LockText(Locks(&e.Declaration, value(t, c.input), c.class)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	no := false
	outside := locking(write, "db:{p}")
	outside.UsesWorkspace = &no
	if got := Locks(&outside.Declaration, value(t, `{"p": "x"}`), write); got != nil {
		t.Errorf("a tool outside the workspace has the locks %v", got)
	}
}

func TestFileLock(t *testing.T) {
	for written, want := range map[string]string{
		"a": "file:a", "./a": "file:a", "a/./b": "file:a/b", "A/B.go": "file:a/b.go", "a b": "file:a b",
		".env": "file:.env",
		"":     "", ".": "", "a/": "", "/a": "", "..": "", "a/../b": "", "../a": "", `a\b`: "", "a:b": "", "PROGRA~1": "",
		"a.": "", "a ": "", "a./b": "", "ä": "", "a\x00": "", "a\nb": "", "CON?": "",
	} {
		got, ok := FileLock(written)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", written, got, ok, want)
		}
	}
}

func TestHoldAll(t *testing.T) {
	e := locking(toolyard.WriteExclusive, "file:{p}")
	for input, c := range map[string]struct {
		held []tool.Lock
		want bool
	}{
		`{"p": "a"}`:   {[]tool.Lock{{Name: "file:a"}}, true},
		`{"p": "./a"}`: {[]tool.Lock{{Name: "file:a"}, {Name: "file:b"}}, true},
		`{"p": "b"}`:   {[]tool.Lock{{Name: "file:a"}}, false},
		`{"p": "c"}`:   {[]tool.Lock{{Name: "file:c", Shared: true}}, false},
		`{"p": "/a"}`:  {[]tool.Lock{{Name: "file:a"}}, false},
	} {
		if got := HoldAll(c.held, &e.Declaration, value(t, input), toolyard.WriteExclusive); got != c.want {
			t.Errorf("%s with %s: %v", input, LockText(c.held), got)
		}
	}
}

func TestLocksThatAreRefused(t *testing.T) {
	const write = toolyard.WriteExclusive
	no := false
	outside := locking(write, "db:{p}")
	outside.UsesWorkspace = &no
	for want, e := range map[string]Entry{
		"does not begin with a space":  locking(write, "{p}"),
		"Db":                           locking(write, "Db:{p}"),
		"nothing behind the colon":     locking(write, "db:"),
		"names no file":                locking(write, "file"),
		"is no file":                   locking(write, "file:src/{p}"),
		"a brace that belongs to no":   locking(write, "db:{p"),
		"{r} is not a property that":   locking(write, "db:{r}"),
		"{x} is not a property that":   locking(write, "db:{x}"),
		"at most 256 are allowed":      locking(write, "db:"+strings.Repeat("a", 300)),
		"has 9; at most 8 are allowed": locking(write, slices.Repeat([]string{"db:{p}"}, 9)...),
		"needs one that is not shared": locking(write, "shared db:{p}"),
		"which the tool does not use":  outside,
	} {
		if _, err := (Registry{}).Register(e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", e.Locks, err, want)
		}
	}
	for _, e := range []Entry{locking(write, "file:{p}", "shared db:{q}"),
		locking(toolyard.ReadOnly, "shared db:{p}")} {
		if _, err := (Registry{}).Register(e); err != nil {
			t.Errorf("%q: %v", e.Locks, err)
		}
	}
}

// FuzzFileLock: a path that has a lock is one relative file, and all spellings of it have the same.
func FuzzFileLock(f *testing.F) {
	for _, written := range []string{"a", "./a//B", "a/../b", `a\b`, "/a", "ä", "a.", strings.Repeat("a/", 200) + "a"} {
		f.Add(written)
	}
	f.Fuzz(func(t *testing.T, written string) {
		name, ok := FileLock(written)
		if !ok {
			return
		}
		if !strings.HasPrefix(name, "file:") || len(name) > tool.MaxLockNameBytes {
			t.Fatalf("%q has the lock %q", written, name)
		}
		clean := path.Clean(written)
		if path.IsAbs(clean) || clean == "." || strings.HasPrefix(clean, "..") && (clean == ".." || clean[2] == '/') {
			t.Fatalf("%q has the lock %q, and is no file below", written, name)
		}
		for _, other := range []string{clean, "./" + written, strings.ToUpper(written),
			strings.ReplaceAll(written, "/", "//")} {
			if again, ok := FileLock(other); !ok || again != name {
				t.Fatalf("%q has the lock %q, and %q has %q", written, name, other, again)
			}
		}
		if next, ok := FileLock(written + "x"); !ok || next == name {
			t.Fatalf("%q and a longer name have the lock %q, %q", written, name, next)
		}
	})
}

// FuzzLocks: whatever a tool declares and a model writes, a name is within its limits and in a space that the tool
// declares, and a call that writes has one that it does not share.
func FuzzLocks(f *testing.F) {
	f.Add("file:{p}", "shared db:{q}", `{"p": "a/b", "q": "x"}`)
	f.Add("migrations", "t:{p}.{q}", `{"p": "a:b", "q": "\u0000"}`)
	f.Add("{p}", "a:{P}", `{"p": ["a"], "P": null}`)
	f.Fuzz(func(t *testing.T, one, two, input string) {
		v, err := schema.Parse(json.RawMessage(input))
		if err != nil {
			return
		}
		e := locking(toolyard.WriteExclusive, one, two)
		locks := Locks(&e.Declaration, v, toolyard.WriteExclusive)
		if !reflect.DeepEqual(locks, Locks(&e.Declaration, v, toolyard.WriteExclusive)) {
			t.Fatal("the same input has other locks")
		}
		var spaces []string
		for _, text := range e.Locks {
			if rule, err := tool.ParseLockRule(text); err == nil {
				spaces = append(spaces, rule.Space)
			}
		}
		exclusive := len(locks) == 0
		for _, l := range locks {
			space, _, _ := strings.Cut(l.Name, ":")
			if !slices.Contains(spaces, space) || len(l.Name) > tool.MaxLockNameBytes {
				t.Fatalf("%q has the lock %q", e.Locks, l.Name)
			}
			exclusive = exclusive || !l.Shared
		}
		if !exclusive {
			t.Fatalf("%q only shares %v", e.Locks, locks)
		}
	})
}
