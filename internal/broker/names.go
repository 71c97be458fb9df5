package broker

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/toolyard/toolyard"
)

// Escape makes one subject token of a name: bytes outside [A-Za-z0-9_-] become "=hh" (lower-case hexadecimal).
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

// Unescape is the inverse of [Escape]. It refuses what Escape never makes, so that a name has one token only.
func Unescape(token string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if isPlain(token[i]) {
			b.WriteByte(token[i])
			continue
		}
		if token[i] != '=' {
			return "", fmt.Errorf("subject token %q has the byte %#x, which stands there as %q", token, token[i],
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

// KeyTokens are the two subject tokens of a batch.
func KeyTokens(k toolyard.BatchKey) string {
	return Escape(string(k.Agent)) + "." + Escape(string(k.ID))
}

// NoPool stands in names where there is no pool: no pool has this name.
const NoPool = "_"

// LaneOf is the lane of an agent's calls, unless the dispatcher that planned them found a better one. Workers serve
// lanes in turn, so that the calls of one agent do not wait behind all calls of another; agents that share a lane do.
func LaneOf(a toolyard.Agent) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(a)) // it never fails
	return int(h.Sum32() % Lanes)
}

// CheckPool says what is wrong with a pool's name. It names consumers too, so it is stricter than other names: 1 to
// [MaxPoolBytes] bytes of [A-Za-z0-9_-], and not "_".
func CheckPool(p toolyard.Pool) error {
	if p == "" || len(p) > MaxPoolBytes || p == NoPool || Escape(string(p)) != string(p) {
		return fmt.Errorf("pool name %q: use 1 to %d letters, digits, dashes and underscores (but not %q alone)", p,
			MaxPoolBytes, NoPool)
	}
	return nil
}

// SourceWorker begins the source of what a worker writes; its id follows.
const SourceWorker = "/worker/"

// NewID makes an id that no other has and that sorts by time.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil { // the system's source of randomness is gone: nothing can be named apart any more
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

// callKey is the key of the context value that says for which call a worker asks.
type callKey struct{}

// ForCall returns a context in which objects are asked for a call: workers get those of an agent only while one of its
// calls is theirs.
func ForCall(ctx context.Context, k toolyard.BatchKey, index int) context.Context {
	return context.WithValue(ctx, callKey{}, &AskedCall{k.Agent, k.ID, index})
}

// CallOf returns the call that [ForCall] has put into a context, or nil.
func CallOf(ctx context.Context) *AskedCall {
	c, _ := ctx.Value(callKey{}).(*AskedCall)
	return c
}
