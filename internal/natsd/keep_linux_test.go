package natsd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/testenv/smalldisk"
)

// kept starts a server and looks after it until the test is over, or cancel is called. What Keep returned is sent then.
func kept(t *testing.T, o Options) (s *Server, ended <-chan error) {
	t.Helper()
	s = startServer(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		done <- s.Keep(ctx)
	}()
	t.Cleanup(func() { cancel(); <-over; s.Shutdown() })
	return s, done
}

// until asks until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not become true that %s", what)
		}
	}
}

// TestAFullDisk: nothing that was acknowledged is lost, the server says that it is full, and stores again when there is
// room, in the same process, to clients that connected before.
func TestAFullDisk(t *testing.T) {
	smalldisk.Run(t, 24<<20, func(t *testing.T, dir string) {
		s, ended := kept(t, Options{StoreDir: dir, Listen: "127.0.0.1:0", Open: true, Reserve: 8 << 20})
		inside, err := s.Connect(nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
		must.OK(t, err)
		outside, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
		must.OK(t, err)
		defer outside.Close()
		js, err := jetstream.New(inside)
		must.OK(t, err)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"},
			Discard: jetstream.DiscardNew}); err != nil {
			t.Fatal(err)
		}
		if r := s.Room(); r.Full || r.Stalled != nil || r.Reserve != 8<<20 || r.Free < 8<<20 {
			t.Fatalf("with an empty disk the room is %+v", r)
		}
		acked := map[string]bool{}
		publish := func(subject string, bytes int) error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := js.Publish(ctx, subject, make([]byte, bytes), jetstream.WithRetryAttempts(0))
			if err == nil {
				acked[subject] = true
			}
			return err
		}
		check := func(when string) {
			t.Helper()
			stream, err := js.Stream(t.Context(), "KEPT")
			must.OK(t, err)
			for subject := range acked {
				if _, err := stream.GetLastMsgForSubject(t.Context(), subject); err != nil {
					t.Errorf("%s: %s was acknowledged: %v", when, subject, err)
				}
			}
		}

		for round := range 3 {
			// Less than the reserve: it says so, and still stores.
			smalldisk.Fill(t, dir, 4<<20)
			until(t, "the room is full", func() bool { return s.Room().Full })
			if r := s.Room(); r.Stalled != nil || !strings.Contains(r.String(), dir) ||
				!strings.Contains(r.String(), "kept for what is under way") {
				t.Errorf("the room is %+v: %s", r, r)
			}
			if err := publish(fmt.Sprintf("kept.low.%d", round), 1000); err != nil {
				t.Errorf("a publish into the reserve: %v", err)
			}
			// Nothing left: it stores nothing, and goes on to answer reads.
			filler := smalldisk.Fill(t, dir, 0)
			for i := 0; publish(fmt.Sprintf("kept.%d.%d", round, i), 2000) == nil; i++ {
			}
			until(t, "the server is stalled", func() bool { return s.Room().Stalled != nil })
			if r := s.Room(); !strings.Contains(r.String(), "no space left") || !strings.Contains(r.String(), dir) {
				t.Errorf("the room is %+v: %s", r, r)
			}
			check("while the disk is full")
			must.OK(t, os.Remove(filler))
			until(t, "there is room again", func() bool { r := s.Room(); return !r.Full && r.Stalled == nil })
			until(t, "a publish is acknowledged", func() bool {
				return publish(fmt.Sprintf("kept.after.%d", round),
					2000) == nil
			})
			check("when there is room")
		}
		if outside.ConnectedUrl() != s.ClientURL() {
			until(t, "a client outside is connected again", outside.IsConnected)
		}
		select {
		case err := <-ended:
			t.Errorf("Keep ended: %v", err)
		default:
		}
	})
}

// TestAStoreThatVanishes: the server is given up, with an error that says what is gone.
func TestAStoreThatVanishes(t *testing.T) {
	for name, vanish := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"emptied": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "jetstream")) },
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-old"), os.CopyFS(dir, os.DirFS(dir+"-old")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			s, ended := kept(t, Options{StoreDir: dir, Reserve: 1})
			_, js := connect(t, s)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT",
				Subjects: []string{"kept"}}); err != nil {
				t.Fatal(err)
			}
			until(t, "it is removed", func() bool { return vanish(dir) == nil })
			vanished(t, s, ended, dir)
		})
	}
	t.Run("unmounted", func(t *testing.T) {
		smalldisk.Run(t, 16<<20, func(t *testing.T, dir string) {
			s, ended := kept(t, Options{StoreDir: dir, Reserve: 1})
			must.OK(t, syscall.Unmount(dir, syscall.MNT_DETACH))
			vanished(t, s, ended, dir)
		})
	})
}

func vanished(t *testing.T, s *Server, ended <-chan error, dir string) {
	t.Helper()
	select {
	case err := <-ended:
		gone, ok := errors.AsType[*GoneError](err)
		if !ok || !strings.HasPrefix(gone.Path, dir) || !strings.Contains(err.Error(), "start again") {
			t.Errorf("Keep returned %v; want a GoneError about %s that says what to do", err, dir)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Keep goes on")
	}
	if r := s.Room(); r.Stalled == nil || !r.Full {
		t.Errorf("the room is %+v; want it stalled", r)
	}
}
