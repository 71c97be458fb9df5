package natsbroker

import "github.com/toolyard/toolyard/internal/broker"

const (
	// MaxEntryBytes is how long the entry of one worker in the registry may be.
	MaxEntryBytes = 256 << 10
	// poolShare is which part of the registry the workers of one pool may fill: one of so many.
	poolShare = 8
	// minPoolBytes is what they may fill where the registry is small.
	minPoolBytes = 1 << 20
)

// crowded is why a beat of a worker is not stored; "" if it is. The workers of a pool share what they may fill: a pool
// could keep those of all others from saying that they live otherwise. One that is there with an entry as long stays.
func (d *Answerer) crowded(w *broker.Worker, bytes int, live []broker.Worker) string {
	if bytes > MaxEntryBytes {
		return "its entry in the registry would be too long"
	}
	room := int(max(minPoolBytes, smallBytes(d.b.Settings())/poolShare)) - entryBytes(w)
	for i := range live {
		switch other := &live[i]; {
		case other.Pool != w.Pool:
		case other.ID == w.ID && entryBytes(other) >= entryBytes(w):
			return ""
		case other.ID != w.ID:
			room -= entryBytes(other)
		}
	}
	if room < 0 {
		return "the workers of the pool fill their part of the registry"
	}
	return ""
}

// entryBytes is about how long a worker's entry is.
func entryBytes(w *broker.Worker) int {
	const fields, each = 600, 8 // the names of all fields, and what stands around a text
	n := fields + len(w.ID) + len(w.Pool) + len(w.Isolation) + len(w.NoIsolation) + len(w.Toolset) + len(w.Host) +
		len(w.Version)
	for _, c := range w.Classes {
		n += each + len(c)
	}
	for _, name := range w.Workspaces {
		n += each + len(name)
	}
	for _, tag := range w.Tags {
		n += each + len(tag)
	}
	for _, r := range w.Remarks {
		n += 5*each + len(r.Tool) + len(r.Why)
	}
	for name := range w.Breakers {
		n += 5*each + len(name)
	}
	return n + each*len(w.Only)
}
