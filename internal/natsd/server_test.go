package natsd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// holdEnv names a store directory to the child that TestKilledServer starts: this binary again.
const holdEnv = "NATSD_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		hold(dir)
	}
	os.Exit(m.Run())
}

// startServer starts a server that logs to the test and ends with it.
func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := Start(t.Context(), o)
	must.OK(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t *testing.T, s *Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := s.Connect()
	must.OK(t, err)
	js, err := jetstream.New(nc)
	must.OK(t, err)
	return nc, js
}

func TestRestartKeepsMessages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	first := startServer(t, Options{StoreDir: dir})
	_, js := connect(t, first)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT",
		Subjects: []string{"kept.>"}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := js.Publish(t.Context(), "kept."+strconv.Itoa(i), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	first.Shutdown()

	second := startServer(t, Options{StoreDir: dir, SyncAlways: true})
	if c := second.ns.JetStreamConfig(); !c.SyncAlways || c.SyncInterval != SyncInterval {
		t.Errorf("the server syncs always: %t, every %s; want true, %s", c.SyncAlways, c.SyncInterval, SyncInterval)
	}
	_, js = connect(t, second)
	stream, err := js.Stream(t.Context(), "KEPT")
	must.OK(t, err)
	for i := range 3 {
		msg, err := stream.GetMsg(t.Context(), uint64(i+1))
		must.OK(t, err)
		if want := "kept." + strconv.Itoa(i); msg.Subject != want || !bytes.Equal(msg.Data, []byte{byte(i)}) {
			t.Errorf("message %d is %s %v; want %s [%d]", i+1, msg.Subject, msg.Data, want, i)
		}
	}
	if mode := stat(t, dir).Mode().Perm(); mode != 0o700 {
		t.Errorf("the store directory has mode %o; want 700", mode)
	}
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	must.OK(t, err)
	return info
}

func TestInProcessOnly(t *testing.T) {
	s := startServer(t, Options{StoreDir: t.TempDir()})
	if u := s.ClientURL(); u != "" {
		t.Errorf("ClientURL is %q without Listen; want none", u)
	}
	if a := s.ns.Addr(); a != nil {
		t.Errorf("the server listens on %s without Listen", a)
	}
	nc, err := nats.Connect("", nats.InProcessServer(s.InProcess()), nats.Name("mine"))
	must.OK(t, err)
	defer nc.Close()
	if nc.Opts.Name != "mine" || nc.MaxPayload() != DefaultMaxPayloadBytes {
		t.Errorf("name %q, max payload %d; want mine, %d", nc.Opts.Name, nc.MaxPayload(), DefaultMaxPayloadBytes)
	}
	js, err := jetstream.New(nc)
	must.OK(t, err)
	if _, err := js.AccountInfo(t.Context()); err != nil {
		t.Errorf("JetStream over an in-process connection: %v", err)
	}
}

func TestListenOnFreePort(t *testing.T) {
	s := startServer(t, Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Open: true, ServerName: "other"})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatalf("connect to %s: %v", s.ClientURL(), err)
	}
	defer nc.Close()
	if nc.ConnectedServerName() != "other" {
		t.Errorf("connected to %q; want other", nc.ConnectedServerName())
	}
}

func TestClientURL(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4zero, Port: 4222}
	for host, want := range map[string]string{
		"":          "nats://127.0.0.1:4222",
		"0.0.0.0":   "nats://127.0.0.1:4222",
		"::":        "nats://[::1]:4222",
		"::1":       "nats://[::1]:4222",
		"localhost": "nats://localhost:4222",
		"10.1.2.3":  "nats://10.1.2.3:4222",
	} {
		if got := clientURL(host, addr); got != want {
			t.Errorf("host %q: %s; want %s", host, got, want)
		}
	}
	if got := clientURL("", nil); got != "" {
		t.Errorf("no address: %q; want none", got)
	}
}

func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	addr := taken.Addr().String()
	dir := t.TempDir()
	_, err = Start(t.Context(), Options{StoreDir: dir, Listen: addr, Open: true})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), addr) {
		t.Errorf("error %v; want EADDRINUSE naming %s", err, addr)
	}

	// A failed start holds nothing back.
	must.OK(t, taken.Close())
	startServer(t, Options{StoreDir: dir, Listen: addr, Open: true})
}

// The server says only in its log why it gave up; Start says it to the caller.
func TestStartFailsWithTheServersReason(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "jetstream"), []byte("a file where a directory has to be"), 0o600))
	var log bytes.Buffer
	before := runtime.NumGoroutine()
	_, err := Start(t.Context(), Options{StoreDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "Can't start JetStream") {
		t.Errorf("error %v; want the server's own reason and %s", err, dir)
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the failure is not in the log: %s", log.String())
	}
	waitForGoroutines(t, before)
}

func TestOneServerPerStore(t *testing.T) {
	dir := t.TempDir()
	first := startServer(t, Options{StoreDir: dir})
	link := filepath.Join(t.TempDir(), "link")
	must.OK(t, os.Symlink(dir, link))
	for _, d := range []string{dir, link} {
		s, err := Start(t.Context(), Options{StoreDir: d})
		inUse, ok := errors.AsType[*StoreInUseError](err)
		if !ok {
			s.Shutdown()
			t.Fatalf("second server on %s: error %v; want a StoreInUseError", d, err)
		}
		if inUse.Dir != d || inUse.Holder != strconv.Itoa(os.Getpid()) || !strings.Contains(err.Error(), d) {
			t.Errorf("second server on %s: %v names %q, process %q", d, err, inUse.Dir, inUse.Holder)
		}
	}
	first.Shutdown()
	startServer(t, Options{StoreDir: dir})
}

// Many start on one directory at once: exactly one of them gets it.
func TestStartRace(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	started := make(chan *Server, 8)
	for range cap(started) {
		wg.Go(func() {
			s, err := Start(t.Context(), Options{StoreDir: dir, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				if _, ok := errors.AsType[*StoreInUseError](err); !ok {
					t.Error(err)
				}
				return
			}
			started <- s
		})
	}
	wg.Wait()
	close(started)
	n := 0
	for s := range started {
		n++
		s.Shutdown()
	}
	if n != 1 {
		t.Errorf("%d servers started on one directory; want 1", n)
	}
}

// hold runs a server on dir, stores a message, says so and waits to be killed.
func hold(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	s, err := Start(context.Background(), Options{StoreDir: dir})
	fail(err)
	nc, err := s.Connect()
	fail(err)
	js, err := jetstream.New(nc)
	fail(err)
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}})
	fail(err)
	_, err = js.Publish(context.Background(), "kept", []byte("acknowledged"))
	fail(err)
	fmt.Println("stored")
	time.Sleep(time.Minute)
	os.Exit(1)
}

// A killed server's directory is free at once, and what it acknowledged is there.
func TestKilledServer(t *testing.T) {
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), holdEnv+"="+dir)
	child.Stderr = t.Output()
	out, err := child.StdoutPipe()
	must.OK(t, err)
	must.OK(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "stored\n" {
		t.Fatalf("child says %q, %v", line, err)
	}

	_, err = Start(t.Context(), Options{StoreDir: dir})
	inUse, ok := errors.AsType[*StoreInUseError](err)
	if !ok || inUse.Holder != strconv.Itoa(child.Process.Pid) {
		t.Errorf("beside the child: %v; want a StoreInUseError naming process %d", err, child.Process.Pid)
	}
	must.OK(t, child.Process.Kill())
	if err := child.Wait(); err == nil {
		t.Error("the killed child ended well")
	}

	_, js := connect(t, startServer(t, Options{StoreDir: dir}))
	stream, err := js.Stream(t.Context(), "KEPT")
	must.OK(t, err)
	if msg, err := stream.GetLastMsgForSubject(t.Context(), "kept"); err != nil || string(msg.Data) != "acknowledged" {
		t.Errorf("after the kill: %v, %v", msg, err)
	}
}

func TestShutdownLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	s, err := Start(t.Context(), Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Open: true,
		Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	nc, js := connect(t, s)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "C"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(s.Shutdown) // each returns only when it is over
	}
	wg.Wait()
	if !nc.IsClosed() {
		t.Errorf("a connection of Connect is %s after Shutdown; want it closed", nc.Status())
	}
	if _, err := s.Connect(nats.NoReconnect()); err == nil {
		t.Error("Connect works after Shutdown")
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://")); err == nil {
		t.Errorf("%s still takes connections after Shutdown", s.ClientURL())
	}
	waitForGoroutines(t, before)
}

// waitForGoroutines gives closed connections a moment to end their goroutines.
func waitForGoroutines(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines; want %d:\n%s", runtime.NumGoroutine(), want, buf[:runtime.Stack(buf, true)])
		}
	}
}

// The best of some starts, so that a busy machine does not fail the test. It takes about 2 ms.
func TestStartIsQuick(t *testing.T) {
	const limit = 50 * time.Millisecond
	best := time.Duration(math.MaxInt64)
	for range 20 {
		begin := time.Now()
		s, err := Start(t.Context(), Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Open: true,
			Logger: slog.New(slog.DiscardHandler)})
		must.OK(t, err)
		best = min(best, time.Since(begin))
		s.Shutdown()
		if best < limit {
			t.Logf("started in %s", best)
			return
		}
	}
	t.Errorf("the quickest start took %s; want less than %s", best, limit)
}

func TestLimits(t *testing.T) {
	s := startServer(t, Options{StoreDir: t.TempDir(), MaxStoreBytes: 1 << 20, MaxMemoryBytes: 1 << 19,
		MaxPayloadBytes: 1 << 10})
	nc, js := connect(t, s)
	for storage, fits := range map[jetstream.StorageType]int64{jetstream.FileStorage: 1 << 20,
		jetstream.MemoryStorage: 1 << 19} {
		cfg := jetstream.StreamConfig{Name: "S_" + storage.String(), Subjects: []string{storage.String()},
			Storage: storage, MaxBytes: fits + 1}
		if _, err := js.CreateStream(t.Context(), cfg); err == nil {
			t.Errorf("%s: a stream of %d bytes is accepted; want it refused", storage, cfg.MaxBytes)
		}
		cfg.MaxBytes = fits
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Errorf("%s: a stream of %d bytes: %v", storage, fits, err)
		}
	}
	if err := nc.Publish("x", make([]byte, 1<<10+1)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("publishing past MaxPayloadBytes: %v; want %v", err, nats.ErrMaxPayload)
	}
}

func TestOptionsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		opts Options
		want string
	}{
		{Options{}, "StoreDir"},
		{Options{StoreDir: dir, Listen: "localhost"}, "host:port"},
		{Options{StoreDir: dir, Listen: "localhost:nats"}, "0 (any free one) to 65535"},
		{Options{StoreDir: dir, Listen: "localhost:65536"}, "0 (any free one) to 65535"},
		{Options{StoreDir: dir, MaxStoreBytes: -1}, "MaxStoreBytes"},
		{Options{StoreDir: dir, MaxMemoryBytes: -1}, "MaxMemoryBytes"},
		{Options{StoreDir: dir, MaxPayloadBytes: MaxPayloadBytes + 1}, "MaxPayloadBytes"},
		{Options{StoreDir: dir, ServerName: "two words"}, "server"},
		{Options{StoreDir: filepath.Join(os.Args[0], "in-a-file")}, "store directory"},
	} {
		s, err := Start(t.Context(), c.opts)
		if err == nil {
			s.Shutdown()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v; want one about %q", c.opts, err, c.want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("changed my mind"))
	if _, err := Start(ctx, Options{StoreDir: dir}); err == nil || !strings.Contains(err.Error(), "changed my mind") {
		t.Errorf("start with a canceled context: %v; want its cause", err)
	}
	// The largest payload that is allowed is one that the server takes.
	startServer(t, Options{StoreDir: dir, MaxPayloadBytes: MaxPayloadBytes})
}

func TestLogLevels(t *testing.T) {
	var buf bytes.Buffer
	l := &logAdapter{log: slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	l.Noticef("  %s", "notice")
	l.Warnf("warning")
	l.Errorf("error %d", 1)
	l.Debugf("debug")
	l.Tracef("trace")
	l.Fatalf("fatal %d", 1)
	l.Fatalf("fatal %d", 2)
	for _, want := range []string{"level=DEBUG msg=notice", "level=WARN msg=warning", `level=ERROR msg="error 1"`,
		`level=ERROR msg="fatal 1"`} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, buf.String())
		}
	}
	if n := strings.Count(buf.String(), "\n"); n != 5 {
		t.Errorf("%d lines; want 5 (no debug, no trace):\n%s", n, buf.String())
	}
	if l.firstFatal() != "fatal 1" {
		t.Errorf("first fatal message is %q", l.firstFatal())
	}
}
