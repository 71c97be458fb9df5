//go:build unix

// Command ledgerworker is a worker of the fault tests: a program of its own with tools that write down what they do,
// and some that do what no tool should.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/background"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/worker"
)

func main() {
	url := flag.String("nats", "", "the NATS system")
	path := flag.String("ledger", "", "the ledger's file")
	pool := flag.String("pool", "ledger", "the pool")
	slots := flag.Int("read-slots", 0, "READ_ONLY calls that run at a time")
	deadly := flag.Bool("deadly", false, "offer the tools that end their worker, and no others")
	grace := flag.Duration("grace", time.Second, "how long running calls may go on when it is to end")
	flag.Parse()
	if err := run(*url, *path, toolyard.Pool(*pool), *slots, *deadly, *grace); err != nil {
		fmt.Fprintln(os.Stderr, "ledgerworker:", err)
		os.Exit(1)
	}
}

func run(url, path string, pool toolyard.Pool, slots int, deadly bool, grace time.Duration) error {
	l, err := ledger.Open(path)
	if err != nil {
		return err
	}
	tools, err := toolsOn(l, deadly)
	if err != nil {
		return err
	}
	tools = append(tools, background.Tools()...)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	creds, err := natsd.FindCreds(filepath.Join(os.Getenv("TOOLYARD_DATA"), "creds"),
		access.Principal{Role: access.Worker, Name: string(pool)})
	var opts []nats.Option
	if err == nil {
		opts = append(opts, nats.UserCredentials(creds))
	} else if !errors.Is(err, fs.ErrNotExist) { // a server that is alone asks for none
		return err
	}
	nc, err := worker.Connect(ctx, url, log, opts...)
	if err != nil {
		return err
	}
	defer nc.Close()
	return worker.Run(ctx, nc, worker.Options{
		Pool: pool, Tools: tools, Mode: "bypass", ReadSlots: slots, DrainGrace: grace, Log: log,
		Ready: func(id string) {
			if _, err := fmt.Println("id: " + id); err != nil {
				log.Error("nobody hears that it is ready", "error", err)
			}
		},
	})
}
