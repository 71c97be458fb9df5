package parquet

import "encoding/binary"

// The types of Thrift's compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftInt32  = 5
	thriftInt64  = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// thrift encodes a struct in Thrift's compact protocol, as Parquet's metadata are. Fields are added in the order of
// their numbers. The zero thrift is an empty struct.
type thrift struct {
	buf  []byte
	last []int16 // the number of the last field of each struct that is open around the current one
	now  int16   // that of the current struct
}

func (t *thrift) field(id int16, kind byte) {
	t.buf = append(t.buf, byte(id-t.now)<<4|kind) // no step between two numbers is above 15
	t.now = id
}

func (t *thrift) int32(id int16, v int32) {
	t.field(id, thriftInt32)
	t.number(int64(v))
}

func (t *thrift) int64(id int16, v int64) {
	t.field(id, thriftInt64)
	t.number(v)
}

func (t *thrift) bool(id int16, v bool) {
	if v {
		t.field(id, thriftTrue)
	} else {
		t.field(id, thriftFalse)
	}
}

func (t *thrift) binary(id int16, v []byte) {
	t.field(id, thriftBinary)
	t.text(string(v))
}

// open begins a struct in a field, and element one in a list; shut ends it.
func (t *thrift) open(id int16) {
	t.field(id, thriftStruct)
	t.element()
}

func (t *thrift) element() { t.last, t.now = append(t.last, t.now), 0 }

func (t *thrift) shut() {
	t.buf = append(t.buf, 0)
	n := len(t.last) - 1
	t.now, t.last = t.last[n], t.last[:n]
}

// list begins a list of n elements, which the caller adds: with number, text, raw, or between element and shut.
func (t *thrift) list(id int16, kind byte, n int) {
	t.field(id, thriftList)
	if n < 15 {
		t.buf = append(t.buf, byte(n)<<4|kind)
		return
	}
	t.buf = binary.AppendUvarint(append(t.buf, 0xf0|kind), uint64(n))
}

func (t *thrift) number(v int64) { t.buf = binary.AppendVarint(t.buf, v) }

func (t *thrift) text(v string) { t.buf = append(binary.AppendUvarint(t.buf, uint64(len(v))), v...) }

func (t *thrift) raw(v []byte) { t.buf = append(t.buf, v...) }

// end ends the struct and returns its encoding.
func (t *thrift) end() []byte { return append(t.buf, 0) }
