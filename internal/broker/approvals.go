package broker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// MaxApprovals bounds the list of waiting calls; if there are more, it has the newest.
const MaxApprovals = 10_000

// Approval is a call that waits for a person.
type Approval struct {
	ID        string             `json:"id"`
	Agent     toolyard.Agent     `json:"agent"`
	Batch     toolyard.BatchID   `json:"batch"`
	Index     int                `json:"index"`
	Session   toolyard.Session   `json:"session"`
	Workspace toolyard.Workspace `json:"workspace"`
	CallID    string             `json:"call_id"`
	Tool      string             `json:"tool"`
	events.Waiting
	AskedAt time.Time `json:"asked_at"`
	Expires time.Time `json:"expires"`
}

// Key is the batch's identity.
func (a *Approval) Key() toolyard.BatchKey { return toolyard.BatchKey{Agent: a.Agent, ID: a.Batch} }

// ApprovalID names a waiting call. Its only character with a meaning in a shell or a URL's path is "=".
func ApprovalID(k toolyard.BatchKey, index int) string {
	return KeyTokens(k) + "." + strconv.Itoa(index)
}

// ParseApprovalID is the inverse of [ApprovalID].
func ParseApprovalID(id string) (k toolyard.BatchKey, index int, err error) {
	t := strings.Split(id, ".")
	if len(t) == 3 {
		agent, err1 := Unescape(t[0])
		name, err2 := Unescape(t[1])
		index, err3 := strconv.Atoi(t[2])
		if errors.Join(err1, err2, err3) == nil && agent != "" && name != "" && index >= 0 &&
			strconv.Itoa(index) == t[2] {
			return toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(name)}, index, nil
		}
	}
	return k, 0, fmt.Errorf("%w: %q is no approval's id; it is AGENT.BATCH.INDEX, as dispatcher approvals lists them",
		ErrNoApproval, id)
}

// ApprovalChange is a change of the list: Approval is nil if the call was removed.
type ApprovalChange struct {
	ID string
	// Shard is where the call's batch is.
	Shard    int
	Approval *Approval
}

// ItemEnd is the end of an item's chain, after which its next event goes.
type ItemEnd struct {
	Pool toolyard.Pool
	Item int
	Seq  uint64
}
