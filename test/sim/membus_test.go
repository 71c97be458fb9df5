package sim

import (
	"bytes"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard/internal/broker/membroker"
)

// memBus is the server in memory. Each step of it happens at an instant of its own, so that no two timers that two
// steps began are due at one instant: the runtime fires such timers in any order.
type memBus struct {
	nats  *membroker.Server
	steps int
	rand  *rand.Rand
	// before is called before each step, while nothing runs.
	before func()
}

func newMemBus(seed uint64) *memBus {
	return &memBus{rand: rand.New(rand.NewPCG(seed, hashOf("latency"))), before: func() {}}
}

// start starts the server, which tells of each step.
func (b *memBus) start(w *world, opt options) {
	keeping, accounts := newKeeping(w), newAccounts(w)
	w.settled = keeping.settled
	b.before = func() {
		keeping.before()
		accounts.before()
		if w.fate != nil {
			w.fate.before()
			w.stage.before()
		}
	}
	b.nats = membroker.New(membroker.Options{
		Seed:   w.seed + 1, // 0 is no seed
		Settle: b.settle, Unfenced: opt.refused,
		Indirect: w.seed%3 == 0, // as where there are replicas
		Trace: func(s membroker.Step) {
			b.steps++
			w.note(s.Party, "%d %s %s", s.Conn, s.Kind, s.What)
			what := inFirst(s.What)
			keeping.step(what)
			accounts.step(what)
			if w.fate != nil {
				w.fate.step(s.Party, what)
				w.stage.step(s.Party, what)
			}
		},
		Lens: w.lens,
		Fail: func(err error) { w.fail("server", "%v", err) },
	})
	if w.ahead = w.drawAhead(); w.ahead != 0 {
		b.nats.SetClock(w.ahead)
	}
}

// drawAhead draws by how much the server's clock is ahead of everybody's: by something in one history of six.
func (w *world) drawAhead() time.Duration {
	d := draws{w.random("clock")}
	if !d.one(6) {
		return 0
	}
	ahead := pick(d, []time.Duration{2 * time.Second, time.Minute, 40 * time.Hour}) + d.between(0, time.Second)
	if d.one(2) {
		return -ahead
	}
	return ahead
}

// unsure is by how much somebody may be wrong about the server's clock: by as much as an answer takes, of those that
// count.
func (w *world) unsure() time.Duration {
	if w.ahead == 0 {
		return 0
	}
	return 2 * time.Second
}

// lens is that of [membroker.Options].
func (w *world) lens(party string, sent bool, subject string, hdr, data []byte) ([]byte, []byte) {
	if sent {
		w.stage.sends(hdr, data)
	}
	return w.versions.lens(party, sent, subject, hdr, data)
}

// settle waits until nothing runs, for as long as a step takes.
func (b *memBus) settle() {
	synctest.Wait()
	b.before()
	time.Sleep(time.Duration(20_000 + b.rand.IntN(180_000)))
	synctest.Wait()
}

func (b *memBus) server() *membroker.Server { return b.nats }

func (b *memBus) dial(party string) (net.Conn, error) { return b.nats.Dial(party).InProcessConn() }

// names gives random names numbers, in the order in which they are seen.
type names struct{ known map[string]int }

// Lengths of random names: those of package nuid, those of consumers that watch a bucket, UUIDs, and SHA-256 sums of
// what has random names in it, such as an object of the archive.
const nuidBytes, watchBytes, uuidBytes, sumBytes = 22, 8, 36, 64

// replace replaces the random names in a text. It is hand-made, since it sees every step: a regular expression takes
// longer than most steps.
func (n *names) replace(text string) string {
	var out []byte
	word, done, bucket := 0, 0, false // where this word begins, what is in out, and whether the last word was a bucket
	for i := 0; i <= len(text); i++ {
		if i < len(text) && (isWord(text[i]) || text[i] == '-' && i-word < uuidBytes) {
			continue
		}
		if w := text[word:i]; drawn(w, bucket) {
			if n.known[w] == 0 {
				n.known[w] = len(n.known) + 1
			}
			out = strconv.AppendInt(append(append(out, text[done:word]...), '#'), int64(n.known[w]), 10)
			done = i
		}
		bucket = strings.HasPrefix(text[word:i], "KV_ty") || strings.HasPrefix(text[word:i], "OBJ_ty")
		word = i + 1
	}
	if done == 0 {
		return text
	}
	return string(append(out, text[done:]...))
}

// drawn reports whether a word is a random name.
func drawn(word string, bucket bool) bool {
	switch len(word) {
	case watchBytes:
		return bucket
	case nuidBytes:
		return !strings.ContainsAny(word, "_-")
	case sumBytes:
		return strings.Trim(word, "0123456789abcdef") == ""
	case uuidBytes:
		return strings.Count(word, "-") == 4 && word[8] == '-' && word[13] == '-' && word[18] == '-' && word[23] == '-'
	}
	return false
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// linger is longer than anything lasts that a process which has ended leaves behind.
const linger = 5 * time.Minute

// inMemory plays one history in a bubble.
func inMemory(t *testing.T, seed uint64, opt options) (r *report) {
	t.Helper()
	bubble := membroker.Bubble
	if isSteady { // then the process plays nothing but histories
		bubble = membroker.BubbleOfMany
	}
	bubble(t, func(t *testing.T) {
		b := newMemBus(seed)
		w := newWorld(seed, b, opt)
		b.start(w, opt)
		r = w.play(opt)
		b.nats.Close()
		// what a process leaves to its timers is over then; what is not is a leak, and fails the bubble
		time.Sleep(linger)
		r.steps = b.steps
	})
	return r
}

// TestSeed plays one history and draws it. With -compare it plays it twice, and shows where the two part.
func TestSeed(t *testing.T) {
	if !isSteady && !isRaced {
		if err := again(t, t.Output(), built(t, "steady"), t.Name(), "-test.v"); err != nil {
			t.Error(err)
		}
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if *both {
		compare(t, *seed)
		return
	}
	// what is written while a history is played gives the processor away, and so changes the order of its goroutines
	var out bytes.Buffer
	defer func() { t.Log(out.String()) }()
	r := inMemory(t, *seed, options{calm: *calm, about: about(), attack: attacks(), trace: &out})
	t.Logf("%d steps, %s, hash %s", r.steps, r.took, r.hash)
	if len(r.problems) > 0 {
		t.Error(r)
	}
}
