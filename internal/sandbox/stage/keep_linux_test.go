package stage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

var testKeep = &Keep{Note: ".note", MaxNote: 100, Bytes: 1 << 16, Names: 64}

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must.OK(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// seen lists a directory: names with kind, mode, time, content and target.
func seen(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(strings.TrimPrefix(p, dir) + " " + info.Mode().String())
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			b.WriteString(" " + info.ModTime().UTC().Format(time.RFC3339Nano) + " " + string(content))
		case info.Mode().Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			b.WriteString(" " + to)
		default:
			b.WriteString(" " + info.ModTime().UTC().Format(time.RFC3339Nano))
		}
		b.WriteString("\n")
		return nil
	})
	must.OK(t, err)
	return b.String()
}

func TestPackAndUnpack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	old := time.Date(2020, 1, 2, 3, 4, 5, 123_456_789, time.UTC)
	must := func(errs ...error) {
		t.Helper()
		must.OK(t, errors.Join(errs...))
	}
	at := func(name string) string { return filepath.Join(from, name) }
	must(os.MkdirAll(at("d/e"), 0o755), os.WriteFile(at("d/f"), []byte("content"), 0o640),
		os.WriteFile(at("run.sh"), []byte("#!"), 0o755), os.WriteFile(at("empty"), nil, 0o600),
		os.WriteFile(at(".note"), []byte("noted"), 0o600), os.Symlink("/etc/passwd", at("away")),
		os.Symlink("d", at("l")), os.Mkdir(at("ro"), 0o755), os.WriteFile(at("ro/x"), []byte("x"), 0o400),
		os.MkdirAll(at("d\xff/e\xff"), 0o750), os.WriteFile(at("d\xff/f\xff"), []byte("y"), 0o600), // no UTF-8
		os.Symlink("t\xff", at("l\xff")), os.Chtimes(at("d/f"), old, old),
		os.Chtimes(at("d/e"), old, old), os.Chmod(at("ro"), 0o555))
	t.Cleanup(func() { _ = errors.Join(os.Chmod(at("ro"), 0o755), os.Chmod(filepath.Join(to, "ro"), 0o755)) })
	var archive bytes.Buffer
	kept, err := pack(openRoot(t, from), &archive, testKeep, nil)
	must(err)
	if string(kept.Note) != "noted" || kept.Names != 13 || kept.Bytes != 11 || kept.Left != 0 {
		t.Errorf("%+v", kept)
	}
	must(unpack(openRoot(t, to), bytes.NewReader(archive.Bytes()), testKeep), os.Remove(at(".note")))
	must(os.Chtimes(at("d"), old, old), os.Chtimes(filepath.Join(to, "d"), old, old)) // the note is gone from one
	if got, want := seen(t, to), seen(t, from); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for n := range archive.Len() {
		if err := unpack(openRoot(t, t.TempDir()), bytes.NewReader(archive.Bytes()[:n]), testKeep); err == nil {
			t.Fatalf("an archive that is cut at %d of %d was taken", n, archive.Len())
		}
	}
}

func TestLimitsOfAnArchive(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"names": func(dir string) error {
			var err error
			for i := range testKeep.Names + 1 {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, strings.Repeat("x", int(i)+1)), nil, 0o600))
			}
			return err
		},
		"bytes": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "big"), make([]byte, testKeep.Bytes+1), 0o600)
		},
	} {
		dir := t.TempDir()
		must.OK(t, make(dir))
		var archive bytes.Buffer
		if _, err := pack(openRoot(t, dir), &archive, testKeep, nil); !errors.Is(err, errTooMuch) {
			t.Errorf("%s: %v", name, err)
		}
		wide := *testKeep
		wide.Bytes, wide.Names = 1<<20, 1000
		archive.Reset()
		_, err := pack(openRoot(t, dir), &archive, &wide, nil)
		if err = errors.Join(err, unpack(openRoot(t, t.TempDir()), &archive, testKeep)); !errors.Is(err, errTooMuch) {
			t.Errorf("%s, coming back: %v", name, err)
		}
	}
	deep := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", maxDepth+20)), 0o700))
	wide := *testKeep
	wide.Names = 1000
	if kept, err := pack(openRoot(t, deep), &bytes.Buffer{}, &wide, nil); err != nil || kept.Left != 1 ||
		kept.Names != maxDepth {
		t.Errorf("%+v %v", kept, err)
	}
}

// TestNoArchiveLeadsOut: an archive that nobody packed makes nothing outside of its directory.
func TestNoArchiveLeadsOut(t *testing.T) {
	for name, entries := range map[string][]Entry{
		"absolute":          {{Kind: FileEntry, Path: "/escaped", Mode: 0o600}},
		"up":                {{Kind: FileEntry, Path: "../escaped", Mode: 0o600}},
		"up behind a name":  {{Kind: DirEntry, Path: "a", Mode: 0o700}, {Kind: FileEntry, Path: "a/../../escaped"}},
		"through a link":    {{Kind: LinkEntry, Path: "l", To: ".."}, {Kind: FileEntry, Path: "l/escaped"}},
		"through two links": {{Kind: LinkEntry, Path: "l", To: "."}, {Kind: FileEntry, Path: "l/escaped"}},
		"into a link":       {{Kind: LinkEntry, Path: "l", To: "../escaped"}, {Kind: FileEntry, Path: "l"}},
		"the top":           {{Kind: DirEntry, Path: ".", Mode: 0o777}},
		"up behind bytes": {{Kind: DirEntry, Path: "\xff", Mode: 0o700},
			{Kind: FileEntry, Path: "\xff/../../escaped"}},
		"no name":         {{Kind: FileEntry, Path: ""}},
		"an odd kind":     {{Kind: 9, Path: "x"}},
		"a negative size": {{Kind: FileEntry, Path: "x", Size: -1}},
		"twice":           {{Kind: FileEntry, Path: "x"}, {Kind: FileEntry, Path: "x"}},
	} {
		var archive bytes.Buffer
		for i := range entries {
			must.OK(t, Write(&archive, &entries[i]))
		}
		must.OK(t, Write(&archive, &Entry{}))
		outer := t.TempDir()
		inner := filepath.Join(outer, "tmp")
		must.OK(t, os.Mkdir(inner, 0o700))
		if err := unpack(openRoot(t, inner), &archive, testKeep); err == nil {
			t.Errorf("%s: taken", name)
		}
		if left, err := os.ReadDir(outer); err != nil || len(left) != 1 {
			t.Errorf("%s: %v %v", name, left, err)
		}
	}
}

// FuzzUnpack: whatever an archive says, nothing outside of the directory changes, and what was unpacked packs again.
func FuzzUnpack(f *testing.F) {
	for _, entries := range [][]Entry{
		{{Kind: DirEntry, Path: "d", Mode: 0o700}, {Kind: FileEntry, Path: "d/f", Mode: 0o600}, {}},
		{{Kind: LinkEntry, Path: "l", To: "../escaped"}, {Kind: FileEntry, Path: "l/x", Mode: 0o600}, {}},
		{{Kind: FileEntry, Path: "../escaped"}, {}},
		{{Kind: DirEntry, Path: "\xff", Mode: 0o700}, {Kind: FileEntry, Path: "\xff/f", Mode: 0o600}, {}},
	} {
		var archive bytes.Buffer
		for i := range entries {
			must.OK(f, Write(&archive, &entries[i]))
		}
		f.Add(archive.Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		outer := t.TempDir()
		inner := filepath.Join(outer, "tmp")
		must.OK(t, os.Mkdir(inner, 0o700))
		root := openRoot(t, inner)
		err := unpack(root, bytes.NewReader(archive), testKeep)
		if left, e := os.ReadDir(outer); e != nil || len(left) != 1 {
			t.Fatalf("%v %v", left, e)
		}
		if err == nil {
			if _, err := pack(root, &bytes.Buffer{}, testKeep, nil); err != nil {
				t.Errorf("what was unpacked does not pack: %v", err)
			}
		}
		// what forbids itself to be removed must not break the test
		_ = filepath.WalkDir(inner, func(p string, d fs.DirEntry, _ error) error {
			if d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
	})
}
