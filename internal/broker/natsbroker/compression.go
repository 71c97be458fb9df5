package natsbroker

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
)

// compresses is the oldest nats-server whose compression is relied on. Earlier ones could bring back a purged block
// (nats-server pull request 8239) or damage one that a follower compacts (8312).
var compresses = [3]int{2, 15, 2}

// compression is that of the streams that keep much for long. A server compresses a block when it is full, and counts
// the bytes before compression. Streams in memory have none.
func compression(s broker.Settings) jetstream.StoreCompression {
	if s.Compression == broker.CompressionS2 && !s.InMemory {
		return jetstream.S2Compression
	}
	return jetstream.NoCompression
}

// mayCompress returns an error if the settings ask for compression and the server is one whose compression is not
// relied on. It sees the server of this connection only.
func (b *Broker) mayCompress(s broker.Settings) error {
	has := b.nc.ConnectedServerVersion()
	if s.Compression != broker.CompressionS2 || reliedOn(has) {
		return nil
	}
	return fmt.Errorf("store-compression: the NATS server has version %q, and compressed streams need %d.%d.%d or later "+
		"on every server: earlier ones can lose messages of them", has, compresses[0], compresses[1], compresses[2])
}

// reliedOn reports whether a server of that version may compress. One whose version cannot be read may not.
func reliedOn(version string) bool {
	var v [3]int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return false
	}
	return slices.Compare(v[:], compresses[:]) >= 0
}
