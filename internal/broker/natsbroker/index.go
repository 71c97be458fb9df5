package natsbroker

import "github.com/toolyard/toolyard/internal/broker"

// Index is the index of batches.
func (b *Broker) Index() broker.Index {
	if b.one {
		return b.keyIndex()
	}
	return indexOfAll{b}
}

// keyIndex is the index of this broker's shard.
func (b *Broker) keyIndex() keyIndex {
	return keyIndex{out: b.out, publish: b.publish, stream: b.streams[streamIndex], kept: b.listed}
}
