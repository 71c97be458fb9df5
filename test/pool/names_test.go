package pool

import (
	"cmp"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// TestNamesThatAreLeftOut: a client takes an agent and a session that are left out for the default ones, as a batch
// does: for no others, and at once.
func TestNamesThatAreLeftOut(t *testing.T) {
	t.Parallel()
	p := startPersonPool(t)
	for agent, session := range map[toolyard.Agent]toolyard.Session{"": "", "other": "s"} {
		b := interactive(string(agent), call("write", `{"text":"one"}`))
		b.ID, b.Session = "b", session
		submit(t, p.c, b)
		asked(t, p.b, cmp.Or(agent, toolyard.DefaultAgent), 1)
	}
	v, err := p.c.Batch(toolyard.BatchKey{ID: "b"}).View(t.Context())
	if err != nil || v.Agent != toolyard.DefaultAgent {
		t.Errorf("the batch of nobody is %+v, %v", v, err)
	}
	if _, err := p.c.SetUnattended(t.Context(), "", "", true); err != nil {
		t.Error(err)
	}
	if _, err := p.c.LoadTools(t.Context(), toolyard.DefaultAgent, toolyard.DefaultSession, "read"); err != nil {
		t.Error(err)
	}
	if s, err := p.c.Session(t.Context(), "", ""); err != nil || !s.Unattended || len(s.Loaded) != 1 {
		t.Errorf("the session is %+v, %v", s, err)
	}
	if done, err := p.c.Resolve(t.Context(), "", "s", "ann", ""); err != nil || done != (client.Resolved{}) {
		t.Errorf("%+v of another agent were resolved, %v", done, err)
	}
	if done, err := p.c.Resolve(t.Context(), "", "", "ann", ""); err != nil || done != (client.Resolved{Batches: 1,
		Calls: 1}) {
		t.Errorf("%+v were resolved, %v", done, err)
	}
	asked(t, p.b, "other", 1) // which still waits
	if n, err := p.c.Interrupt(t.Context(), "", "", ""); err != nil || n > 1 {
		t.Errorf("%d batches were interrupted, %v", n, err)
	}
	if err := p.c.Reopen(toolyard.BatchKey{Agent: "other", ID: "b"}).Cancel(t.Context(), ""); err != nil {
		t.Error(err)
	}
}
