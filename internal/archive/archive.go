// Package archive has the form in which the logs of completed batches are archived, and decides which step of archiving
// a batch comes next. It is pure.
//
// An object holds the logs of many batches: their messages as they were stored, with sequence, time, subject, headers
// and data. Its name is the SHA-256 sum of its bytes.
//
//	magic | length of the list, 4 bytes | list: JSON, an entry a batch | contents: one zstd frame, the logs in order
//
// The list is read without decompressing the contents. Each entry has the sum of its log, so that a log that is not
// what was archived is an error and never a result.
package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/toolyard/toolyard"
)

// The limits of an object.
const (
	// MaxLogs is how many batches one object holds. Packs beyond 100 batches gain nothing.
	MaxLogs = 100
	// MaxObjectBytes is the size of an object: one message of the store, as long as the data of an event may be.
	MaxObjectBytes = 512 << 10
	// MaxContentBytes is the size of an object's contents before they are compressed.
	MaxContentBytes = 16 << 20
	// windowBytes is how far back the compression of an object looks for what repeats: most contents are shorter. The
	// default would have each object made in 16 MB of memory.
	windowBytes = 1 << 20
	// MaxMessages is how many messages the log of one batch may have. A longer one is not archived.
	MaxMessages = 20_000
	// maxHeaders bounds the header fields of one message, and the values of one field.
	maxHeaders = 1_000
)

const magic = "TYARCH1\n"

// prefixBytes are those of the magic and of the length of the list.
const prefixBytes = len(magic) + 4

// ErrTooLong says that a log does not fit into an object by itself.
var ErrTooLong = errors.New("the log is too long for an object")

// Message is a stored message.
type Message struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Header  map[string][]string
	Data    []byte
}

// Log is what is stored of one batch.
type Log struct {
	Agent toolyard.Agent
	Batch toolyard.BatchID
	// Messages stand in the order in which they were read.
	Messages []Message
}

// Entry is a batch in the list of an object.
type Entry struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	// Bytes is the length of its log in the contents, and Sum the SHA-256 sum of it.
	Bytes int    `json:"bytes"`
	Sum   string `json:"sum"`
	// Signed is who vouches for it; nil: nobody.
	Signed *Signature `json:"signed,omitempty"`
}

// Object is an encoded object with its list.
type Object struct {
	Bytes []byte
	List  []Entry
}

// Name is the name of an object.
func Name(object []byte) string { return sumOf(object) }

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Pack encodes logs as objects, as few as their limits allow. A log that fits into none is left out of them and
// returned. The entries are signed by signer, if it is not nil, as of a time.
func Pack(logs []Log, signer *Signer, at time.Time) (objects []Object, tooLong []Log, err error) {
	var contents []byte
	var list []Entry
	begin := 0
	flush := func(end int) error {
		if len(list) == 0 {
			return nil
		}
		o, err := seal(list, contents)
		switch {
		case err == nil:
			objects = append(objects, o)
		case !errors.Is(err, ErrTooLong):
			return err
		case len(list) == 1:
			tooLong = append(tooLong, logs[begin])
		default: // each half by itself
			middle := begin + (end-begin)/2
			for _, half := range [][]Log{logs[begin:middle], logs[middle:end]} {
				more, left, err := Pack(half, signer, at)
				if err != nil {
					return err
				}
				objects, tooLong = append(objects, more...), append(tooLong, left...)
			}
		}
		contents, list = nil, nil
		return nil
	}
	for i, l := range logs {
		text, err := encode(l.Messages)
		if err == nil && len(text) > MaxContentBytes {
			err = ErrTooLong
		}
		if errors.Is(err, ErrTooLong) {
			if err := flush(i); err != nil {
				return nil, nil, err
			}
			begin, tooLong = i+1, append(tooLong, l)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if len(list) == MaxLogs || len(contents)+len(text) > MaxContentBytes {
			if err := flush(i); err != nil {
				return nil, nil, err
			}
			begin = i
		}
		e := Entry{Agent: l.Agent, Batch: l.Batch, Bytes: len(text), Sum: sumOf(text)}
		if err := signer.sign(&e, at); err != nil {
			return nil, nil, err
		}
		list = append(list, e)
		contents = append(contents, text...)
	}
	return objects, tooLong, flush(len(logs))
}

// seal makes an object of a list and its contents.
func seal(list []Entry, contents []byte) (Object, error) {
	head, err := json.Marshal(list)
	if err != nil {
		return Object{}, fmt.Errorf("encode the list of an object: %w", err)
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
		zstd.WithWindowSize(windowBytes), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return Object{}, fmt.Errorf("compress: %w", err)
	}
	out := binary.BigEndian.AppendUint32([]byte(magic), uint32(len(head)))
	out = w.EncodeAll(contents, append(out, head...))
	if len(out) > MaxObjectBytes {
		return Object{}, ErrTooLong
	}
	return Object{Bytes: out, List: list}, nil
}

// List reads the list of an object, and returns the compressed contents.
func List(object []byte) (list []Entry, compressed []byte, err error) {
	if len(object) > MaxObjectBytes {
		return nil, nil, bad("it has %d bytes; at most %d are allowed", len(object), MaxObjectBytes)
	}
	if len(object) < prefixBytes || string(object[:len(magic)]) != magic {
		return nil, nil, bad("it does not begin as one")
	}
	n := uint64(binary.BigEndian.Uint32(object[len(magic):]))
	rest := object[prefixBytes:]
	if n > uint64(len(rest)) {
		return nil, nil, bad("its list has %d bytes, and %d follow", n, len(rest))
	}
	if err := json.Unmarshal(rest[:n], &list); err != nil {
		return nil, nil, bad("its list: %v", err)
	}
	if len(list) == 0 || len(list) > MaxLogs {
		return nil, nil, bad("its list has %d batches; it has 1 to %d", len(list), MaxLogs)
	}
	total := 0
	for _, e := range list {
		if e.Bytes <= 0 || e.Bytes > MaxContentBytes-total {
			return nil, nil, bad("a log of its list has %d bytes", e.Bytes)
		}
		total += e.Bytes
	}
	return list, rest[n:], nil
}

// Opened is an object that was decompressed, for who reads its logs.
type Opened struct {
	list     []Entry
	contents []byte
}

// Open decompresses an object.
func Open(object []byte) (*Opened, error) {
	list, compressed, err := List(object)
	if err != nil {
		return nil, err
	}
	contents, err := decompress(compressed)
	return &Opened{list, contents}, err
}

// find is the place of a batch in the list, -1 if it is not there with that sum.
func (o *Opened) find(k toolyard.BatchKey, sum string) int {
	return slices.IndexFunc(o.list, func(e Entry) bool { return e.Agent == k.Agent && e.Batch == k.ID && e.Sum == sum })
}

// Entry is that of a batch in the object's list, if it has one with that sum.
func (o *Opened) Entry(k toolyard.BatchKey, sum string) (e Entry, ok bool) {
	i := o.find(k, sum)
	if i < 0 {
		return e, false
	}
	return o.list[i], true
}

// Log reads the log of a batch whose sum is known from elsewhere.
func (o *Opened) Log(k toolyard.BatchKey, sum string) (Log, error) {
	i := o.find(k, sum)
	if i < 0 {
		return Log{}, bad("it has no batch %s with that sum", k)
	}
	from := 0
	for _, e := range o.list[:i] {
		from += e.Bytes
	}
	if from+o.list[i].Bytes > len(o.contents) {
		return Log{}, bad("its contents have %d bytes, and its list has more", len(o.contents))
	}
	text := o.contents[from : from+o.list[i].Bytes]
	if sumOf(text) != sum {
		return Log{}, bad("the log of batch %s is not the one that was archived", k)
	}
	messages, err := decode(text)
	return Log{Agent: k.Agent, Batch: k.ID, Messages: messages}, err
}

func decompress(compressed []byte) ([]byte, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxContentBytes))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	defer r.Close()
	contents, err := r.DecodeAll(compressed, nil)
	if err != nil {
		return nil, bad("its contents: %v", err)
	}
	return contents, nil
}

func bad(format string, args ...any) error {
	return fmt.Errorf("an object of the archive cannot be read: "+format, args...)
}

// encode writes messages one after the other: numbers as varints, and each text behind its length.
func encode(messages []Message) ([]byte, error) {
	if len(messages) > MaxMessages {
		return nil, ErrTooLong
	}
	out := binary.AppendUvarint(nil, uint64(len(messages)))
	text := func(s string) { out = append(binary.AppendUvarint(out, uint64(len(s))), s...) }
	for _, m := range messages {
		if len(m.Header) > maxHeaders {
			return nil, ErrTooLong
		}
		out = binary.AppendUvarint(out, m.Seq)
		out = binary.AppendVarint(out, m.Time.Unix())
		out = binary.AppendUvarint(out, uint64(m.Time.Nanosecond()))
		text(m.Subject)
		out = binary.AppendUvarint(out, uint64(len(m.Header)))
		for _, name := range slices.Sorted(maps.Keys(m.Header)) {
			if len(m.Header[name]) > maxHeaders {
				return nil, ErrTooLong
			}
			text(name)
			out = binary.AppendUvarint(out, uint64(len(m.Header[name])))
			for _, v := range m.Header[name] {
				text(v)
			}
		}
		text(string(m.Data))
	}
	return out, nil
}

// decode is the inverse of encode.
func decode(text []byte) ([]Message, error) {
	r := reader{rest: text}
	n := r.count(MaxMessages)
	var out []Message
	for range n {
		m := Message{Seq: r.number()}
		seconds, nanos := r.signed(), r.count(int(time.Second)-1)
		m.Time = time.Unix(seconds, int64(nanos)).UTC()
		m.Subject = string(r.text())
		if fields := r.count(maxHeaders); fields > 0 {
			m.Header = map[string][]string{}
			for range fields {
				name := string(r.text())
				values := make([]string, r.count(maxHeaders))
				for i := range values {
					values[i] = string(r.text())
				}
				m.Header[name] = values
				if r.wrong {
					break
				}
			}
		}
		m.Data = bytes.Clone(r.text())
		if r.wrong {
			break
		}
		out = append(out, m)
	}
	if r.wrong || len(r.rest) > 0 {
		return nil, bad("a log in it is not of the form")
	}
	return out, nil
}

// reader reads what encode has written. It stops at the first mistake.
type reader struct {
	rest  []byte
	wrong bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	return take(r, v, n)
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.rest)
	return take(r, v, n)
}

func take[T uint64 | int64](r *reader, v T, n int) T {
	if r.wrong || n <= 0 {
		r.wrong = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) count(most int) int {
	n := r.number()
	if n > uint64(most) { //nolint:gosec // most is positive
		r.wrong = true
		return 0
	}
	return int(n) //nolint:gosec // it is at most most
}

func (r *reader) text() []byte {
	n := r.count(MaxContentBytes)
	if n > len(r.rest) {
		r.wrong = true
	}
	if r.wrong {
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}
