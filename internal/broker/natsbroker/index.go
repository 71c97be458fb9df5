package natsbroker

import "github.com/toolyard/toolyard/internal/broker"

// Index is the index of batches.
func (b *Broker) Index() broker.Index {
	if b.several() {
		return indexOfAll{b}
	}
	return keyIndex{out: b.out, publish: b.publish, stream: b.streams[streamIndex], kept: b.listed}
}
