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
	// ID names it for [Client.Decide].
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
	// Form is what the call's tool asks; then Input is the answer as far as the form fills it in. Nil: the question is
	// whether the call may run.
	Form *toolyard.Form `json:"form,omitempty"`
	// Diff says what the call would change as things stood when it was asked about; empty when its tool does not say.
	Diff string `json:"diff"`
	// Remember is what an approval for the session allows from then on; empty when it cannot be remembered.
	Remember string    `json:"remember"`
	AskedAt  time.Time `json:"asked_at"`
	Expires  time.Time `json:"expires"`
}

// Verdict is whether a call that waits for a person may run.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow" // the call runs
	Deny  Verdict = "deny"  // the call ends as approval_rejected
)

// Decision is what a person decides about a call.
type Decision struct {
	// Verdict is required.
	Verdict Verdict
	// By names the person, and is required; over HTTP the token does, and this is ignored. Reason is told to the model,
	// and has at most [MaxReasonBytes].
	By, Reason string
	// Input, with Allow, replaces the call's own input and is checked first. Nil: the input as it was shown. With
	// [Approval.Form] it is the answer, which must fit the form.
	Input json.RawMessage
	// InputSHA256 is the hash of the input that the person has seen ([Approval.InputSHA256]): the call is neither
	// allowed nor denied when it waits with another one. Empty: whichever it waits with.
	InputSHA256 string
	// ForSession, with Allow, also allows what [Approval.Remember] says for the rest of the session.
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

// Decide stores a person's decision about a call that waits, and returns when it is stored. It fails with
// [ErrNoApproval] when the call does not wait, with [ErrUnchecked] when no worker could check the input that replaces
// the call's own, and with a [*toolyard.InputError] for a decision that cannot be taken.
func (c *Client) Decide(ctx context.Context, id string, d Decision) error {
	if _, _, err := broker.ParseApprovalID(id); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	return c.t.decide(ctx, id, d)
}

func (d *Decision) check() error {
	field := ""
	switch {
	case d.Verdict != Allow && d.Verdict != Deny:
		return &toolyard.InputError{Field: "decision",
			Problem: fmt.Sprintf("is %q; want %q or %q", d.Verdict, Allow, Deny)}
	case d.Verdict == Allow:
	case len(d.Input) > 0:
		field = "input"
	case d.ForSession:
		field = "remember"
	}
	if field != "" {
		return &toolyard.InputError{Field: field, Problem: "goes with an approval; leave it out of a denial"}
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
