package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// Approval is a call that waits for a person.
type Approval struct {
	// ID names it for [Client.Approve] and [Client.Deny].
	ID        string             `json:"id"`
	Agent     toolyard.Agent     `json:"agent"`
	Batch     toolyard.BatchID   `json:"batch"`
	Index     int                `json:"index"`
	Session   toolyard.Session   `json:"session"`
	Workspace toolyard.Workspace `json:"workspace"`
	CallID    string             `json:"call_id"`
	Tool      string             `json:"tool"`
	Class     toolyard.Class     `json:"concurrency_class"`
	// Destructive says that the call may do what cannot be undone.
	Destructive bool `json:"destructive"`
	// Reason says why a person is asked, Source what asks: a rule, the mode, a hook.
	Reason string `json:"reason"`
	Source string `json:"source"`
	// Input is what may be shown of the input; InputSHA256 names the input that runs when it is approved.
	Input       json.RawMessage `json:"input"`
	InputSHA256 string          `json:"input_sha256"`
	// Diff says what the call would change as things stood when it was asked about; empty when its tool does not say.
	Diff string `json:"diff"`
	// Remember is what an approval for the session allows from then on; empty when it cannot be remembered.
	Remember string    `json:"remember"`
	AskedAt  time.Time `json:"asked_at"`
	Expires  time.Time `json:"expires"`
}

// Decision is what a person decides about a call.
type Decision struct {
	// By names the person; over HTTP, the token does. Reason is told to the model.
	By, Reason string
	// Input, for an approval, is run instead of the call's own: it is checked again first. Nil: as it was shown.
	Input json.RawMessage
	// InputSHA256, for an approval, is the hash of the input that the person has seen ([Approval.InputSHA256]): the
	// call is not approved when it waits with another one. Empty: whichever it waits with.
	InputSHA256 string
	// ForSession keeps an approval for the rest of the session.
	ForSession bool
}

// ErrNoApproval says that the call does not wait for a person, or no longer.
var ErrNoApproval = broker.ErrNoApproval

// ErrUnchecked says that no worker has looked at the input of an approval, so that the call goes on waiting.
var ErrUnchecked = broker.ErrUnchecked

// ParseApprovalID says which call an approval's id means. It fails with [ErrNoApproval] when it is none.
func ParseApprovalID(id string) (k toolyard.BatchKey, index int, err error) {
	return broker.ParseApprovalID(id)
}

// Approvals returns the calls that wait for a person, those that were asked about last first: of one agent, or of all
// when it is empty. At most 10,000 are listed.
func (c *Client) Approvals(ctx context.Context, agent toolyard.Agent) ([]Approval, error) {
	return c.t.approvals(ctx, agent)
}

// Approve lets a call run that waits for a person. It returns when that is stored. It fails with [ErrNoApproval] when
// the call does not wait, and with a [*toolyard.InputError] for a decision that cannot be taken.
func (c *Client) Approve(ctx context.Context, id string, d Decision) error {
	if err := checkDecision(id, d); err != nil {
		return err
	}
	return c.t.decide(ctx, id, true, d)
}

// Deny ends a call that waits for a person as approval_rejected. It returns when that is stored, and fails as Approve
// does.
func (c *Client) Deny(ctx context.Context, id string, d Decision) error {
	if err := checkDecision(id, d); err != nil {
		return err
	}
	if len(d.Input) > 0 || d.ForSession || d.InputSHA256 != "" {
		return &toolyard.InputError{Problem: "a denial has no input, names none, and is not remembered"}
	}
	return c.t.decide(ctx, id, false, d)
}

func checkDecision(id string, d Decision) error {
	if _, _, err := broker.ParseApprovalID(id); err != nil {
		return err
	}
	if err := toolyard.CheckName("by", d.By); err != nil {
		return err
	}
	return checkReason(d.Reason)
}

func checkReason(reason string) error {
	switch {
	case len(reason) > MaxReasonBytes:
		return &toolyard.InputError{Field: "reason", TooLarge: true,
			Problem: fmt.Sprintf("is %d bytes long; at most %d are allowed", len(reason), MaxReasonBytes)}
	case !utf8.ValidString(reason):
		return &toolyard.InputError{Field: "reason", Problem: "is not valid UTF-8"}
	}
	return nil
}
