package natsbroker

import "github.com/toolyard/toolyard/internal/broker"

// Index is the index of batches.
func (b *Broker) Index() broker.Index {
	return keyIndex{publish: b.publish, stream: b.streams[streamIndex], kept: b.listed}
}
