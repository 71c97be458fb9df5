package relay

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/toolyard/toolyard/client"
)

// answers are the latest that have counted, up to [MaxAnswers]. A service that has lost the response sends its answer
// again, and by then the call may ask the same once more: the answer is to the first question alone. One that comes
// again while the first is stored waits for what becomes of that: the first may not count.
type answers struct {
	mu    sync.Mutex
	names [][sha256.Size]byte // the oldest first
	// storing are those under way. Each is closed at its end.
	storing map[[sha256.Size]byte]chan struct{}
}

// errTwice is the error of an answer that has counted.
var errTwice = fmt.Errorf("%w: this answer has come before", client.ErrNoApproval)

// nameOf is the same for an answer that is sent again: its time is another then, and so is its signature.
func nameOf(h http.Header, body []byte) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s\x00%s", h.Get(headerID), body))
}

// begin has an answer stored, unless it has counted. Who gets true calls end.
func (a *answers) begin(ctx context.Context, name [sha256.Size]byte) (is bool, err error) {
	for {
		before, counted := a.beginNow(name)
		if before == nil {
			return !counted, nil
		}
		select {
		case <-before:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// beginNow is begin without waiting: before is the same answer that is under way.
func (a *answers) beginNow(name [sha256.Size]byte) (before <-chan struct{}, counted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.names, name) {
		return nil, true
	}
	if before, is := a.storing[name]; is {
		return before, false
	}
	if a.storing == nil {
		a.storing = map[[sha256.Size]byte]chan struct{}{}
	}
	a.storing[name] = make(chan struct{})
	return nil, false
}

// end notes what became of an answer. One that did not count may come again.
func (a *answers) end(name [sha256.Size]byte, counted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.storing[name])
	delete(a.storing, name)
	if !counted {
		return
	}
	if len(a.names) == MaxAnswers {
		a.names = slices.Delete(a.names, 0, 1)
	}
	a.names = append(a.names, name)
}
