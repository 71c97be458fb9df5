// Package parquet writes tables as Parquet files.
//
// The rows are flat. It writes a small part of the format, and nothing that needs a recent reader: one data page of
// version 1 for each column of a row group, compressed with zstd; texts with a dictionary where that is shorter,
// integers as packed differences, and the least and the greatest value of each column.
//
// Authority: the caller's rows. Ordering: rows stand in the file in the order in which they were written. Failure:
// after an error the file is of no use, and every later call returns that error.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"

	"github.com/klauspost/compress/zstd"
)

// The limits of a row group, which is held in memory until it is written.
const (
	MaxGroupRows  = 100_000  // rows of a table that are held until they are written
	MaxGroupBytes = 16 << 20 // bytes of their values, without those of the last row
)

// magic begins and ends a file.
const magic = "PAR1"

// errClosed is the error of a writer that is closed.
var errClosed = errors.New("the table is closed")

// Writer writes a table of rows of type T, a struct whose fields are columns. The name of a column is that in the json
// tag. A field is a string, a bool, an int32, an int64 or a [time.Time], which is written in UTC with a precision of a
// microsecond. A pointer to one of these is a column whose values may be missing. A Writer is not safe for concurrent
// use.
type Writer[T any] struct {
	w       io.Writer
	by      string
	columns []*column
	zip     *zstd.Encoder

	at     int64    // bytes written
	rows   int64    // rows of the groups that are written
	inRow  int      // rows of the group that is not written yet
	groups [][]byte // what the end of the file says about each group
	err    error
}

// NewWriter begins a file. by names the program that writes it.
func NewWriter[T any](w io.Writer, by string) (*Writer[T], error) {
	out := &Writer[T]{w: w, by: by}
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("a row is a struct, and not of type %s", t)
	}
	for i := range t.NumField() {
		c, err := newColumn(t.Field(i))
		if err != nil {
			return nil, err
		}
		out.columns = append(out.columns, c)
	}
	var err error
	if out.zip, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
		return nil, fmt.Errorf("start to compress: %w", err)
	}
	return out, out.write([]byte(magic))
}

// Write adds a row.
func (w *Writer[T]) Write(row *T) error {
	if w.err != nil {
		return w.err
	}
	v, size := reflect.ValueOf(row).Elem(), 0
	for i, c := range w.columns {
		c.add(v.Field(i))
		size += c.size
	}
	if w.inRow++; w.inRow >= MaxGroupRows || size >= MaxGroupBytes {
		return w.flush()
	}
	return nil
}

// Close writes the end of the file. It does not close what the file is written to.
func (w *Writer[T]) Close() error {
	if w.err != nil {
		return w.err
	}
	if err := w.flush(); err != nil {
		return err
	}
	footer := w.footer()
	footer = binary.LittleEndian.AppendUint32(footer, uint32(len(footer)))
	if err := w.write(append(footer, magic...)); err != nil {
		return err
	}
	w.err = errClosed
	return nil
}

// Bytes is how many bytes of the file are written.
func (w *Writer[T]) Bytes() int64 { return w.at }

func (w *Writer[T]) write(p []byte) error {
	n, err := w.w.Write(p)
	if w.at += int64(n); err != nil {
		w.err = fmt.Errorf("write a table: %w", err)
	}
	return w.err
}

// flush writes the rows that are not written yet as a row group.
func (w *Writer[T]) flush() error {
	if w.inRow == 0 {
		return nil
	}
	var group thrift
	begin, plain := w.at, int64(0)
	group.list(1, thriftStruct, len(w.columns)) // columns
	for _, c := range w.columns {
		size, err := w.chunk(&group, c)
		if err != nil {
			w.err = err
			return err
		}
		plain += size
		c.reset()
	}
	group.int64(2, plain)          // total_byte_size
	group.int64(3, int64(w.inRow)) // num_rows
	group.int64(5, begin)          // file_offset
	group.int64(6, w.at-begin)     // total_compressed_size
	w.groups = append(w.groups, group.end())
	w.rows, w.inRow = w.rows+int64(w.inRow), 0
	return nil
}

// The numbers of the format.
const (
	pageData       = 0 // the types of pages, and the fields that have their headers
	pageDictionary = 2
	fieldOfData    = 5
	fieldOfDict    = 7

	codecZstd = 6
)

// chunk writes the values of a column, and adds its ColumnChunk to the list in group. It returns the size of the pages
// without compression.
func (w *Writer[T]) chunk(group *thrift, c *column) (size int64, err error) {
	begin, dictionary := w.at, int64(0)
	values, how, dict := c.encode()
	if dict != nil {
		dictionary = w.at
		size, err = w.page(pageDictionary, dict, fieldOfDict, func(h *thrift) {
			h.int32(1, int32(len(c.texts))) // num_values
			h.int32(2, encodingPlain)       // encoding
		})
		if err != nil {
			return 0, err
		}
	}
	data := w.at
	n, err := w.page(pageData, append(c.levels(), values...), fieldOfData, func(h *thrift) {
		h.int32(1, int32(w.inRow))   // num_values
		h.int32(2, how)              // encoding
		h.int32(3, encodingRunLevel) // definition_level_encoding
		h.int32(4, encodingRunLevel) // repetition_level_encoding
	})
	if err != nil {
		return 0, err
	}
	size += n
	group.element()
	group.int64(2, 0) // file_offset: its metadata are in the footer alone
	group.open(3)     // meta_data
	group.int32(1, c.physical())
	encodings := []int32{encodingRunLevel, how}
	if dict != nil {
		encodings = append(encodings, encodingPlain)
	}
	group.list(2, thriftInt32, len(encodings))
	for _, e := range encodings {
		group.number(int64(e))
	}
	group.list(3, thriftBinary, 1) // path_in_schema
	group.text(c.name)
	group.int32(4, codecZstd)
	group.int64(5, int64(w.inRow)) // num_values, the missing ones too
	group.int64(6, size)           // total_uncompressed_size
	group.int64(7, w.at-begin)     // total_compressed_size
	group.int64(9, data)           // data_page_offset
	if dict != nil {
		group.int64(11, dictionary) // dictionary_page_offset
	}
	group.open(12) // statistics
	group.int64(3, int64(c.missing()))
	if least, greatest, ok := c.bounds(); ok {
		group.binary(5, greatest)
		group.binary(6, least)
	}
	group.shut()
	group.shut()
	group.shut()
	return size, nil
}

// page writes a page and returns its size without compression, its header included.
func (w *Writer[T]) page(kind int32, content []byte, field int16, header func(*thrift)) (int64, error) {
	zipped := w.zip.EncodeAll(content, nil)
	if max(len(content), len(zipped)) > math.MaxInt32 {
		return 0, fmt.Errorf("a page has %d bytes; at most %d are possible", len(content), math.MaxInt32)
	}
	var t thrift
	t.int32(1, kind)                // type
	t.int32(2, int32(len(content))) // uncompressed_page_size
	t.int32(3, int32(len(zipped)))  // compressed_page_size
	t.open(field)
	header(&t)
	t.shut()
	h := t.end()
	if err := w.write(h); err != nil {
		return 0, err
	}
	return int64(len(h) + len(content)), w.write(zipped)
}

// footer is the FileMetaData.
func (w *Writer[T]) footer() []byte {
	var t thrift
	t.int32(1, 2)                             // version
	t.list(2, thriftStruct, 1+len(w.columns)) // schema: the root and its columns
	t.element()
	t.binary(4, []byte("row"))        // name
	t.int32(5, int32(len(w.columns))) // num_children
	t.shut()
	for _, c := range w.columns {
		c.schema(&t)
	}
	t.int64(3, w.rows) // num_rows
	t.list(4, thriftStruct, len(w.groups))
	for _, g := range w.groups {
		t.raw(g)
	}
	t.binary(6, []byte(w.by))               // created_by
	t.list(7, thriftStruct, len(w.columns)) // column_orders: as the types define them
	for range w.columns {
		t.element()
		t.open(1)
		t.shut()
		t.shut()
	}
	return t.end()
}
