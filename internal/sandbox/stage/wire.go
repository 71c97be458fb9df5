package stage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// maxFrame bounds one message, in bytes.
const maxFrame = 8 << 20

// Message is sent over the socket: a [Root], a [Spec] or a [Report]; or it is an [Entry] of an archive. It has its own
// encoding, because the first use of JSON in a process takes half a millisecond, which would delay each command.
type Message interface{ fields(*coder) }

// Write sends m as one frame.
func Write(w io.Writer, m Message) error {
	frame, err := Encode(m)
	if err == nil {
		_, err = w.Write(frame)
	}
	return err
}

// Encode makes the frame of m: its length and its fields in their order.
func Encode(m Message) ([]byte, error) {
	c := coder{buf: make([]byte, 4, 4096), writing: true}
	m.fields(&c)
	if len(c.buf)-4 > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes is longer than %d", len(c.buf)-4, maxFrame)
	}
	binary.BigEndian.PutUint32(c.buf, uint32(len(c.buf)-4))
	return c.buf, nil
}

// Read receives one frame into m, which should be zero. At the end of the stream the error is [io.EOF].
func Read(r io.Reader, m Message) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return fmt.Errorf("a frame of %d bytes is longer than %d", n, maxFrame)
	}
	c := coder{buf: make([]byte, n)}
	if _, err := io.ReadFull(r, c.buf); err != nil {
		return fmt.Errorf("a cut frame: %w", err)
	}
	m.fields(&c)
	if c.err == nil && len(c.buf) > 0 {
		c.err = fmt.Errorf("%d bytes too many", len(c.buf))
	}
	return c.err
}

// coder appends fields to buf, or reads them from its beginning. After an error it does nothing.
type coder struct {
	buf     []byte
	writing bool
	err     error
}

var errCut = errors.New("a frame ends in the middle of a field")

func (c *coder) number(v *uint64) {
	switch {
	case c.err != nil:
	case c.writing:
		c.buf = binary.AppendUvarint(c.buf, *v)
	default:
		n := 0
		if *v, n = binary.Uvarint(c.buf); n <= 0 {
			c.err, *v = errCut, 0
			return
		}
		c.buf = c.buf[n:]
	}
}

// length codes the number of the following elements, each of which has at least one byte.
func (c *coder) length(n int) int {
	v := uint64(n)
	c.number(&v)
	if !c.writing && v > uint64(len(c.buf)) {
		c.err, v = cmp.Or(c.err, errCut), 0
	}
	return int(v)
}

func (c *coder) flag(v *bool) {
	n := uint64(0)
	if *v {
		n = 1
	}
	if c.number(&n); !c.writing {
		*v = n != 0
	}
}

func (c *coder) bytes(v *[]byte) {
	n := c.length(len(*v))
	switch {
	case c.err != nil:
	case c.writing:
		c.buf = append(c.buf, *v...)
	case n > 0:
		*v, c.buf = slices.Clone(c.buf[:n]), c.buf[n:]
	}
}

func (c *coder) text(v *string) {
	n := c.length(len(*v))
	switch {
	case c.err != nil:
	case c.writing:
		c.buf = append(c.buf, *v...)
	default:
		*v, c.buf = string(c.buf[:n]), c.buf[n:]
	}
}

func (c *coder) texts(vs ...*string) {
	for _, v := range vs {
		c.text(v)
	}
}

// signed codes any integer.
func signed[T ~int | ~int64 | ~uint32](c *coder, vs ...*T) {
	for _, v := range vs {
		n := uint64(int64(*v))<<1 ^ uint64(int64(*v)>>63) // small numbers, also negative ones, are short
		if c.number(&n); !c.writing {                     // several may be writing one message at a time
			*v = T(int64(n>>1) ^ -int64(n&1))
		}
	}
}

// list codes a slice; each codes one element, in at least one byte.
func list[T any](c *coder, v *[]T, each func(*coder, *T)) {
	n := c.length(len(*v))
	if !c.writing {
		*v = nil
	}
	for i := 0; i < n && c.err == nil; i++ {
		if !c.writing { // grown element by element, so that a length alone allocates nothing
			*v = append(*v, *new(T))
		}
		each(c, &(*v)[i])
	}
}

// optional codes a pointer that may be nil.
func optional[T any](c *coder, v **T, each func(*coder, *T)) {
	there := *v != nil
	if c.flag(&there); !there || c.err != nil {
		return
	}
	if !c.writing {
		*v = new(T)
	}
	each(c, *v)
}

func (r *Root) fields(c *coder) {
	c.flag(&r.Build)
	signed(c, &r.Bytes, &r.Inodes)
	list(c, &r.Dirs, dirFields)
	list(c, &r.Files, fileFields)
	list(c, &r.Links, func(c *coder, l *Link) { c.texts(&l.Path, &l.To) })
	list(c, &r.Binds, bindFields)
	list(c, &r.Open, (*coder).text)
	c.text(&r.Hostname)
	c.bytes(&r.Filter)
	c.bytes(&r.Own)
	for _, settings := range []*[]Setting{&r.UserLimits, &r.SocketLimits} {
		list(c, settings, func(c *coder, s *Setting) { c.texts(&s.Path, &s.Value) })
	}
	signed(c, &r.UID, &r.GID, &r.HostUID, &r.HostGID)
	names := slices.Sorted(maps.Keys(r.Namespaces))
	list(c, &names, func(c *coder, name *string) {
		value := r.Namespaces[*name]
		c.texts(name, &value)
		if !c.writing {
			if r.Namespaces == nil {
				r.Namespaces = map[string]string{}
			}
			r.Namespaces[*name] = value
		}
	})
}

func (s *Spec) fields(c *coder) {
	list(c, &s.Dirs, dirFields)
	list(c, &s.Files, fileFields)
	list(c, &s.Binds, bindFields)
	c.text(&s.Workspace)
	list(c, &s.Protect, func(c *coder, p *Protected) { c.text(&p.Path); c.flag(&p.Writable) })
	list(c, &s.Masks, func(c *coder, m *Mask) { c.text(&m.Path); c.flag(&m.Dir) })
	list(c, &s.Bound, (*coder).text)
	list(c, &s.Seal, (*coder).text)
	list(c, &s.Hide, (*coder).text)
	list(c, &s.Writable, (*coder).text)
	list(c, &s.Scratch, (*coder).text)
	optional(c, &s.Keep, func(c *coder, k *Keep) {
		c.flag(&k.From)
		c.flag(&k.To)
		c.texts(&k.Dir, &k.Note)
		signed(c, &k.MaxNote, &k.Bytes, &k.Names)
	})
	c.flag(&s.Proxy)
	list(c, &s.Argv, (*coder).text)
	list(c, &s.Env, (*coder).text)
	c.text(&s.Dir)
	list(c, &s.Rlimits, func(c *coder, l *Rlimit) { signed(c, &l.Resource); c.number(&l.Soft); c.number(&l.Max) })
	signed(c, &s.Memory)
	signed(c, &s.CPU, &s.Tick)
	signed(c, &s.Sockets, &s.DiskFree, &s.DiskStep, &s.FilesFree, &s.FilesStep)
}

func (e *Entry) fields(c *coder) {
	signed(c, &e.Kind)
	c.texts(&e.Path, &e.To)
	signed(c, &e.Mode)
	signed(c, &e.Time, &e.Size)
}

func dirFields(c *coder, d *Dir) { c.text(&d.Path); signed(c, &d.Mode) }

func fileFields(c *coder, f *File) { c.text(&f.Path); signed(c, &f.Mode); c.bytes(&f.Content) }

func bindFields(c *coder, b *Bind) {
	c.texts(&b.Source, &b.Target)
	for _, v := range []*uint64{&b.Dev, &b.Ino} {
		c.number(v)
	}
	for _, v := range []*bool{&b.Prepared, &b.IsDir, &b.ReadOnly, &b.Device} {
		c.flag(v)
	}
}

func (r *Report) fields(c *coder) {
	optional(c, &r.Failed, func(c *coder, f *Failure) {
		c.texts(&f.Step, &f.Err)
		signed(c,
			&f.Errno)
		c.flag(&f.NoCommand)
		c.flag(&f.NoKeep)
	})
	optional(c, &r.Ready, func(c *coder, s *Ready) {
		list(c, &s.Layers, (*coder).text)
		list(c, &s.Missing,
			(*coder).text)
	})
	optional(c, &r.Ended, func(c *coder, e *Ended) {
		signed(c, &e.Exit, &e.Signal)
		c.text(&e.Over)
		c.flag(&e.Told)
		signed[time.Duration](c, &e.User, &e.System)
		signed(c, &e.MaxRSS, &e.Peak)
		optional(c, &e.Kept, func(c *coder, k *Kept) {
			signed(c, &k.Bytes, &k.Names, &k.Left)
			c.bytes(&k.Note)
			c.text(&k.Problem)
		})
	})
}
