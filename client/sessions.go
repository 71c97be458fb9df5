package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
)

// Session is what is kept of a conversation between its batches.
type Session struct {
	// Unattended says that nobody is there to ask: then its calls are not asked about, whatever their batch says.
	Unattended bool `json:"alone"`
	// Loaded are the deferred tools whose schemas the model has seen.
	Loaded []string `json:"loaded"`
	// Remembered is what people have allowed for the rest of the session.
	Remembered []string `json:"remembered"`
	// Context is what tools have set for later calls.
	Context map[string]string `json:"context"`
	Changed time.Time         `json:"changed"`
	// Budgets are those that the session, its agent and the agent's teams have used something of.
	Budgets []Budget `json:"budgets,omitempty"`
}

// Budget is what is used of a budget that several batches share.
type Budget struct {
	// Of is whose it is: "agent ci-1", "team web-*", "session s-1 of ci-1".
	Of string `json:"of"`
	// Left says what is used, for people.
	Left string `json:"left"`
	// Limit is what there is of each resource, 0 where that is not bounded; Used what calls have used that are over,
	// and Reserved what those may use that are in flight.
	Limit    BudgetAmount `json:"limit"`
	Used     BudgetAmount `json:"used"`
	Reserved BudgetAmount `json:"reserved"`
	// Renews is when all is there again; zero for a budget that does not renew.
	Renews time.Time `json:"renews,omitzero"`
}

// BudgetAmount is an amount of each resource of a budget.
type BudgetAmount struct {
	Calls   int64   `json:"calls"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	Cost    int64   `json:"cost"`
}

func amountOf(a admission.Amount) BudgetAmount {
	return BudgetAmount{Calls: a.Calls, Seconds: float64(a.MS) / 1_000, Bytes: a.Bytes, Cost: a.Cost}
}

// budgetsOf puts accounts, as they stand now, into the order of their names.
func budgetsOf(accounts map[string]admission.Account, now time.Time) (out []Budget) {
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		kept := accounts[name]
		a := kept.At(now)
		used, reserved := a.Total()
		b := Budget{Of: name, Left: a.Left(), Limit: amountOf(a.Limit.Amount), Used: amountOf(used),
			Reserved: amountOf(reserved)}
		if at, ok := a.Renews(); ok {
			b.Renews = at
		}
		out = append(out, b)
	}
	return out
}

// named is the session that is meant.
func named(s toolyard.Session) toolyard.Session { return cmp.Or(s, toolyard.DefaultSession) }

// Session reads a session; one that nothing was kept of is new.
func (c *Client) Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (Session, error) {
	return c.t.session(ctx, c.t.whose(a), named(s))
}

// SetUnattended says whether a session has nobody to ask, from its next batch on.
func (c *Client) SetUnattended(ctx context.Context, a toolyard.Agent, s toolyard.Session, unattended bool) (Session,
	error) {
	return c.t.changeSession(ctx, c.t.whose(a), named(s), sessionChange{unattended: &unattended})
}

// Forget makes a session ask again for all that people have allowed in it.
func (c *Client) Forget(ctx context.Context, a toolyard.Agent, s toolyard.Session) (Session, error) {
	return c.t.changeSession(ctx, c.t.whose(a), named(s), sessionChange{forget: true})
}

// LoadTools makes deferred tools callable in a session, from its next batch on, as a search for them does. It is for
// who shows their schemas to the model in another way. A session keeps the newest 1,000 names.
func (c *Client) LoadTools(ctx context.Context, a toolyard.Agent, s toolyard.Session, tools ...string) (Session,
	error) {
	for i, name := range tools {
		if err := toolyard.CheckName(fmt.Sprintf("load[%d]", i), name); err != nil {
			return Session{}, err
		}
	}
	return c.t.changeSession(ctx, c.t.whose(a), named(s), sessionChange{load: tools})
}

// Interrupt asks the session's batches to stop: calls that have not begun end as canceled, and so do running ones of
// tools that say so; the others are waited for. It returns how many batches were asked, when that is stored. The reason
// is told to the model. A batch that was submitted a moment ago and is not planned yet is not found.
func (c *Client) Interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, reason string) (batches int,
	err error) {
	if err := checkReason(reason); err != nil {
		return 0, err
	}
	return c.t.interrupt(ctx, c.t.whose(a), named(s), reason)
}

// Resolved says what [Client.Resolve] has ended: so many calls, of so many batches.
type Resolved struct {
	Batches int `json:"batches"`
	Calls   int `json:"calls"`
}

// Resolve ends the calls of a session that wait for a person, as the option Supersede of a new batch does, and stops
// nothing else: they end as [toolyard.ApprovalExpired], and the model is told that nobody decided before the session
// went on, and the reason. It returns when that is stored. A call that begins to wait meanwhile is not ended. By says
// who did it, as in a [Decision]; over HTTP the token does, and it is ignored.
func (c *Client) Resolve(ctx context.Context, a toolyard.Agent, s toolyard.Session, by, reason string) (Resolved,
	error) {
	if err := checkReason(reason); err != nil {
		return Resolved{}, err
	}
	return c.t.resolve(ctx, c.t.whose(a), named(s), by, reason)
}

// Filter says which batches are listed. What is empty does not matter.
type Filter struct {
	Agent   toolyard.Agent
	Session toolyard.Session
	Status  toolyard.Status
	// After is the Cursor of the last batch of the page before; 0 begins with the newest. Limit is how many a page has,
	// 1,000 at most and when it is 0.
	After uint64
	Limit int
}

// BatchInfo is a batch as the index has it, which may be a moment behind its log.
type BatchInfo struct {
	ID        toolyard.BatchID   `json:"id"`
	Agent     toolyard.Agent     `json:"agent"`
	Session   toolyard.Session   `json:"session"`
	Workspace toolyard.Workspace `json:"workspace"`
	Status    toolyard.Status    `json:"status"`
	Calls     int                `json:"calls"`
	Submitted time.Time          `json:"submitted"`
	Changed   time.Time          `json:"changed"`
	// Cursor is the batch's position in the order of submission, for [Filter].After: a later batch has a greater one.
	Cursor uint64 `json:"place"`
}

// Batches returns a page of batches and whether there are more. The newest come first: their order is that in which
// they were submitted, and no batch changes its place in it. So pages that follow each other leave out none and repeat
// none.
func (c *Client) Batches(ctx context.Context, f Filter) (page []BatchInfo, more bool, err error) {
	return c.t.batches(ctx, f)
}
