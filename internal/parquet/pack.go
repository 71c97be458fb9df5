package parquet

import (
	"encoding/binary"
	"math/bits"
)

// packed appends numbers of a width in bits, the first in the lowest bits.
type packed struct {
	buf  []byte
	rest uint64 // bits that are not in buf
	have int    // how many
}

func (p *packed) add(v uint64, width int) {
	for width > 0 {
		n := min(width, 64-p.have)
		p.rest |= v << p.have
		p.have += n
		if width -= n; n < 64 {
			v >>= n
		}
		for p.have >= 8 {
			p.buf, p.rest, p.have = append(p.buf, byte(p.rest)), p.rest>>8, p.have-8
		}
	}
}

// fill adds zeros to the end of the byte.
func (p *packed) fill() {
	if p.have > 0 {
		p.buf, p.rest, p.have = append(p.buf, byte(p.rest)), 0, 0
	}
}

// groupOf is how many values the parts of packed runs have.
const groupOf = 8

// appendRuns appends numbers of a width in bits as runs of one number and runs of packed ones.
func appendRuns(buf []byte, values []uint32, width int) []byte {
	pending := 0 // the values from here on are not written, and are whole groups
	flush := func(end int) {
		if n := end - pending; n > 0 {
			groups := (n + groupOf - 1) / groupOf
			p := packed{buf: binary.AppendUvarint(buf, uint64(groups)<<1|1)}
			for _, v := range values[pending:end] {
				p.add(uint64(v), width)
			}
			for range groups*groupOf - n {
				p.add(0, width)
			}
			p.fill()
			buf = p.buf
		}
		pending = end
	}
	for i := 0; i < len(values); {
		run := 1
		for i+run < len(values) && values[i+run] == values[i] {
			run++
		}
		if run < groupOf {
			i = min(i+groupOf, len(values))
			continue
		}
		flush(i)
		buf = binary.AppendUvarint(buf, uint64(run)<<1)
		for b := 0; b < width; b += 8 {
			buf = append(buf, byte(values[i]>>b))
		}
		i += run
		pending = i
	}
	flush(len(values))
	return buf
}

// The sizes of the blocks in which differences are packed.
const (
	blockOf     = 128
	miniBlockOf = 32
)

// appendDeltas appends numbers as packed differences (DELTA_BINARY_PACKED). Differences that overflow wrap around, at
// 32 bits if the numbers are narrow.
func appendDeltas(buf []byte, values []int64, narrow bool) []byte {
	buf = binary.AppendUvarint(buf, blockOf)
	buf = binary.AppendUvarint(buf, blockOf/miniBlockOf)
	buf = binary.AppendUvarint(buf, uint64(len(values)))
	buf = binary.AppendVarint(buf, values[0])
	difference := func(a, b int64) int64 {
		if narrow {
			return int64(int32(a - b))
		}
		return a - b
	}
	var deltas [blockOf]int64
	for at := 1; at < len(values); at += blockOf {
		n := min(blockOf, len(values)-at)
		least := difference(values[at], values[at-1])
		for i := range n {
			deltas[i] = difference(values[at+i], values[at+i-1])
			least = min(least, deltas[i])
		}
		above := func(i int) uint64 {
			if narrow {
				return uint64(uint32(deltas[i] - least))
			}
			return uint64(deltas[i]) - uint64(least)
		}
		buf = binary.AppendVarint(buf, least)
		widths := len(buf)
		buf = append(buf, make([]byte, blockOf/miniBlockOf)...)
		for from := 0; from < n; from += miniBlockOf {
			to, width := min(n, from+miniBlockOf), 0
			for i := from; i < to; i++ {
				width = max(width, bits.Len64(above(i)))
			}
			buf[widths+from/miniBlockOf] = byte(width)
			p := packed{buf: buf}
			for i := from; i < from+miniBlockOf; i++ {
				v := uint64(0)
				if i < to {
					v = above(i)
				}
				p.add(v, width)
			}
			buf = p.buf // a whole number of bytes: there are 32 numbers
		}
	}
	return buf
}

// packBools packs bools into bits.
func packBools(values []int64) []byte {
	var p packed
	for _, v := range values {
		p.add(uint64(v), 1)
	}
	p.fill()
	return p.buf
}
