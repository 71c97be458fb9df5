//go:build unix

// Command natsnode is a NATS server of the fault tests: a process that can be killed. Alone it is the server that the
// dispatcher embeds; with --cluster it is a node of a cluster on this machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/toolyard/toolyard/internal/natsd"
)

func main() {
	name := flag.String("name", "node", "the server's name")
	store := flag.String("store", "", "where it keeps its streams")
	listen := flag.String("listen", "127.0.0.1:0", "where clients connect")
	cluster := flag.String("cluster", "", "where other nodes connect; empty: it is alone")
	routes := flag.String("routes", "", "the URLs of the other nodes, with commas between")
	advertise := flag.String("advertise", "", "the address that other nodes are told to connect to; empty: --cluster")
	sync := flag.Bool("sync-always", false, "write each message through to the disk")
	flag.Parse()
	url, err := start(*name, *store, *listen, *cluster, *routes, *advertise, *sync)
	if err == nil {
		_, err = fmt.Println("nats: " + url)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "natsnode:", err)
		os.Exit(1)
	}
	select {} // until it is killed
}

// start starts the server, and returns where clients connect.
func start(name, store, listen, cluster, routes, advertise string, sync bool) (url string, err error) {
	if cluster != "" {
		s, err := node(name, store, listen, cluster, routes, advertise, sync)
		if err != nil {
			return "", err
		}
		return s.ClientURL(), nil
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := natsd.Start(context.Background(), natsd.Options{StoreDir: store, Listen: listen, Open: true, Logger: log,
		SyncAlways: sync})
	if err != nil {
		return "", err
	}
	return s.ClientURL(), nil
}

func node(name, store, listen, cluster, routes, advertise string, sync bool) (*server.Server, error) {
	host, port, err := split(listen)
	if err != nil {
		return nil, err
	}
	clusterHost, clusterPort, err := split(cluster)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: name, Host: host, Port: port, NoSigs: true, JetStream: true, StoreDir: store,
		JetStreamMaxStore: natsd.DefaultMaxStoreBytes, JetStreamMaxMemory: natsd.DefaultMaxMemoryBytes,
		MaxPayload: natsd.DefaultMaxPayloadBytes, SyncInterval: natsd.SyncInterval,
		SyncAlways: sync,
		Cluster:    server.ClusterOpts{Name: "faults", Host: clusterHost, Port: clusterPort, Advertise: advertise},
		Routes:     server.RoutesFromStr(routes),
	})
	if err != nil {
		return nil, err
	}
	s.ConfigureLogger()
	go s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return nil, errors.New("it does not serve clients after 20 s")
	}
	return s, nil
}

func split(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(p)
	return host, port, err
}
