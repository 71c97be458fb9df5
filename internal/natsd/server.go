package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/access"
)

// readyWait bounds the wait for a server whose start has already returned without complaint.
const readyWait = 5 * time.Second

// tlsTimeout bounds the handshake with a client.
const tlsTimeout = 5 * time.Second

// Server is a running nats-server. Its methods may be used from many goroutines.
type Server struct {
	so     server.Options // with the port that was given
	url    string
	dir    string
	log    *slog.Logger
	lock   *flock.Flock
	places []*os.File // the directories that must stay what they are
	stop   sync.Once

	access *accounts // nil: whoever reaches the server may do everything

	mu    sync.Mutex
	ns    *server.Server // nil while it is started again
	room  Room
	down  bool
	conns []*nats.Conn // those of Connect, so that Shutdown can close them
}

// Start locks the store directory, recovers what is in it and serves clients. It takes milliseconds on an empty
// store, about a second for each million subjects. ctx bounds only the start: it is looked at before and after the
// recovery, which cannot be interrupted. The caller owns the server and calls [Server.Shutdown].
//
// The error is a [*StoreInUseError] when another server lives in the directory, and names the address, and wraps
// [syscall.EADDRINUSE], when that is taken. Trying again makes sense for both, once whoever holds it is gone.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if err := opts.normalize(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("natsd: start: %w", context.Cause(ctx))
	}
	lock, err := lockStore(opts.StoreDir)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, opts, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// start does what Start does, in a directory that is locked.
func start(ctx context.Context, opts Options, lock *flock.Flock) (*Server, error) {
	s := &Server{dir: opts.StoreDir, log: opts.Logger, lock: lock}
	s.so = server.Options{
		ServerName:         opts.ServerName,
		DontListen:         opts.Listen == "",
		NoSigs:             true, // else it traps the process's signals
		MaxPayload:         int32(opts.MaxPayloadBytes),
		JetStream:          true,
		StoreDir:           opts.StoreDir,
		JetStreamMaxStore:  opts.MaxStoreBytes,
		JetStreamMaxMemory: opts.MaxMemoryBytes,
		SyncInterval:       SyncInterval,
		SyncAlways:         opts.SyncAlways,
	}
	if opts.TLS != nil {
		s.so.TLSConfig, s.so.TLS, s.so.TLSTimeout = opts.TLS, true, float64(tlsTimeout/time.Second)
	}
	if opts.Access != nil {
		var err error
		if s.access, err = opts.Access.open(opts.StoreDir, opts.Logger); err != nil {
			return nil, err
		}
		if err := s.access.apply(&s.so); err != nil {
			return nil, err
		}
	}
	if opts.Listen != "" {
		host, port, err := splitListen(opts.Listen)
		if err != nil {
			return nil, err
		}
		s.so.Host, s.so.Port = host, port
		if port == 0 {
			s.so.Port = server.RANDOM_PORT
		} else if err := probe(opts.Listen); err != nil {
			return nil, err
		}
	}
	ns, err := s.boot()
	if err == nil && ctx.Err() != nil {
		end(ns)
		err = fmt.Errorf("natsd: start: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	s.ns, s.url = ns, clientURL(s.so.Host, ns.Addr())
	if at, ok := ns.Addr().(*net.TCPAddr); ok {
		s.so.Port = at.Port // where its clients come back to when it is started again
	}
	if err := s.survey(opts.Reserve); err != nil {
		end(ns)
		return nil, err
	}
	return s, nil
}

// boot starts a nats-server on the store. It returns when the server is ready, or gave up.
func (s *Server) boot() (*server.Server, error) {
	so := s.so
	ns, err := server.NewServer(&so)
	if err != nil {
		return nil, fmt.Errorf("natsd: configure the server: %w", err)
	}
	logs := &logAdapter{log: s.log.With("component", "nats-server")}
	ns.SetLoggerV2(logs, false, false, false)
	ns.Start() // returns when started, or when it gave up
	switch {
	case logs.firstFatal() != "":
		err = fmt.Errorf("natsd: start with store directory %s: %s", s.dir, logs.firstFatal())
	case !ns.ReadyForConnections(readyWait):
		err = fmt.Errorf("natsd: start with store directory %s: not ready after %s; its log says why", s.dir, readyWait)
	default:
		err = recovered(ns, s.dir)
	}
	if err != nil {
		end(ns)
		return nil, err
	}
	return ns, nil
}

// end stops a nats-server and waits until it is gone.
func end(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

// probe takes the address and gives it back: the server itself would find it taken only after the recovery, and tell
// its log only.
func probe(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("natsd: cannot listen on %s; free it, name another address, or port 0 for any free one: %w",
			addr, err)
	}
	return l.Close()
}

// ClientURL is where clients on this machine connect, such as "nats://127.0.0.1:4222"; empty when the server has no
// address.
func (s *Server) ClientURL() string { return s.url }

// clientURL takes the host as it was asked for, and the port as it was given.
func clientURL(host string, addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip.Equal(net.IPv4zero):
		host = "127.0.0.1" // every interface: a client needs one
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return (&url.URL{Scheme: "nats", Host: net.JoinHostPort(host, strconv.Itoa(tcp.Port))}).String()
}

// InProcess connects clients without a socket: nats.Connect("", nats.InProcessServer(s.InProcess())). Whoever connects
// so closes the connection before Shutdown, or it tries to reconnect; [Server.Connect] takes care of that.
func (s *Server) InProcess() nats.InProcessConnProvider { return inProcess{s} }

// inProcess connects to the nats-server that runs now.
type inProcess struct{ s *Server }

func (p inProcess) InProcessConn() (net.Conn, error) {
	p.s.mu.Lock()
	ns := p.s.ns
	p.s.mu.Unlock()
	if ns == nil {
		return nil, errors.New("natsd: connect in process: the server does not run now")
	}
	return ns.InProcessConn()
}

// Connect connects a client inside this process, without a socket, and with all rights. The caller may close the
// connection; Shutdown closes what is still open.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	opts = append(slices.Clip(opts), nats.InProcessServer(s.InProcess()))
	if s.access != nil {
		opts = append(opts, nats.UserCredentials(CredsFile(s.access.Dir, access.Principal{Role: access.Dispatcher},
			true)))
	}
	nc, err := nats.Connect("", opts...)
	if err != nil {
		return nil, fmt.Errorf("natsd: connect in process: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		nc.Close()
		return nil, errors.New("natsd: connect in process: the server is shut down")
	}
	s.conns = append(slices.DeleteFunc(s.conns, (*nats.Conn).IsClosed), nc)
	return nc, nil
}

// Shutdown closes the connections of [Server.Connect], stops the server, waits until it is gone and gives the store
// directory back. Called again, it waits for the first call. [Server.Keep] has returned before.
func (s *Server) Shutdown() {
	s.stop.Do(func() {
		s.mu.Lock()
		s.down = true
		conns, ns := s.conns, s.ns
		s.conns, s.ns = nil, nil
		s.mu.Unlock()
		for _, nc := range conns {
			nc.Close()
		}
		if ns != nil {
			end(ns)
		}
		var err error
		for _, place := range s.places {
			err = errors.Join(err, place.Close())
		}
		if err = errors.Join(err, s.lock.Close()); err != nil {
			s.log.Error("natsd: give back the store directory", "dir", s.dir, "error", err)
		}
	})
}
