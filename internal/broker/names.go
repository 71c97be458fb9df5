package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/toolyard/toolyard"
)

// Escape turns a name into one subject token: bytes outside [A-Za-z0-9_-] become "=hh" (lower-case hexadecimal).
func Escape(name string) string {
	plain := true
	for i := range len(name) {
		plain = plain && isPlain(name[i])
	}
	if plain {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02x", c)
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// Unescape is the inverse of [Escape]. It refuses tokens that Escape never makes, so that each name has only one token.
func Unescape(token string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if isPlain(token[i]) {
			b.WriteByte(token[i])
			continue
		}
		if token[i] != '=' {
			return "", fmt.Errorf("subject token %q has the byte %#x, which must be written as %q", token, token[i],
				Escape(token[i:i+1]))
		}
		if i+3 > len(token) {
			return "", fmt.Errorf("subject token %q ends inside an escape", token)
		}
		c, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil || isPlain(byte(c)) || strings.ToLower(token[i+1:i+3]) != token[i+1:i+3] {
			return "", fmt.Errorf("subject token %q has the escape %q, which is never made", token, token[i:i+3])
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}

// KeyTokens returns the two subject tokens of a batch.
func KeyTokens(k toolyard.BatchKey) string {
	return Escape(string(k.Agent)) + "." + Escape(string(k.ID))
}

// NoPool is used in names where there is no pool: no pool has this name.
const NoPool = "_"

// LaneOf is the default lane of an agent's calls; the dispatcher that plans them may choose a better one. Workers serve
// lanes in turn, so that calls of one agent do not wait for all calls of another, unless the agents share a lane.
func LaneOf(a toolyard.Agent) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(a)) // it never fails
	return int(h.Sum32() % Lanes)
}

// CheckPool returns an error for an invalid pool name. It is also part of consumer names, so it is stricter than other
// names: 1 to [MaxPoolBytes] bytes of [A-Za-z0-9_-], and not "_".
func CheckPool(p toolyard.Pool) error {
	if p == "" || len(p) > MaxPoolBytes || p == NoPool || Escape(string(p)) != string(p) {
		return fmt.Errorf("pool name %q: use 1 to %d letters, digits, dashes and underscores (but not %q alone)", p,
			MaxPoolBytes, NoPool)
	}
	return nil
}

// PoolOf is the pool of workers with these tags whose operator names none: the default one without tags, and one of the
// tags' own otherwise, so that workers with other tags are not in it. Its name is made of the tags, as far as it can
// be.
func PoolOf(tags []toolyard.Tag) toolyard.Pool {
	if len(tags) == 0 {
		return toolyard.DefaultPool
	}
	sorted := slices.Sorted(slices.Values(tags))
	var b, all strings.Builder
	for i, t := range sorted {
		if i > 0 {
			b.WriteByte('_')
		}
		for j := range len(t) {
			if c := t[j]; c != '_' && isPlain(c) {
				b.WriteByte(c)
			} else {
				b.WriteByte('-')
			}
		}
		fmt.Fprintf(&all, "%s\n", t)
	}
	name := b.String()
	if len(sorted) == 1 && name == string(sorted[0]) && toolyard.Pool(name) != toolyard.DefaultPool {
		return toolyard.Pool(name)
	}
	sum := sha256.Sum256([]byte(all.String())) // two lists of tags may look the same by now
	const distinct = 8
	return toolyard.Pool(name[:min(len(name), MaxPoolBytes-distinct-1)] + "-" + hex.EncodeToString(sum[:distinct/2]))
}

// SourceWorker begins the source of events written by a worker; its id follows.
const SourceWorker = "/worker/"

func init() { uuid.EnableRandPool() } // one read of the system's random source makes many ids

// NewID makes a unique id that sorts by time.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil { // the system's random source failed: unique ids are impossible
		panic(fmt.Errorf("make an id: %w", err))
	}
	return id.String()
}

// WorkerID makes a new id for a worker of a pool.
func WorkerID(pool toolyard.Pool) string {
	if pool == "" {
		pool = toolyard.DefaultPool
	}
	return string(pool) + ".worker-" + NewID()
}

// AskedCall is the call for which a worker reads or stores an object.
type AskedCall struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Index int              `json:"index"`
}

// callKey is the key of the context value with the call for which a worker asks.
type callKey struct{}

// ForCall returns a context in which objects are requested for a call: a worker gets an agent's objects only while its
// pool has a call of that batch.
func ForCall(ctx context.Context, k toolyard.BatchKey, index int) context.Context {
	return context.WithValue(ctx, callKey{}, &AskedCall{k.Agent, k.ID, index})
}

// CallOf returns the call that [ForCall] has put into a context, or nil.
func CallOf(ctx context.Context) *AskedCall {
	c, _ := ctx.Value(callKey{}).(*AskedCall)
	return c
}
