package testenv

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// Guarded starts a nats-server that asks for credentials, as the commands start it, and stops it with the test.
func Guarded(t testing.TB) *natsd.Server {
	t.Helper()
	dir := StoreDir(t)
	s, err := natsd.Start(t.Context(), natsd.Options{
		StoreDir: dir, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Access: &natsd.Access{Dir: filepath.Join(dir, "creds"), Exports: natsbroker.Exports(),
			Grants: natsbroker.Grants},
	})
	must.OK(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

// ConnAs is a connection to a guarded server with credentials of a principal, closed with the test.
func ConnAs(t testing.TB, s System, p access.Principal) *nats.Conn {
	t.Helper()
	dir, _ := s.Creds()
	creds, err := natsd.FindCreds(dir, p)
	must.OK(t, err)
	_, opts := settings(t, s)
	opts = append(opts, nats.UserCredentials(creds), nats.Timeout(readyWait))
	nc, err := nats.Connect(s.ClientURL(), append(natsbroker.ConnectOptions("test", slog.New(slog.DiscardHandler)),
		opts...)...)
	must.OK(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// BrokerAs is a broker of a principal on a guarded server. One of the platform makes the streams; others find them.
func BrokerAs(t testing.TB, s System, p access.Principal, source string) *natsbroker.Broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc := ConnAs(t, s, p)
	if p.Platform() {
		with, _ := settings(t, s)
		b, err := natsbroker.Open(ctx, nc, with, source)
		must.OK(t, err)
		return b
	}
	b, err := natsbroker.Join(ctx, nc, source, nil)
	must.OK(t, err)
	return b
}
