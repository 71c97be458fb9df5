package parquet

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"time"
)

// kind is what a column has.
type kind int

const (
	kindText kind = iota
	kindBool
	kindInt32
	kindInt64
	kindTime
)

// The encodings of values, as the format numbers them.
const (
	encodingPlain      int32 = 0
	encodingRunLevel   int32 = 3 // runs and packed bits: of levels
	encodingDeltas     int32 = 5
	encodingDictionary int32 = 8 // runs and packed bits: of places in a dictionary
)

// maxBoundBytes is how long a text may be that stands in the statistics of its column.
const maxBoundBytes = 128

// column has the values of one column that are not written yet.
type column struct {
	name     string
	kind     kind
	optional bool

	there []uint32       // for each row of an optional column, 1 if it has a value
	size  int            // bytes of the values in memory
	ints  []int64        // numbers, times in microseconds since 1970, and bools as 0 and 1
	place map[string]int // the texts, by their place in texts
	texts []string
	refs  []uint32 // for each value, its place in texts
}

func newColumn(f reflect.StructField) (*column, error) {
	c := &column{place: map[string]int{}}
	if c.name, _, _ = strings.Cut(f.Tag.Get("json"), ","); c.name == "" || c.name == "-" {
		return nil, fmt.Errorf("field %s of a row has no name in its json tag", f.Name)
	}
	t := f.Type
	if c.optional = t.Kind() == reflect.Pointer; c.optional {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		c.kind = kindTime
	case t.Kind() == reflect.String:
		c.kind = kindText
	case t.Kind() == reflect.Bool:
		c.kind = kindBool
	case t.Kind() == reflect.Int32:
		c.kind = kindInt32
	case t.Kind() == reflect.Int64:
		c.kind = kindInt64
	default:
		return nil, fmt.Errorf("column %s is of type %s, and no column has that", c.name, f.Type)
	}
	return c, nil
}

func (c *column) reset() {
	c.there, c.ints, c.texts, c.refs, c.size = c.there[:0], c.ints[:0], c.texts[:0], c.refs[:0], 0
	clear(c.place)
}

// bytesOfValue is about what a value takes in memory, without the bytes of a text.
const bytesOfValue = 8

// add adds the value of one row.
func (c *column) add(v reflect.Value) {
	c.size += bytesOfValue
	if c.optional {
		if v.IsNil() {
			c.there = append(c.there, 0)
			return
		}
		c.there, v = append(c.there, 1), v.Elem()
	}
	switch c.kind {
	case kindText:
		s := v.String()
		at, ok := c.place[s]
		if !ok {
			at = len(c.texts)
			c.place[s], c.texts = at, append(c.texts, s)
			c.size += len(s)
		}
		c.refs = append(c.refs, uint32(at))
	case kindBool:
		n := int64(0)
		if v.Bool() {
			n = 1
		}
		c.ints = append(c.ints, n)
	case kindInt32, kindInt64:
		c.ints = append(c.ints, v.Int())
	case kindTime:
		c.ints = append(c.ints, v.Interface().(time.Time).UnixMicro())
	}
}

// missing is how many rows have no value.
func (c *column) missing() int {
	if !c.optional {
		return 0
	}
	return len(c.there) - len(c.ints) - len(c.refs)
}

// levels are the definition levels: which rows have a value.
func (c *column) levels() []byte {
	if !c.optional {
		return nil
	}
	runs := appendRuns(make([]byte, 4), c.there, 1)
	binary.LittleEndian.PutUint32(runs, uint32(len(runs)-4))
	return runs
}

// encode encodes the values, and their dictionary if they have one.
func (c *column) encode() (values []byte, how int32, dictionary []byte) {
	switch c.kind {
	case kindText:
		return c.encodeTexts()
	case kindBool:
		return packBools(c.ints), encodingPlain, nil
	}
	if len(c.ints) == 0 {
		return nil, encodingPlain, nil
	}
	return appendDeltas(nil, c.ints, c.kind == kindInt32), encodingDeltas, nil
}

func (c *column) encodeTexts() (values []byte, how int32, dictionary []byte) {
	const lengthBytes = 4
	width := max(1, bits.Len(uint(max(len(c.texts)-1, 0))))
	once, all := 0, 0
	for _, s := range c.texts {
		once += lengthBytes + len(s)
	}
	for _, at := range c.refs {
		all += lengthBytes + len(c.texts[at])
	}
	plain := func(buf []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint32(buf, uint32(len(s))), s...)
	}
	if once+len(c.refs)*width/8 < all {
		for _, s := range c.texts {
			dictionary = plain(dictionary, s)
		}
		return appendRuns([]byte{byte(width)}, c.refs, width), encodingDictionary, dictionary
	}
	for _, at := range c.refs {
		values = plain(values, c.texts[at])
	}
	return values, encodingPlain, nil
}

// bounds are the least and the greatest value, encoded plainly; ok is false if the statistics have none.
func (c *column) bounds() (least, greatest []byte, ok bool) {
	switch {
	case c.kind == kindBool:
		return nil, nil, false
	case c.kind == kindText && len(c.texts) > 0:
		low, high := c.texts[0], c.texts[0]
		for _, s := range c.texts {
			low, high = min(low, s), max(high, s)
		}
		return []byte(low), []byte(high), max(len(low), len(high)) <= maxBoundBytes
	case len(c.ints) == 0:
		return nil, nil, false
	}
	low, high := c.ints[0], c.ints[0]
	for _, n := range c.ints {
		low, high = min(low, n), max(high, n)
	}
	if c.kind == kindInt32 {
		return binary.LittleEndian.AppendUint32(nil, uint32(low)), binary.LittleEndian.AppendUint32(nil, uint32(high)),
			true
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(low)), binary.LittleEndian.AppendUint64(nil, uint64(high)), true
}

// physical is the type of the stored values, as the format numbers them.
func (c *column) physical() int32 {
	return map[kind]int32{kindText: 6, kindBool: 0, kindInt32: 1, kindInt64: 2, kindTime: 2}[c.kind]
}

// schema adds the SchemaElement to a list.
func (c *column) schema(t *thrift) {
	const (
		utf8        = 0 // converted types
		microsecond = 10
	)
	t.element()
	t.int32(1, c.physical()) // type
	repetition := int32(0)   // required
	if c.optional {
		repetition = 1
	}
	t.int32(3, repetition)
	t.binary(4, []byte(c.name))
	switch c.kind {
	case kindText:
		t.int32(6, utf8)
		t.open(10) // logicalType
		t.open(1)  // STRING
		t.shut()
		t.shut()
	case kindTime:
		t.int32(6, microsecond)
		t.open(10)      // logicalType
		t.open(8)       // TIMESTAMP
		t.bool(1, true) // isAdjustedToUTC
		t.open(2)       // unit
		t.open(2)       // MICROS
		t.shut()
		t.shut()
		t.shut()
		t.shut()
	}
	t.shut()
}
