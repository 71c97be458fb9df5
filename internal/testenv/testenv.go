// Package testenv starts what tests run against: a real nats-server with JetStream, in the test's own process and on
// its own store.
package testenv

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// atOnce is how many tests run at a time that wait more than they work.
const atOnce = 6

// RunWaiting runs the tests of a package that mostly wait, for processes and for each other: more of them at a time
// than there are processors, unless -parallel says how many. It returns the exit status.
func RunWaiting(m *testing.M) int {
	flag.Parse()
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if !told {
		if err := flag.Set("test.parallel", strconv.Itoa(max(atOnce, runtime.GOMAXPROCS(0)))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// Log is a logger whose lines stand in the test's output.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Server starts a nats-server that other processes can connect to, and stops it with the test. It asks nobody for
// credentials: brokers on it have full rights.
func Server(t testing.TB) *natsd.Server {
	t.Helper()
	s, err := natsd.Start(t.Context(), natsd.Options{StoreDir: StoreDir(t), Listen: "127.0.0.1:0", Open: true,
		Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

// Conn is a connection of its own to a server, as dispatchers and workers have it, closed with the test.
func Conn(t testing.TB, s *natsd.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), natsbroker.ConnectOptions("test", slog.New(slog.DiscardHandler))...)
	must.OK(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// JetStream is the JetStream of a connection.
func JetStream(t testing.TB, nc *nats.Conn, opts ...jetstream.JetStreamOpt) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, opts...)
	must.OK(t, err)
	return js
}

// Stream is a stream that is there.
func Stream(t testing.TB, js jetstream.JetStream, name string) jetstream.Stream {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	must.OK(t, err)
	return stream
}

// Broker is a broker on a connection of its own.
func Broker(t testing.TB, s *natsd.Server, source string) *natsbroker.Broker {
	t.Helper()
	return Open(t, Conn(t, s), broker.Settings{Shards: Shards(t)}, source)
}

// Open is a broker on a connection, with settings.
func Open(t testing.TB, nc *nats.Conn, settings broker.Settings, source string) *natsbroker.Broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b, err := natsbroker.Open(ctx, nc, settings, source)
	must.OK(t, err)
	return b
}

// Shards is how many shards the systems of tests have: 0, which is 1, or what TEST_SHARDS says, to run tests of one
// shard with several. Tests of [OneShard] have one.
func Shards(t testing.TB) int {
	t.Helper()
	text := os.Getenv("TEST_SHARDS")
	for name := t.Name(); name != ""; name = name[:max(0, strings.LastIndexByte(name, '/'))] {
		if _, one := oneShard.Load(name); one {
			return 0
		}
	}
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("TEST_SHARDS: %v", err)
	}
	return n
}

// oneShard has the names of the tests of [OneShard].
var oneShard sync.Map

// OneShard says that a test and those in it are about one shard, whatever TEST_SHARDS says: it names streams, or counts
// on the order in which batches are taken.
func OneShard(t testing.TB) { oneShard.Store(t.Name(), true) }

// Take takes the next call from a lane.
func Take(t testing.TB, l broker.Lane) *broker.Delivery {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		for d, err := range l.Take(t.Context(), 1) {
			must.OK(t, err)
			return d
		}
	}
	t.Fatal("no call came within a minute")
	return nil
}

// RestartableServer is a server that can be stopped (Shutdown) and started again, on the same address and store.
type RestartableServer struct {
	*natsd.Server
	Options natsd.Options
	t       testing.TB
}

// Restartable starts one, and stops it with the test.
func Restartable(t testing.TB) *RestartableServer {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	s := &RestartableServer{t: t, Options: natsd.Options{
		StoreDir: StoreDir(t), Listen: free.Addr().String(), Open: true, Logger: slog.New(slog.DiscardHandler),
	}}
	must.OK(t, free.Close())
	s.Start()
	t.Cleanup(func() { s.Shutdown() })
	return s
}

// Start starts the server again.
func (s *RestartableServer) Start() {
	s.t.Helper()
	var err error
	if s.Server, err = natsd.Start(s.t.Context(), s.Options); err != nil {
		s.t.Fatal(err)
	}
}

// ForgetDeliveries takes from a server that is stopped all that it knows of the deliveries of a stream. A server that
// is killed forgets those of its last tenth of a second, since it writes them down ten times a second.
func (s *RestartableServer) ForgetDeliveries(stream string) {
	s.t.Helper()
	states, err := filepath.Glob(filepath.Join(s.Options.StoreDir, "jetstream", "*", "streams", stream, "obs", "*",
		"o.dat"))
	if err == nil && len(states) == 0 {
		err = errors.New("no consumer has a state")
	}
	for _, path := range states {
		err = errors.Join(err, os.Remove(path))
	}
	must.OK(s.t, err)
}
