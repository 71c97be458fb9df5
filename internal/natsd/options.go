package natsd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"
)

// The limits of the embedded server.
const (
	// DefaultMaxStoreBytes bounds what all streams on disk hold together, and the archive beside them.
	DefaultMaxStoreBytes = 40 << 30
	// NoStoreLimit, as [Options.MaxStoreBytes], leaves it to the streams how large they are.
	NoStoreLimit = 1 << 62
	// DefaultMaxMemoryBytes bounds what all streams in memory hold together.
	DefaultMaxMemoryBytes = 256 << 20
	// DefaultMaxPayloadBytes bounds one message. Past it, data travels as an object with a reference.
	DefaultMaxPayloadBytes = 2 << 20
	// MaxPayloadBytes is the most that [Options.MaxPayloadBytes] may be: the server buffers this much for a client
	// before it calls the client slow.
	MaxPayloadBytes = 64 << 20
	// SyncInterval is the time between two writes through to the disk when [Options.SyncAlways] is off.
	SyncInterval = 2 * time.Minute

	// DefaultServerName names the server in its log and to its clients.
	DefaultServerName = "toolyard"
)

// Options say how the embedded server runs. Only StoreDir is required.
type Options struct {
	// StoreDir holds the streams. It is created when missing (for this user only) and belongs to this server alone.
	// There is no default: a shared one would mix up two servers' streams.
	StoreDir string
	// Listen is the TCP address for clients, "host:port". Empty means no address: only this process can connect.
	// Port 0 takes a free one, see [Server.ClientURL]. An empty host means every interface of the machine.
	Listen string
	// Access says who may connect. Nil means that nobody is asked: whoever reaches the server may do everything, so
	// that is for servers without an address, and for tests, which set Open.
	Access *Access
	// Open allows an address without Access.
	Open bool
	// TLS is what the server speaks on its address. Nil means plain text.
	TLS *tls.Config
	// SyncAlways writes each message through to the disk before it is acknowledged: it survives a power loss, at
	// about a millisecond each.
	SyncAlways bool
	// MaxStoreBytes bounds the streams on disk; 0 means [DefaultMaxStoreBytes]. Streams reserve from it what they
	// may grow to, so it is at least the sum of their own limits.
	MaxStoreBytes int64
	// MaxMemoryBytes bounds the streams in memory; 0 means [DefaultMaxMemoryBytes].
	MaxMemoryBytes int64
	// MaxPayloadBytes bounds one message; 0 means [DefaultMaxPayloadBytes], the most is [MaxPayloadBytes].
	MaxPayloadBytes int64
	// Reserve is how many bytes of the disk under StoreDir are kept for what is under way: [Server.Room] says when it
	// is touched. 0 means a hundredth of the disk, between [MinReserve] and [MaxReserve]. A negative one keeps nothing,
	// and the disk is not looked at: all streams are in memory.
	Reserve int64
	// ServerName; empty means [DefaultServerName].
	ServerName string
	// Logger gets the server's log: its errors and warnings as such, its notices as debug. Nil means [slog.Default].
	Logger *slog.Logger
}

// normalize checks the options and fills in what was left out.
func (o *Options) normalize() error {
	if o.StoreDir == "" {
		return errors.New("natsd: StoreDir is empty; name a directory that this server has to itself")
	}
	if o.Listen != "" {
		if _, _, err := splitListen(o.Listen); err != nil {
			return err
		}
		if o.Access == nil && !o.Open {
			return fmt.Errorf("natsd: the server would listen on %s and ask nobody for credentials; set Access, or "+
				"Open", o.Listen)
		}
	}
	for _, n := range []struct {
		name       string
		value      *int64
		preset     int64
		upperBound int64
	}{
		{"MaxStoreBytes", &o.MaxStoreBytes, DefaultMaxStoreBytes, NoStoreLimit},
		{"MaxMemoryBytes", &o.MaxMemoryBytes, DefaultMaxMemoryBytes, 1 << 62},
		{"MaxPayloadBytes", &o.MaxPayloadBytes, DefaultMaxPayloadBytes, MaxPayloadBytes},
	} {
		switch {
		case *n.value < 0 || *n.value > n.upperBound:
			return fmt.Errorf("natsd: %s is %d; use 1 to %d, or 0 for %d", n.name, *n.value, n.upperBound, n.preset)
		case *n.value == 0:
			*n.value = n.preset
		}
	}
	if o.ServerName == "" {
		o.ServerName = DefaultServerName
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}

func splitListen(listen string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("natsd: Listen is %q; use host:port, or nothing to serve this process only: %w",
			listen, err)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("natsd: Listen is %q; its port is a number from 0 (any free one) to 65535", listen)
	}
	return host, port, nil
}
