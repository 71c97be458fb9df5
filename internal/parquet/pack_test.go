package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// unpacked reads n numbers of a width in bits, as the format describes them, one bit after the other.
func unpacked(buf []byte, n, width int) (out []uint64) {
	for i := range n {
		v := uint64(0)
		for b := range width {
			at := i*width + b
			v |= uint64(buf[at/8]>>(at%8)&1) << b
		}
		out = append(out, v)
	}
	return out
}

// runsOf reads what appendRuns wrote of n numbers.
func runsOf(t *testing.T, buf []byte, n, width int) (out []uint32) {
	t.Helper()
	for len(out) < n {
		head, size := binary.Uvarint(buf)
		if size <= 0 {
			t.Fatalf("after %d of %d numbers there is no run", len(out), n)
		}
		buf = buf[size:]
		if head&1 == 1 {
			count := int(head>>1) * groupOf
			for _, v := range unpacked(buf, count, width) {
				out = append(out, uint32(v))
			}
			buf = buf[count*width/8:]
			continue
		}
		v := uint32(0)
		for b := range (width + 7) / 8 {
			v |= uint32(buf[b]) << (8 * b)
		}
		buf = buf[(width+7)/8:]
		out = append(out, slices.Repeat([]uint32{v}, int(head>>1))...)
	}
	if len(buf) > 0 || len(out)-n >= groupOf || slices.ContainsFunc(out[n:], func(v uint32) bool { return v != 0 }) {
		t.Fatalf("%d bytes are left, and the numbers behind the last are %d", len(buf), out[n:])
	}
	return out[:n]
}

// deltasOf reads what appendDeltas wrote.
func deltasOf(t *testing.T, buf []byte, narrow bool) (out []int64) {
	t.Helper()
	number := func() uint64 {
		v, n := binary.Uvarint(buf)
		if n <= 0 {
			t.Fatalf("no number after %d values", len(out))
		}
		buf = buf[n:]
		return v
	}
	signed := func() int64 {
		v, n := binary.Varint(buf)
		if n <= 0 {
			t.Fatalf("no number after %d values", len(out))
		}
		buf = buf[n:]
		return v
	}
	block, minis, count := int(number()), int(number()), int(number())
	if block%128 != 0 || block/minis%32 != 0 {
		t.Fatalf("blocks of %d in %d parts, which the format does not allow", block, minis)
	}
	out = append(out, signed())
	for len(out) < count {
		least := signed()
		widths := buf[:minis]
		buf = buf[minis:]
		for _, width := range widths {
			if narrow && width > 32 {
				t.Fatalf("differences of 32 bits are packed in %d", width)
			}
			if len(out) == count && width != 0 {
				t.Fatalf("a part without values has a width")
			}
			if len(out) == count {
				continue
			}
			for _, above := range unpacked(buf, block/minis, int(width)) {
				if len(out) == count {
					break
				}
				v := out[len(out)-1] + least + int64(above)
				if narrow {
					v = int64(int32(v))
				}
				out = append(out, v)
			}
			buf = buf[block/minis*int(width)/8:]
		}
	}
	if len(buf) > 0 {
		t.Fatalf("%d bytes are left", len(buf))
	}
	return out
}

// FuzzPacking: what is packed is read as the format describes it, whatever the numbers are.
func FuzzPacking(f *testing.F) {
	f.Add([]byte{1}, uint8(1))
	f.Add(make([]byte, 2_000), uint8(9))
	f.Add([]byte("not one run at all, but here are eight: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), uint8(31))
	ends := binary.LittleEndian.AppendUint64(nil, math.MaxUint64/2)
	f.Add(slices.Repeat(binary.LittleEndian.AppendUint64(ends, math.MaxUint64/2+1), 90), uint8(17))
	f.Fuzz(func(t *testing.T, data []byte, bits uint8) {
		width := 1 + int(bits)%32
		var small []uint32
		var large, narrow []int64
		for i, b := range data {
			small = append(small, uint32(b)&(1<<width-1))
			if i+8 <= len(data) && i%8 == 0 {
				n := int64(binary.LittleEndian.Uint64(data[i:]))
				large, narrow = append(large, n), append(narrow, int64(int32(n)))
			}
		}
		if got := runsOf(t, appendRuns(nil, small, width), len(small), width); !slices.Equal(got, small) {
			t.Errorf("runs of %d bits: %d, read as %d", width, small, got)
		}
		if len(large) == 0 {
			return
		}
		if got := deltasOf(t, appendDeltas(nil, large, false), false); !slices.Equal(got, large) {
			t.Errorf("differences: %d, read as %d", large, got)
		}
		if got := deltasOf(t, appendDeltas(nil, narrow, true), true); !slices.Equal(got, narrow) {
			t.Errorf("narrow differences: %d, read as %d", narrow, got)
		}
	})
}

// full is a place for n bytes.
type full struct{ n int }

var errFull = errors.New("no space is left")

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestAnErrorStays: wherever the place to write to is full, the writer says so, at once or later, and never that the
// file is whole.
func TestAnErrorStays(t *testing.T) {
	type row struct {
		A string     `json:"a"`
		B int64      `json:"b"`
		C *time.Time `json:"c"`
	}
	whole := func(to io.Writer) (int64, error) {
		w, err := NewWriter[row](to, "test")
		for i := range 300 {
			if err == nil {
				err = w.Write(&row{A: fmt.Sprint(i), B: int64(i)})
			}
		}
		if err == nil {
			err = w.Close()
		}
		if w == nil {
			return 0, err
		}
		if again := w.Write(&row{}); again == nil || err != nil && !errors.Is(again, errFull) {
			t.Errorf("after %v, a row more is %v", err, again)
		}
		if again := w.Close(); again == nil || err != nil && !errors.Is(again, errFull) {
			t.Errorf("after %v, another end is %v", err, again)
		}
		return w.Bytes(), err
	}
	size, err := whole(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int(size) {
		if _, err := whole(&full{n}); !errors.Is(err, errFull) {
			t.Fatalf("with room for %d bytes of %d: %v", n, size, err)
		}
	}
	if _, err := whole(&full{int(size)}); err != nil {
		t.Errorf("with room for all: %v", err)
	}
}

// TestTypes: a row that no table can have is refused before anything is written.
func TestTypes(t *testing.T) {
	for what, try := range map[string]func(io.Writer) error{
		"not of type int": func(w io.Writer) error { _, err := NewWriter[int](w, ""); return err },
		"no name in its json tag": func(w io.Writer) error {
			_, err := NewWriter[struct{ A string }](w,
				"")
			return err
		},
		"of type float64": func(w io.Writer) error {
			_, err := NewWriter[struct {
				A float64 `json:"a"`
			}](w, "")
			return err
		},
		"of type **int32": func(w io.Writer) error {
			_, err := NewWriter[struct {
				A **int32 `json:"a"`
			}](w, "")
			return err
		},
	} {
		if err := try(&full{0}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want %q", err, what)
		}
	}
}
