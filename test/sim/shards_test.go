package sim

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/shard"
)

// maxShards is how many shards a history has at most. With few batches there are shards of several and of none.
const maxShards = 3

// divide has a system of several shards in some histories, whose parties are all of one version. In others it gets them
// while it is used.
func (d draws) divide(sc *scenario) {
	sc.shards = 1
	if sc.focus == upgrades {
		return
	}
	switch d.IntN(36) {
	case 0, 1, 2:
		sc.shards = 2 + d.IntN(maxShards-1)
	case 3: // a raise is announced for a minute, which takes as long to play as the rest
		sc.shards = 1 + d.IntN(2)
		sc.raised = sc.shards + 1 + d.IntN(maxShards-sc.shards)
		sc.lead = d.between(0, 6*time.Second)
	}
}

// count is how many shards there are in the end.
func (sc *scenario) count() int { return max(sc.shards, sc.raised, 1) }

// settings are those of one node, as they are, with the shards of a scenario.
func (sc *scenario) settings() broker.Settings {
	s := settings
	if sc.raised == 0 {
		s.Shards = sc.shards
	}
	return s
}

// raise is the process of an operator who gives the system more shards. Who goes on behind one that has ended knows
// when the new number was announced.
func raise(p *party) error {
	nc, err := p.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	w := p.w
	announced := shard.Grace - w.sinceAnnounced()
	_, _, err = natsbroker.Raise(p.ctx, nc, broker.Settings{Shards: w.sc.raised}, max(0, announced),
		w.raising)
	return err
}

// raising takes in how far a raise is.
func (w *world) raising(r natsbroker.Raising) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Map.Next == 0 {
		return
	}
	if w.announced.IsZero() {
		w.announced = time.Now()
	}
	if shard.Grace-time.Since(w.announced) <= w.sc.lead {
		w.nearly()
	}
}

// sinceAnnounced is how long the new number of shards has been announced; 0 if it is not.
func (w *world) sinceAnnounced() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.announced.IsZero() {
		return 0
	}
	return time.Since(w.announced)
}

// startRaise starts a raise, if there is to be one, and waits until the new shards are nearly used.
func (w *world) startRaise() *machine {
	if w.sc.raised == 0 {
		return nil
	}
	near := make(chan struct{})
	w.nearly = sync.OnceFunc(func() { close(near) })
	m := w.add("raiser", raise)
	select {
	case <-near:
	case <-w.broken:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opens = w.now()
	w.quietAt += w.opens
	return m
}

// shardOf is the shard in which a batch is; 0 while it is in none.
func (w *world) shardOf(k toolyard.BatchKey) int {
	for n := range w.sc.count() {
		m := w.bus.server().Last(nameIn(n, "TY_BATCH"), nameIn(n, "ty.batch.")+broker.KeyTokens(k))
		if m != nil && !strings.Contains(string(m.Header), headerType+string(events.BatchMoved)+"\r\n") {
			return n
		}
	}
	return 0
}

// inOne are the streams that are in the first shard only.
var inOne = map[string]bool{"KV_ty_worker": true, "KV_ty_session": true}

// streams are some streams in each shard.
func (sc *scenario) streams(names ...string) (out []string) {
	for n := range sc.count() {
		for _, name := range names {
			if n == 0 || !inOne[name] {
				out = append(out, nameIn(n, name))
			}
		}
	}
	return out
}

// nameIn is the name of a stream, or the beginning of a subject, in a shard.
func nameIn(n int, name string) string {
	if n == 0 {
		return name
	}
	i := strings.Index(strings.ToLower(name), "ty") + len("ty")
	return name[:i] + strconv.Itoa(n) + name[i:]
}

// ofShard is what tells the name of a stream or subject from that in the first shard.
var ofShard = regexp.MustCompile(`((?:^|[^A-Za-z])(?:TY|ty|KV_ty|OBJ_ty))[0-9]+([._])`)

// inFirst is a text with the names of the first shard.
func inFirst(text string) string {
	if !strings.Contains(text, "TY1_") && !strings.Contains(text, "ty1") && !strings.Contains(text, "TY2_") &&
		!strings.Contains(text, "ty2") {
		return text
	}
	return ofShard.ReplaceAllString(text, "$1$2")
}
