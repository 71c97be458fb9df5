package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/replay"
)

// Limits of the logs that are kept for people who look at batches.
const (
	// MaxLogs is how many logs are kept, and maxLogsBytes how long they may be together. One that nobody has asked for
	// in logAge is not kept.
	MaxLogs      = 64
	maxLogsBytes = 64 << 20
	logAge       = 5 * time.Minute
)

// Logs keeps the logs of batches that people look at. A second look reads only what is new, and a look at an earlier
// event reads nothing. It is safe for concurrent use.
type Logs struct {
	reader *Reader
	turns  *turns[toolyard.BatchKey]

	mu    sync.Mutex
	kept  map[toolyard.BatchKey]*keptLog
	bytes int
}

// keptLog is one log. Whoever has the turn of its batch may use it; bytes and used are guarded by the mutex of Logs.
type keptLog struct {
	events []replay.Event
	words  []replay.Step
	now    replay.Replay
	at     From
	size   int

	// past is a fold of the first pastAt events.
	past   replay.Replay
	pastAt int

	bytes int
	used  time.Time
}

// NewLogs returns an empty Logs that reads through r.
func NewLogs(r *Reader) *Logs {
	return &Logs{reader: r, turns: newTurns[toolyard.BatchKey](1), kept: map[toolyard.BatchKey]*keptLog{}}
}

// Look reads what is new in the log of a batch, and calls use with a fold of its first at events and with all events in
// words. With at 0, and past the end, the fold has all events. use must not keep what it gets. The error wraps
// [broker.ErrNoBatch] if there is no such batch.
func (l *Logs) Look(ctx context.Context, k toolyard.BatchKey, at int,
	use func(fold *replay.Replay, events []replay.Step) error) error {
	done, err := l.turns.take(ctx, k)
	if err != nil {
		return err
	}
	defer done()
	log := l.find(k)
	defer func() { l.keep(k, log) }()
	for stored, err := range l.reader.Events(ctx, k, log.at, false, nil) {
		if err != nil {
			return err
		}
		for _, e := range stored {
			log.add(e)
		}
	}
	fold := &log.now
	if at > 0 && at < len(log.events) {
		fold = log.until(at)
	}
	return use(fold, log.words)
}

// add adds the next event. The fold keeps what contradicts itself, and goes no further.
func (k *keptLog) add(e Event) {
	event := replay.Event{Record: e.Record, Meta: e.Meta}
	k.events = append(k.events, event)
	_ = k.now.Add(event) // a reader of the fold is told
	word := k.now.Words(event)
	word.Event = len(k.events)
	k.words = append(k.words, word)
	k.at, k.size = From{After: e.At, Resumed: true}, k.size+len(e.Data)
}

// until folds the first at events.
func (k *keptLog) until(at int) *replay.Replay {
	if k.pastAt > at {
		k.past, k.pastAt = replay.Replay{}, 0
	}
	for ; k.pastAt < at; k.pastAt++ {
		_ = k.past.Add(k.events[k.pastAt]) // as in add
	}
	return &k.past
}

func (l *Logs) find(k toolyard.BatchKey) *keptLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	if log := l.kept[k]; log != nil {
		return log
	}
	return &keptLog{}
}

// keep keeps a log that was just used, and forgets others that are too many, too long or too old.
func (l *Logs) keep(k toolyard.BatchKey, log *keptLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += log.size - log.bytes
	log.bytes, log.used = log.size, time.Now()
	l.kept[k] = log
	for _, other := range l.oldest() {
		log := l.kept[other]
		if len(l.kept) <= MaxLogs && l.bytes <= maxLogsBytes && time.Since(log.used) < logAge {
			break
		}
		delete(l.kept, other)
		l.bytes -= log.bytes
		log.bytes = 0 // who still uses it adds it again
	}
}

// oldest are the batches of the logs that are kept, the one that was used longest ago first.
func (l *Logs) oldest() []toolyard.BatchKey {
	keys := make([]toolyard.BatchKey, 0, len(l.kept))
	for k := range l.kept {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b toolyard.BatchKey) int { return l.kept[a].used.Compare(l.kept[b].used) })
	return keys
}
