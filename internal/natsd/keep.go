package natsd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// GoneError says that the store directory is no more what it was: it was removed, or its disk is not mounted there now.
// What the server acknowledges is lost from then on.
type GoneError struct {
	// Path is what is not there, and Problem what became of it.
	Path, Problem string
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("the store %s %s; what was stored there is out of reach: put it back, or name another "+
		"directory, "+
		"and start again", e.Path, e.Problem)
}

// Room is how much room the server had when [Server.Keep] last looked, which it does a few times a second.
func (s *Server) Room() Room {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room
}

// survey takes the first look at the store.
func (s *Server) survey(reserve int64) error {
	s.room = Room{Dir: s.dir, Free: math.MaxInt64}
	if reserve < 0 {
		return nil
	}
	free, total, err := disk(s.dir)
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	for _, dir := range []string{s.dir, filepath.Join(s.dir, server.JetStreamStoreDir)} {
		place, err := os.Open(dir) // nothing else gets its inode while it is open
		if err != nil {
			return fmt.Errorf("natsd: look at the store directory: %w", err)
		}
		s.places = append(s.places, place)
	}
	s.room.Free, s.room.Reserve = free, reserveOf(reserve, total)
	s.room.Full = s.room.Free < s.room.Reserve
	return nil
}

// Keep looks after the store until ctx ends, and returns nil then. It returns an error when there is no going on: a
// [*GoneError] when the store directory is not what it was, another one when the server cannot be started again.
//
// A write that fails, as on a full disk, makes nats-server store nothing more in that stream, answer no publish to it,
// and stay so until it is started again. Keep does that, in this process and on the same address, as soon as there is
// room: clients connect again by themselves, and find all that was acknowledged.
func (s *Server) Keep(ctx context.Context) error {
	if len(s.places) == 0 {
		<-ctx.Done()
		return nil
	}
	k := keeper{room: s.Room()}
	var starts error // why the server does not run
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		seen := s.look(starts)
		do := k.see(seen)
		s.mu.Lock()
		s.room = k.room
		s.mu.Unlock()
		if do == restart {
			var err error
			if err = s.writable(); err == nil {
				s.log.Warn("starting the NATS server again, since it has stopped to store and could now", "reason",
					seen.stalled)
				err = s.restart()
				starts = err
			}
			do = k.tried(time.Now(), err)
			seen.gone = err
		}
		if do == giveUp {
			return seen.gone
		}
	}
}

// look looks at the store.
func (s *Server) look(starts error) sight {
	free, _, err := disk(s.dir)
	seen := sight{at: time.Now(), free: free, stalled: cmp.Or(starts, err)}
	if seen.stalled == nil {
		seen.stalled = stalled(s.running())
	}
	seen.gone = s.gone() // last: a store that is gone stalls the server, which must not make it anew
	return seen
}

func (s *Server) running() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ns
}

// gone says why the store is no more what it was.
func (s *Server) gone() error {
	for _, p := range s.places {
		was, err := p.Stat()
		if err != nil {
			continue // a disk that answers nothing shows when it is written to
		}
		now, err := os.Stat(p.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &GoneError{p.Name(), "is gone: it was removed, or its disk is not mounted any more"}
		case err == nil && !os.SameFile(was, now):
			return &GoneError{p.Name(),
				"is another directory now: it was replaced, or its disk was mounted or unmounted"}
		}
	}
	return nil
}

// stalled is why a server stores nothing in some stream, or at all.
func stalled(ns *server.Server) error {
	if ns == nil {
		return nil
	}
	for _, e := range ns.Healthz(&server.HealthzOptions{Details: true}).Errors {
		switch {
		case e.Type == server.HealthzErrorJetStream:
			return errors.New(e.Error)
		case e.Type == server.HealthzErrorStream && strings.Contains(e.Error, "write error"):
			return errors.New(e.Error)
		}
	}
	return nil
}

// recovered says which stream of the store could not be recovered though there are messages in it: the server itself
// goes on without it. One without messages is no loss: the server was killed while it made it.
func recovered(ns *server.Server, dir string) error {
	for _, e := range ns.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Type != server.HealthzErrorStream {
			continue
		}
		at := filepath.Join(dir, server.JetStreamStoreDir, e.Account, "streams", e.Stream)
		blocks, err := matching(filepath.Join(at, "msgs"), "*.blk")
		if err != nil {
			return fmt.Errorf("natsd: look at the files of stream %s: %w", e.Stream, err)
		}
		for _, block := range blocks {
			if info, err := os.Stat(block); err == nil && info.Size() == 0 {
				continue
			}
			return fmt.Errorf("natsd: stream %s cannot be recovered, its files are damaged; the log says how. Put %s "+
				"back from a copy, "+
				"or move it away to begin without what is in it", e.Stream, at)
		}
	}
	return nil
}

// probeBytes is how much is written to see whether anything can be.
const probeBytes = 1 << 20

// writable reports whether the store can be written to: a quota, or a disk that is broken, shows only there.
func (s *Server) writable() (err error) {
	path := filepath.Join(s.dir, "probe")
	defer func() {
		err = errors.Join(err, os.Remove(path))
		if err != nil {
			err = fmt.Errorf("%w: %w", errNotWritable, err)
		}
	}()
	return os.WriteFile(path, make([]byte, probeBytes), 0o600)
}

// restart ends the server, if it runs, and starts it again.
func (s *Server) restart() error {
	s.mu.Lock()
	ns := s.ns
	s.ns = nil
	s.mu.Unlock()
	if ns != nil {
		end(ns)
	}
	ns, err := s.boot()
	if err != nil {
		return fmt.Errorf("the server does not start again: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ns = ns
	return nil
}
