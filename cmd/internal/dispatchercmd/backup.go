package dispatchercmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/durable"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/version"
)

const (
	// backupList is the file that says what is in a backup. It is written last: without it a backup is not whole.
	backupList = "backup.json"
	// maxBackupList bounds the list of what is in a backup, in bytes.
	maxBackupList = 1 << 20
	// restoredTimeout bounds how long what was restored is looked through: the index, interrupts, and batches to wake.
	restoredTimeout = 10 * time.Minute
	// backupData ends the name of the file of a stream.
	backupData = ".snapshot"
)

// backup is what is in a directory of a backup.
type backup struct {
	Begun   time.Time      `json:"begun"`
	Ended   time.Time      `json:"ended"`
	Version string         `json:"version"`
	Wire    int            `json:"wire_version"`
	Streams []backedStream `json:"streams"`
}

// backedStream is one stream of a backup; its data is in the file of its name.
type backedStream struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	natsbroker.StreamBackup
}

func (s *std) backupCommand() *cobra.Command {
	var sys natsFlags
	var done streamsDone
	cmd := &cobra.Command{
		Use:   "backup [flags] DIR",
		Short: "Save all streams of a running system to a directory",
		Long: `backup saves every stream and bucket of a system with what its consumers have read, one file each, to
DIR, which it makes. The system goes on meanwhile. The streams are saved one after the other, in an order in which
nothing is missing that a later one needs: a batch that is under way goes on after a restore from what its log says.

DIR has the inputs and results of all agents: keep it like the store itself. It has no credentials; those of an
embedded server are in creds of its --data.

"dispatcher restore" makes a system of it.`,
		Example: `  dispatcher backup /var/backups/toolyard/2026-11-23`,
		Args:    cli.OneArg("one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.overNATS(cmd.Context(), &sys, "backup", func(nc *nats.Conn) error {
				return s.save(cmd.Context(), nc, args[0], &done)
			})
		},
	}
	sys.add(cmd.Flags())
	cmd.Flags().BoolVar(&done.json, "json", false, "print one JSON document: the streams that are saved")
	return cmd
}

// save saves a system to a directory.
func (s *std) save(ctx context.Context, nc *nats.Conn, dir string, done *streamsDone) error {
	there, err := natsbroker.Existing(ctx, nc)
	if err != nil {
		return err
	}
	shards := natsbroker.ShardsIn(there)
	order := natsbroker.BackupOrder(max(1, shards))
	all := inEverySystem(order)
	if there = inEverySystem(there); len(there) < len(all) {
		return fmt.Errorf("there is no whole system to save: of its %d streams there are %d (%s)", len(all), len(there),
			strings.Join(there, ", "))
	}
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return cli.Usagef("DIR %s: is there already, and nothing in it is overwritten; name a directory that is not there",
			dir)
	case err != nil:
		return cli.Usagef("DIR %s: %w", dir, errors.Unwrap(err))
	}
	b := backup{Begun: time.Now().UTC(), Version: version.Build(), Wire: version.Wire}
	for _, name := range order {
		if !natsbroker.InEverySystem(name) { // it may have been made since
			if now, err := natsbroker.Existing(ctx, nc); err != nil {
				return err
			} else if !slices.Contains(now, name) {
				continue
			}
		}
		saved := backedStream{Name: name}
		if err := saved.write(ctx, nc, dir); err != nil {
			return err
		}
		if err := done.say(s, name, saved.Bytes); err != nil {
			return err
		}
		b.Streams = append(b.Streams, saved)
	}
	// The map of shards is saved late: it may name shards that were not there when their streams would have been saved.
	if there, err = natsbroker.Existing(ctx, nc); err != nil {
		return err
	}
	if now := natsbroker.ShardsIn(there); now != shards {
		return fmt.Errorf("%s is no whole backup: the system had %d shards, and got streams for %d while it was saved; "+
			"save it again when their number is raised", dir, shards, now)
	}
	b.Ended = time.Now().UTC()
	list, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", backupList, err)
	}
	if err := durable.SyncDir(dir); err != nil { // or the list could be there, and a file not
		return err
	}
	whole, err := os.OpenFile(filepath.Join(dir, backupList), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = whole.Write(append(list, '\n'))
	if err := errors.Join(err, whole.Sync(), whole.Close(), durable.SyncDir(dir),
		durable.SyncDir(filepath.Dir(dir))); err != nil {
		return err
	}
	return done.end(s)
}

// streamsDone is what --json prints of a backup or a restore: the streams that are saved or made.
type streamsDone struct {
	json    bool
	Streams []streamDone `json:"streams"`
}

type streamDone struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// end prints the document.
func (d *streamsDone) end(s *std) error {
	if !d.json {
		return nil
	}
	if d.Streams == nil {
		d.Streams = []streamDone{}
	}
	return printJSON(s.out, d)
}

// inEverySystem are those of some streams that every system has.
func inEverySystem(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !natsbroker.InEverySystem(n) })
}

// say says that a stream was saved or restored.
func (d *streamsDone) say(s *std, name string, bytes int64) error {
	if d.json {
		d.Streams = append(d.Streams, streamDone{name, bytes})
		return nil
	}
	if _, err := fmt.Fprintf(s.out, "%s: %d bytes\n", name, bytes); err != nil {
		return fmt.Errorf("say what was done: %w", err)
	}
	return nil
}

// write saves the stream to its file.
func (b *backedStream) write(ctx context.Context, nc *nats.Conn, dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, b.Name+backupData), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum, size := sha256.New(), &counter{}
	b.StreamBackup, err = natsbroker.SaveStream(ctx, nc, b.Name, io.MultiWriter(f, sum, size))
	b.Bytes, b.SHA256 = size.n, hex.EncodeToString(sum.Sum(nil))
	return errors.Join(err, f.Sync(), f.Close())
}

// counter counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func (s *std) restoreCommand() *cobra.Command {
	var sys natsFlags
	var done streamsDone
	var as remade
	cmd := &cobra.Command{
		Use:   "restore [flags] DIR",
		Short: "Make a system of what backup has saved",
		Long: `restore makes the streams that "dispatcher backup" has saved to DIR: in the store of an embedded server,
which is --data and which no server may have open, or in the NATS system at --nats. There must be no system yet.

The restored system knows nothing of what happened after the backup. A batch that was under way then goes on as soon
as a dispatcher and workers are there, and calls that have run since may run again. Start a dispatcher alone first, with
--worker-wait 1h and --queue-wait 1h, so that calls wait for workers. Look at "dispatcher batches --status running",
cancel what must not run again, and then start the workers. What is older than the batch lifetime is gone at once.

--replicas moves a system from one server to a cluster, or the other way: a copy of a fleet's system on one machine, to
look at what went wrong there. Give the dispatchers of the restored system the same --replicas and --ack-wait.`,
		Example: `  dispatcher restore --data /var/lib/toolyard /var/backups/toolyard/2026-11-23
  dispatcher restore --nats nats://n1:4222 --replicas 3 /var/backups/toolyard/2026-11-23`,
		Args: cli.OneArg("one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			b, err := readBackup(args[0])
			if err == nil {
				err = as.of(&b, !sys.named())
			}
			if err != nil {
				return err
			}
			if !sys.named() {
				if err := s.restoreEmbedded(ctx, b, args[0], sys.reach.Data, &done); err != nil {
					return ended(ctx, err)
				}
				return nil // a signal that came while the server stopped has interrupted nothing
			}
			return s.overNATS(ctx, &sys, "restore", func(nc *nats.Conn) error {
				return s.restore(ctx, nc, b, args[0], &done)
			})
		},
	}
	cmd.Flags().StringVar(&sys.nats, "nats", "", "restore in the NATS system at `URL` instead of an embedded server's store")
	sys.reach.AddCreds(cmd.Flags()) // behind --nats, whose place one of them takes
	cmd.Flags().StringVar(&sys.reach.Data, "data", "", "where the embedded NATS server is to keep its streams, and with "+
		"--nats where credentials are found (default: toolyard in the user's state directory)")
	cmd.Flags().IntVar(&as.replicas, "replicas", 0,
		"on how many NATS servers each stream is kept: 1, 3 or 5 (default: as in the backup)")
	cmd.Flags().DurationVar(&as.ackWait, "ack-wait", 0, "how long a worker may be silent before its calls are settled or "+
		"given to others, in whole seconds (default: as in the backup, or where that had the default of its replicas, the "+
		"one of the new replicas)")
	cmd.Flags().BoolVar(&done.json, "json", false, "print one JSON document: the streams that are made")
	return cmd
}

// remade is what a restored system has other than in the backup.
type remade struct {
	replicas int           // 0: as in the backup
	ackWait  time.Duration // the same
}

// of changes what is in a backup, which is to be restored in the store of an embedded server or elsewhere.
func (r *remade) of(b *backup, embedded bool) error {
	if err := checkAckWait(r.ackWait); err != nil {
		return err
	}
	was, err := b.Streams[0].Settings() // the batch stream: see [natsbroker.BackupOrder]
	if err != nil {
		return cli.Usagef("DIR: %w", err)
	}
	now := was.WithReplicas(r.replicas).WithAckWait(r.ackWait)
	if embedded && now.Replicas > 1 {
		return cli.Usagef("the restored system has %d replicas, and an embedded server keeps one: add --replicas 1, or "+
			"name a cluster with --nats", now.Replicas)
	}
	if now == was {
		return nil
	}
	if err := now.Check(); err != nil {
		return cli.Usagef("the restored system: %w (--replicas and --ack-wait change it)", err)
	}
	saved := map[string]*natsbroker.StreamBackup{}
	for i := range b.Streams {
		saved[b.Streams[i].Name] = &b.Streams[i].StreamBackup
	}
	return natsbroker.Remake(saved, now, natsbroker.ShardsIn(b.names()))
}

// readBackup reads what is in a backup, and checks that all of it is there.
func readBackup(dir string) (b backup, err error) {
	f, err := os.Open(filepath.Join(dir, backupList))
	if err != nil {
		return b, cli.Usagef("DIR: %w; there is no whole backup", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBackupList+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return b, err
	}
	if len(data) > maxBackupList {
		return b, cli.Usagef("%s: it has more than %d bytes", f.Name(), maxBackupList)
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return b, cli.Usagef("%s: %w", f.Name(), err)
	}
	if b.Wire > version.Wire {
		return b, cli.Usagef("%s: Toolyard %s wrote it (wire version %d), and this is %s (wire version %d); use that "+
			"version or a later one", f.Name(), b.Version, b.Wire, version.Build(), version.Wire)
	}
	names := b.names()
	all := natsbroker.BackupOrder(max(1, natsbroker.ShardsIn(names)))
	if want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { // of what not every system has, some
		return !natsbroker.InEverySystem(n) && !slices.Contains(names, n)
	}); !slices.Equal(names, want) {
		return b, cli.Usagef("%s: it has the streams %q; a backup has %q", f.Name(), names, all)
	}
	for _, s := range b.Streams { // before anything is made
		if err := s.check(dir); err != nil {
			return b, err
		}
	}
	return b, nil
}

// check compares the file of a stream with the list.
func (b *backedStream) check(dir string) error {
	f, err := os.Open(filepath.Join(dir, b.Name+backupData))
	if err != nil {
		return cli.Usagef("DIR: %w", err)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if want, err := hex.DecodeString(b.SHA256); err != nil || n != b.Bytes || !bytes.Equal(sum.Sum(nil), want) {
		return cli.Usagef("%s: it is not as it was saved: it has %d bytes of %d, or others", f.Name(), n, b.Bytes)
	}
	return nil
}

// restoreEmbedded restores in the store of an embedded server.
func (s *std) restoreEmbedded(ctx context.Context, b backup, dir, data string, done *streamsDone) error {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	store, err := storeDir(data)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	server, err := natsd.Start(starting, natsd.Options{StoreDir: store, Access: cli.Access(store),
		Listen: "127.0.0.1:0", Logger: log, MaxStoreBytes: b.storeBytes()})
	if err != nil {
		return fmt.Errorf("start the embedded NATS server: %w", err)
	}
	defer server.Shutdown()
	nc, err := server.Connect(natsbroker.ConnectOptions("toolyard restore", log)...)
	if err != nil {
		return fmt.Errorf("connect to the embedded NATS server: %w", err)
	}
	defer nc.Close()
	return s.restore(ctx, nc, b, dir, done)
}

// names are those of the streams.
func (b *backup) names() (names []string) {
	for _, s := range b.Streams {
		names = append(names, s.Name)
	}
	return names
}

// storeBytes is what the streams may use together.
func (b *backup) storeBytes() (sum int64) {
	for _, s := range b.Streams {
		var cfg struct {
			MaxBytes int64 `json:"max_bytes"`
		}
		if json.Unmarshal(s.Config, &cfg) == nil { // the server says what is wrong with a configuration
			sum += max(0, cfg.MaxBytes)
		}
	}
	return sum
}

// restore makes the streams of a backup. When one fails, none is left.
func (s *std) restore(ctx context.Context, nc *nats.Conn, b backup, dir string, done *streamsDone) (err error) {
	there, err := natsbroker.Existing(ctx, nc)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return cli.Usagef("there is a system already (%s); restore where there is none", strings.Join(there, ", "))
	}
	var made []string
	defer func() {
		if err == nil {
			return
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), setupTimeout)
		defer cancel()
		for _, name := range made {
			err = errors.Join(err, natsbroker.Remove(clean, nc, name))
		}
	}()
	for _, stream := range slices.Backward(b.Streams) {
		f, err := os.Open(filepath.Join(dir, stream.Name+backupData))
		if err != nil {
			return err
		}
		err = natsbroker.RestoreStream(ctx, nc, stream.Name, stream.StreamBackup, f)
		if !natsbroker.IsTaken(err) { // or it is somebody else's, who has begun meanwhile
			made = append(made, stream.Name)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if err := done.say(s, stream.Name, stream.Bytes); err != nil {
			return err
		}
	}
	made = nil // the system is there, and others may use it
	// A signal that comes now interrupts nothing.
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoredTimeout)
	defer cancel()
	restored, err := natsbroker.Join(looking, nc, "/restore", nil) // a cluster may still elect leaders
	if err != nil {
		return fmt.Errorf("the system is restored, and was not looked through: %w", err)
	}
	var failed []error
	for _, look := range []struct {
		at   func(context.Context) error
		left string // what is left when it fails
	}{
		{restored.ForgetUnsubmitted, "batches that were submitted during the backup, and are not there, may be listed"},
		{restored.LowerInterrupts, "new batches of a session that was interrupted during the backup may be stopped: " +
			"give such a session another name"},
		{restored.WakeUnkept, "not all batches that wait for a person are woken: those of \"dispatcher batches " +
			"--status waiting\" that \"dispatcher approvals\" does not list have to be canceled"},
	} {
		if err := look.at(looking); err != nil {
			failed = append(failed, fmt.Errorf("the system is restored, and %s: %w", look.left, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return done.end(s)
}
