package relay

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/toolyard/toolyard/client"
)

// answers are the latest that have counted, up to [MaxAnswers]. A service that has lost the response sends its answer
// again, and by then the call may ask the same once more: the answer is to the first question alone.
type answers struct {
	mu    sync.Mutex
	names [][sha256.Size]byte // the oldest first
}

// errTwice is the error of an answer that has counted.
var errTwice = fmt.Errorf("%w: this answer has come before", client.ErrNoApproval)

// nameOf is the same for an answer that is sent again: its time is another then, and so is its signature.
func nameOf(h http.Header, body []byte) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s\x00%s", h.Get(headerID), body))
}

// add puts an answer in, and reports whether it is new.
func (a *answers) add(name [sha256.Size]byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.names, name) {
		return false
	}
	if len(a.names) == MaxAnswers {
		a.names = slices.Delete(a.names, 0, 1)
	}
	a.names = append(a.names, name)
	return true
}

// remove takes out an answer that did not count.
func (a *answers) remove(name [sha256.Size]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = slices.DeleteFunc(a.names, func(n [sha256.Size]byte) bool { return n == name })
}
