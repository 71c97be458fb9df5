package tables

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lib "github.com/parquet-go/parquet-go"

	"github.com/toolyard/toolyard/internal/parquet"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// name is a text of a type of its own, as most of ours are.
type name string

// row has a column of every kind, each also with missing values.
type row struct {
	Text     name       `json:"text"`
	Same     string     `json:"same"`
	Yes      bool       `json:"yes"`
	Small    int32      `json:"small"`
	Large    int64      `json:"large"`
	At       time.Time  `json:"at"`
	NoText   *name      `json:"no_text"`
	NoYes    *bool      `json:"no_yes"`
	NoSmall  *int32     `json:"no_small"`
	NoLarge  *int64     `json:"no_large"`
	NoAt     *time.Time `json:"no_at"`
	Never    *string    `json:"never"`
	NeverYet *int64     `json:"never_yet"`
}

// asRead is the same row for the library.
type asRead struct {
	Text     string     `parquet:"text"`
	Same     string     `parquet:"same"`
	Yes      bool       `parquet:"yes"`
	Small    int32      `parquet:"small"`
	Large    int64      `parquet:"large"`
	At       time.Time  `parquet:"at,timestamp(microsecond)"`
	NoText   *string    `parquet:"no_text,optional"`
	NoYes    *bool      `parquet:"no_yes,optional"`
	NoSmall  *int32     `parquet:"no_small,optional"`
	NoLarge  *int64     `parquet:"no_large,optional"`
	NoAt     *time.Time `parquet:"no_at,optional,timestamp(microsecond)"`
	Never    *string    `parquet:"never,optional"`
	NeverYet *int64     `parquet:"never_yet,optional"`
}

func (r *row) asRead() asRead {
	return asRead{Text: string(r.Text), Same: r.Same, Yes: r.Yes, Small: r.Small, Large: r.Large, At: r.At,
		NoText: (*string)(r.NoText), NoYes: r.NoYes, NoSmall: r.NoSmall, NoLarge: r.NoLarge, NoAt: r.NoAt,
		Never: r.Never, NeverYet: r.NeverYet}
}

// written are the bytes of a file of rows.
func written(t *testing.T, rows []row) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := parquet.NewWriter[row](&out, "toolyard of a test")
	must.OK(t, err)
	for i := range rows {
		must.OK(t, w.Write(&rows[i]))
	}
	must.OK(t, w.Close())
	if w.Bytes() != int64(out.Len()) {
		t.Errorf("the writer counts %d bytes, and wrote %d", w.Bytes(), out.Len())
	}
	return out.Bytes()
}

// readBack reads a file with the library. The columns are those of T, by name, type and whether values may be missing.
func readBack[T any](t *testing.T, file []byte) (rows []T) {
	t.Helper()
	f, err := lib.OpenFile(bytes.NewReader(file), int64(len(file)))
	must.OK(t, err)
	if want := lib.SchemaOf(new(T)); !sameColumns(f.Schema(), want) {
		t.Fatalf("the columns are\n%s\nwant\n%s", f.Schema(), want)
	}
	r := lib.NewGenericReader[T](f)
	defer func() { _ = r.Close() }()
	rows = make([]T, f.NumRows())
	for n := 0; n < len(rows); {
		read, err := r.Read(rows[n:])
		if n += read; err != nil && !(errors.Is(err, io.EOF) && n == len(rows)) {
			t.Fatalf("after %d of %d rows: %v", n, len(rows), err)
		}
	}
	return rows
}

// sameColumns compares columns without the names of the tables.
func sameColumns(a, b *lib.Schema) bool {
	_, columns, _ := strings.Cut(a.String(), "\n")
	_, others, _ := strings.Cut(b.String(), "\n")
	return columns == others
}

func differ(t *testing.T, got []asRead, want []row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range got {
		if w := want[i].asRead(); !reflect.DeepEqual(got[i], w) {
			if diff := cmp.Diff(w, got[i]); diff != "" { // times are equal in any form
				t.Fatalf("row %d (-written +read):\n%s", i, diff)
			}
		}
	}
}

// TestParquetIsReadBack writes rows of every kind and reads them with parquet-go: none, one, the ends of what a type
// can hold, and as many as make several row groups.
func TestParquetIsReadBack(t *testing.T) {
	at := time.Date(2026, 11, 23, 7, 0, 0, 123_456_000, time.UTC)
	edges := []row{
		{Text: "", Same: "s", At: time.UnixMicro(0).UTC()},
		{Text: "ä\x00\"\n", Same: "s", Yes: true, Small: math.MaxInt32, Large: math.MaxInt64, At: at,
			NoText: new(name("")),
			NoYes:  new(false), NoSmall: new(int32(math.MinInt32)), NoLarge: new(int64(math.MinInt64)), NoAt: &at},
		{Text: "z", Same: "s", Small: math.MinInt32, Large: math.MinInt64, At: time.UnixMicro(-1).UTC(),
			NoSmall: new(int32(math.MaxInt32)), NoLarge: new(int64(math.MaxInt64)), NoYes: new(true)},
		{Text: name(bytes.Repeat([]byte("long"), 10_000)), Same: "s", Large: -1, At: at.Add(-time.Hour)},
	}
	for _, c := range []struct {
		name string
		rows []row
	}{{"none", nil}, {"one", edges[1:2]}, {"the ends", edges}, {"the ends again and again", slicesRepeat(edges, 500)}} {
		t.Run(c.name, func(t *testing.T) { differ(t, readBack[asRead](t, written(t, c.rows)), c.rows) })
	}
	t.Run("several groups", func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rows := random(seed, parquet.MaxGroupRows*2+parquet.MaxGroupRows/2)
		file := written(t, rows)
		differ(t, readBack[asRead](t, file), rows)
		f, err := lib.OpenFile(bytes.NewReader(file), int64(len(file)))
		must.OK(t, err)
		if n := len(f.RowGroups()); n != 3 {
			t.Errorf("%d row groups, want 3", n)
		}
		bounded(t, f, rows)
	})
	t.Run("groups of long rows", func(t *testing.T) {
		rows := make([]row, 40)
		for i := range rows { // each text is another one
			rows[i] = row{Text: name(fmt.Sprint(i) + string(bytes.Repeat([]byte("x"), 1<<20))), At: at}
		}
		file := written(t, rows)
		differ(t, readBack[asRead](t, file), rows)
		f, err := lib.OpenFile(bytes.NewReader(file), int64(len(file)))
		must.OK(t, err)
		if n := len(f.RowGroups()); n != 3 {
			t.Errorf("%d row groups of 16 MiB, want 3", n)
		}
	})
}

func slicesRepeat(rows []row, n int) (out []row) {
	for range n {
		out = append(out, rows...)
	}
	return out
}

// random makes rows with long runs and with none, of few texts and of many.
func random(seed uint64, n int) []row {
	r := rand.New(rand.NewPCG(seed, 1))
	rows := make([]row, n)
	at := time.UnixMicro(1_795_000_000_000_000).UTC()
	for i := range rows {
		at = at.Add(time.Duration(r.IntN(1_000_000)) * time.Microsecond)
		v := &rows[i]
		*v = row{Text: name(fmt.Sprintf("%x", r.Uint64())), Same: fmt.Sprint(r.IntN(1 + i/30_000*100)),
			Yes: i/50%2 == 0, Small: int32(r.Uint32()), Large: int64(i) - 1000, At: at}
		if r.IntN(3) > 0 {
			v.NoText, v.NoYes = new(name(fmt.Sprint(r.IntN(20)))), new(r.IntN(2) == 0)
		}
		if i/100%3 > 0 {
			v.NoSmall, v.NoLarge, v.NoAt = new(int32(r.IntN(64))), new(int64(r.Uint64())), new(at)
		}
	}
	return rows
}

// bounded checks the least and the greatest value and the number of missing ones that each group names.
func bounded(t *testing.T, f *lib.File, rows []row) {
	t.Helper()
	first := 0
	for g, group := range f.Metadata().RowGroups {
		part := rows[first : first+int(group.NumRows)]
		first += int(group.NumRows)
		low, high, none := part[0].Text, part[0].Text, int64(0)
		for _, r := range part {
			low, high = min(low, r.Text), max(high, r.Text)
			if r.NoText == nil {
				none++
			}
		}
		text, no, large := group.Columns[0].MetaData.Statistics, group.Columns[6].MetaData.Statistics,
			group.Columns[4].MetaData.Statistics
		if string(text.MinValue) != string(low) || string(text.MaxValue) != string(high) {
			t.Errorf("group %d has texts from %q to %q, and names %q and %q", g, low, high, text.MinValue,
				text.MaxValue)
		}
		if no.NullCount != none {
			t.Errorf("group %d lacks %d texts, and says %d", g, none, no.NullCount)
		}
		if got := lib.Int64Type.Compare(lib.ValueOf(part[0].Large), int64Of(large.MinValue)); got != 0 {
			t.Errorf("group %d: the least large number is %d, and it names %x", g, part[0].Large, large.MinValue)
		}
	}
}

func int64Of(b []byte) lib.Value {
	var n uint64
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	return lib.ValueOf(int64(n))
}
