package archive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// logOf makes the log of a batch with so many bytes that do not compress.
func logOf(name string, random int) Log {
	r := rand.New(rand.NewPCG(uint64(random), uint64(len(name))))
	data := make([]byte, random)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return Log{Agent: "a", Batch: toolyard.BatchID(name), Messages: []Message{
		{Subject: "ty.batch.a." + name, Seq: 7, Time: time.Date(2026, 11, 23, 1, 2, 3, 4, time.UTC),
			Header: map[string][]string{"ce-id": {"1"}, "ce-type": {"t", "", "u"}}, Data: []byte(`{"calls":[]}`)},
		{Subject: "ty.event.a." + name + "._.batch", Seq: 1 << 60, Time: time.Unix(-5, 999_999_999).UTC(), Data: data},
	}}
}

// TestPack: each log comes out of one of the objects as it went in, and no object is past its limits.
func TestPack(t *testing.T) {
	for name, c := range map[string]struct {
		logs    []Log
		objects int
		tooLong []string
	}{
		"none":             {nil, 0, nil},
		"one":              {[]Log{logOf("b", 10)}, 1, nil},
		"the most":         {many(MaxLogs, 10), 1, nil},
		"one more":         {many(MaxLogs+1, 10), 2, nil},
		"longer than one":  {many(8, MaxObjectBytes/4), 4, nil},
		"one that is long": {[]Log{logOf("b", MaxObjectBytes)}, 0, []string{"b"}},
		"long among others": {slices.Concat(many(3, 10), []Log{logOf("l", MaxObjectBytes)}, many(2, 11)), 2,
			[]string{"l"}},
		"much that is alike": {alike(20, 1<<20), 2, nil},
		"past the contents":  {append(many(1, 10), alike(1, MaxContentBytes+1)...), 1, []string{"alike0"}},
		"many messages": {[]Log{{Agent: "a", Batch: "b", Messages: make([]Message, MaxMessages+1)}}, 0,
			[]string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, tooLong, err := Pack(c.logs, nil, time.Time{})
			must.OK(t, err)
			var left []string
			for _, l := range tooLong {
				left = append(left, string(l.Batch))
			}
			if len(objects) != c.objects || !slices.Equal(left, c.tooLong) {
				t.Fatalf("%d objects and %q are too long, want %d and %q", len(objects), left, c.objects, c.tooLong)
			}
			found := 0
			for _, o := range objects {
				list, _, err := List(o.Bytes)
				if err != nil || !slices.Equal(list, o.List) || len(o.Bytes) > MaxObjectBytes {
					t.Fatalf("the list of an object of %d bytes: %+v, %v", len(o.Bytes), list, err)
				}
				for _, l := range c.logs {
					i := slices.IndexFunc(list, func(e Entry) bool { return e.Batch == l.Batch })
					if i < 0 {
						continue
					}
					got, err := openLog(o.Bytes, toolyard.BatchKey{Agent: l.Agent, ID: l.Batch}, list[i].Sum)
					if err != nil || !reflect.DeepEqual(got, l) {
						t.Errorf("batch %s is another one: %v", l.Batch, err)
					}
					found++
				}
			}
			if found != len(c.logs)-len(tooLong) {
				t.Errorf("%d logs are in objects, want %d", found, len(c.logs)-len(tooLong))
			}
		})
	}
}

func openLog(object []byte, k toolyard.BatchKey, sum string) (Log, error) {
	o, err := Open(object)
	if err != nil {
		return Log{}, err
	}
	return o.Log(k, sum)
}

func many(n, random int) (out []Log) {
	for i := range n {
		out = append(out, logOf(fmt.Sprintf("b%d-%d", random, i), random+i))
	}
	return slices.CompactFunc(out, func(a, b Log) bool { return a.Batch == b.Batch })
}

func alike(n, size int) (out []Log) {
	for i := range n {
		l := logOf(fmt.Sprint("alike", i), 0)
		l.Messages[1].Data = bytes.Repeat([]byte("x"), size)
		out = append(out, l)
	}
	return out
}

// TestDamaged: no byte of an object can change without an error, and no part of it be missing.
func TestDamaged(t *testing.T) {
	objects, _, err := Pack([]Log{logOf("b", 20), logOf("c", 30)}, nil, time.Time{})
	must.OK(t, err)
	whole, k := objects[0], toolyard.BatchKey{Agent: "a", ID: "c"}
	want, err := openLog(whole.Bytes, k, whole.List[1].Sum)
	must.OK(t, err)
	for i := range whole.Bytes {
		if _, err := openLog(whole.Bytes[:i], k, whole.List[1].Sum); err == nil {
			t.Errorf("the first %d of %d bytes are read", i, len(whole.Bytes))
		}
		broken := bytes.Clone(whole.Bytes)
		broken[i] ^= 0x20
		if got, err := openLog(broken, k, whole.List[1].Sum); err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("with byte %d changed, another log is read", i)
		}
	}
	for name, c := range map[string]struct {
		k   toolyard.BatchKey
		sum string
	}{
		"another agent": {toolyard.BatchKey{Agent: "b", ID: "c"}, whole.List[1].Sum},
		"another batch": {toolyard.BatchKey{Agent: "a", ID: "b"}, whole.List[1].Sum},
		"another sum":   {k, whole.List[0].Sum},
	} {
		if _, err := openLog(whole.Bytes, c.k, c.sum); err == nil {
			t.Errorf("%s: it is found", name)
		}
	}
}

func TestNameIsTheSum(t *testing.T) {
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := Name(nil); got != empty {
		t.Errorf("%s, want %s", got, empty)
	}
}

// FuzzOpen: whatever the bytes are, reading them ends within the limits, and a log that is read is the same one when it
// is written again.
func FuzzOpen(f *testing.F) {
	objects, _, err := Pack([]Log{logOf("b", 20), logOf("c", 30)}, nil, time.Time{})
	must.OK(f, err)
	f.Add(objects[0].Bytes)
	f.Add([]byte(magic))
	f.Add(binary.BigEndian.AppendUint32([]byte(magic), 1<<31))
	f.Fuzz(func(t *testing.T, object []byte) {
		list, compressed, err := List(object)
		if err != nil {
			return
		}
		contents, err := decompress(compressed)
		if err == nil && len(contents) > MaxContentBytes {
			t.Fatalf("%d bytes of contents", len(contents))
		}
		for _, e := range list {
			l, err := openLog(object, toolyard.BatchKey{Agent: e.Agent, ID: e.Batch}, e.Sum)
			if err != nil {
				continue
			}
			again, err := encode(l.Messages)
			must.OK(t, err)
			if back, err := decode(again); err != nil || !reflect.DeepEqual(back, l.Messages) {
				t.Fatalf("a log that was read is another one when it is written again: %v", err)
			}
		}
	})
}

// FuzzDecode is the same for the form of one log.
func FuzzDecode(f *testing.F) {
	text, err := encode(logOf("b", 20).Messages)
	must.OK(f, err)
	f.Add(text)
	f.Add([]byte{1, 1, 0, 0, 0, 1, 1, 'a', 0xff, 0xff, 0x3f, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		messages, err := decode(text)
		if err != nil {
			return
		}
		again, err := encode(messages)
		must.OK(t, err)
		if back, err := decode(again); err != nil || !reflect.DeepEqual(back, messages) {
			t.Fatalf("it is another one when it is written again: %v", err)
		}
	})
}
