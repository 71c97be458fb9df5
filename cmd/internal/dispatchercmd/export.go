package dispatchercmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/durable"
	"github.com/toolyard/toolyard/internal/history"
	"github.com/toolyard/toolyard/internal/parquet"
	"github.com/toolyard/toolyard/internal/recall"
	"github.com/toolyard/toolyard/internal/version"
)

const (
	// exportTick is the time between two lines about the progress of an export.
	exportTick = 500 * time.Millisecond

	formatJSONLines = "jsonl"
	formatParquet   = "parquet"
)

// exporting is what to export, and where to.
type exporting struct {
	period
	session, status string
	dir, format     string
	force, json     bool
}

func (s *std) exportCommand() *cobra.Command {
	var sys natsFlags
	var o exporting
	cmd := &cobra.Command{
		Use:   "export [flags] --out DIR",
		Short: "Write history as tables of batches and calls, as JSON lines or Parquet",
		Long: `export writes two tables to DIR, for DuckDB and the like: batches.jsonl and calls.jsonl, or
batches.parquet and calls.parquet. They have a row for each batch that the system keeps, and one for each call: who,
which tool and class, when, on which worker, with which code, and how large inputs and outputs were. They have no
inputs and no outputs. Batches that are under way are there as they are now. The order is that in which the batches
were submitted.

A table takes its name when it is whole, the batches last. What is there is only replaced with --force. Memory does
not grow with the history. --since and --until take a time like 2026-11-23T08:00:00Z, or how long ago, like 36h; they
are about when the batch was submitted.`,
		Example: `  dispatcher export --format parquet --out history --since 24h
  duckdb -c "select tool, count(*) from 'history/calls.parquet' group by all"`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(time.Now()); err != nil {
				return err
			}
			return s.overBroker(cmd.Context(), &sys, "export", func(b *natsbroker.Broker) error {
				return s.export(cmd.Context(), b, &o)
			})
		},
	}
	f := cmd.Flags()
	sys.add(f)
	f.StringVar(&o.dir, "out", "", "write to `DIR`, which is made if need be")
	f.StringVar(&o.format, "format", formatJSONLines, "jsonl (JSON lines) or parquet")
	f.BoolVar(&o.json, "json", false, "print one JSON document: the files with their sizes")
	f.BoolVar(&o.force, "force", false, "replace tables that are there")
	o.period.add(f)
	f.StringVar(&o.session, "session", "", "only batches of this session")
	f.StringVar(&o.status, "status", "", "only batches that are open, running, waiting, completed, canceled or refused")
	return cmd
}

// exportStatuses are those of a batch in history.
var exportStatuses = append(slices.Clone(toolyard.Statuses), history.Refused, history.Unreadable)

func (o *exporting) check(now time.Time) (err error) {
	switch {
	case o.dir == "":
		return cli.Usagef("--out DIR is missing: it says where the tables go")
	case o.format != formatJSONLines && o.format != formatParquet:
		return cli.Usagef("--format %q: use %s or %s", o.format, formatJSONLines, formatParquet)
	case o.status != "" && !slices.Contains(exportStatuses, toolyard.Status(o.status)):
		return cli.Usagef("--status %q: use one of %q", o.status, exportStatuses)
	}
	if o.session != "" {
		if err := toolyard.CheckName("--session", o.session); err != nil {
			return err
		}
	}
	return o.period.check(now)
}

func (o *exporting) wants(b *history.Batch) bool {
	return (o.session == "" || string(b.Session) == o.session) && (o.status == "" || string(b.Status) == o.status)
}

// export writes the tables.
func (s *std) export(ctx context.Context, b *natsbroker.Broker, o *exporting) (err error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return cli.Usagef("--out: %w", err)
	}
	batches, err := newTable[history.Batch](o, "batches")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, batches.discard()) }()
	calls, err := newTable[history.Call](o, "calls")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, calls.discard()) }()
	troubled, shown := 0, progress{w: s.err, on: cli.IsTerminal(s.err), last: time.Now()}
	stories := recall.InOrder(ctx, b.Kept(ctx, o.of.Agent, o.of.Since, o.of.Until),
		func(ctx context.Context, k broker.Kept) (*story, error) { return read(ctx, b, k) })
	for story, serr := range stories {
		if serr != nil {
			return errors.Join(serr, shown.clear())
		}
		if !o.wants(&story.batch) {
			continue
		}
		if story.batch.Problem != nil {
			troubled++
		}
		if err := errors.Join(batches.write(&story.batch), calls.writeAll(story.calls)); err != nil {
			return err
		}
		if err := shown.show(time.Now(), int(batches.rows), int(calls.rows)); err != nil {
			return err
		}
	}
	if err := errors.Join(shown.clear(), calls.finish(), batches.finish()); err != nil {
		return err
	}
	if o.force { // calls and batches are of one export wherever there are batches
		if err := os.Remove(batches.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	last := func() error { return durable.SyncDir(o.dir) }
	for _, step := range []func() error{calls.publish, batches.publish, last} {
		if err := step(); err != nil {
			return err
		}
	}
	if troubled > 0 {
		if _, err := fmt.Fprintf(s.err, "%s could not be followed to the end: see the column problem\n",
			count(troubled, "batch", "batches")); err != nil {
			return err
		}
	}
	if o.json {
		return printJSON(s.out, exported{Files: []exportedFile{batches.file(), calls.file()}, Troubled: troubled})
	}
	_, err = fmt.Fprintf(s.out, "%s\n%s\n", batches, calls)
	return err
}

// progress shows on a terminal how much of a history is read.
type progress struct {
	w    io.Writer
	on   bool
	last time.Time // when it was shown
}

const clearLine = "\r\x1b[K"

// show shows what is written, unless it has just done so.
func (p *progress) show(now time.Time, batches, calls int) error {
	if !p.on || now.Sub(p.last) < exportTick {
		return nil
	}
	p.last = now
	_, err := fmt.Fprintf(p.w, clearLine+"%s, %s", count(batches, "batch", "batches"), count(calls, "call"))
	return err
}

// clear takes it away.
func (p *progress) clear() error {
	if !p.on {
		return nil
	}
	_, err := io.WriteString(p.w, clearLine)
	return err
}

// story is what an export writes of one batch.
type story struct {
	batch history.Batch
	calls []history.Call
}

// read reads what an export writes of one batch; nil if the batch has expired.
func read(ctx context.Context, b *natsbroker.Broker, k broker.Kept) (*story, error) {
	log := history.New(k.Key, k.Place, k.Time)
	if kept, err := recall.Tell(ctx, b, k.Key, log); !kept || err != nil {
		return nil, err
	}
	out := new(story)
	out.batch, out.calls = log.Rows()
	return out, nil
}

// table is a file of rows that has a name of its own until it is whole.
type table[T any] struct {
	name  string
	part  *os.File
	force bool // it may replace a file
	rows  int64
	bytes int64

	write func(*T) error
	end   func() error
	link  func(from, to string) error // os.Link
}

func newTable[T any](o *exporting, name string) (*table[T], error) {
	t := &table[T]{name: filepath.Join(o.dir, name+"."+o.format), force: o.force, link: os.Link}
	if _, err := os.Lstat(t.name); !o.force && err == nil {
		return nil, cli.Usagef("%s is there already; name another --out, or replace it with --force", t.name)
	}
	part, err := os.CreateTemp(o.dir, "."+name+"."+o.format+".part-*")
	if err != nil {
		return nil, cli.Usagef("--out: %w", err)
	}
	t.part = part
	buf := bufio.NewWriterSize(part, 1<<16)
	if o.format == formatParquet {
		w, err := parquet.NewWriter[T](buf, "toolyard "+version.Build())
		if err != nil {
			return nil, errors.Join(err, t.discard())
		}
		t.write = w.Write
		t.end = func() error {
			if err := w.Close(); err != nil {
				return err
			}
			return buf.Flush()
		}
	} else {
		e := json.NewEncoder(buf)
		e.SetEscapeHTML(false)
		t.write = func(row *T) error { return e.Encode(row) }
		t.end = buf.Flush
	}
	add := t.write
	t.write = func(row *T) error {
		t.rows++
		return add(row)
	}
	return t, nil
}

func (t *table[T]) writeAll(rows []T) error {
	for i := range rows {
		if err := t.write(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// finish makes the file whole.
func (t *table[T]) finish() error {
	err := t.end()
	if err == nil {
		err = t.part.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", t.name, err)
	}
	t.bytes, err = t.part.Seek(0, io.SeekEnd)
	return errors.Join(err, t.part.Close()) // Windows renames and removes no open file
}

// publish gives the file its name.
func (t *table[T]) publish() error {
	if t.force {
		return os.Rename(t.part.Name(), t.name)
	}
	err := t.link(t.part.Name(), t.name) // unlike a rename, it replaces nothing
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = t.replaceOwn() // there are file systems without links
	}
	if errors.Is(err, fs.ErrExist) {
		return cli.Usagef("%s is there now; name another --out, or replace it with --force", t.name)
	}
	return err
}

// replaceOwn takes the name with an empty file, which nothing else can then, and puts the table in its place.
func (t *table[T]) replaceOwn() error {
	own, err := os.OpenFile(t.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = own.Close(); err == nil {
		err = os.Rename(t.part.Name(), t.name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(t.name))
	}
	return nil
}

// discard removes the file's other name, and the file if it has no name yet.
func (t *table[T]) discard() error {
	err := t.part.Close()
	if errors.Is(err, fs.ErrClosed) {
		err = nil
	}
	if rerr := os.Remove(t.part.Name()); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// exported is what --json prints of an export. Troubled is how many batches could not be followed to the end.
type exported struct {
	Files    []exportedFile `json:"files"`
	Troubled int            `json:"troubled"`
}

type exportedFile struct {
	File  string `json:"file"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
}

func (t *table[T]) file() exportedFile { return exportedFile{t.name, t.rows, t.bytes} }

func (t *table[T]) String() string {
	return fmt.Sprintf("%s: %s, %s", t.name, count(int(t.rows), "row"), count(int(t.bytes), "byte"))
}
