package dispatchercmd

import (
	"context"
	"errors"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
)

// A batch is named by its id, or as lists and events show it: as AGENT/ID, with the id shortened to "…" and its end.
// Names may have slashes themselves, so that the system is asked which one is meant.

// key checks the names of a batch; [agentRef.whole] finds it.
func (r *agentRef) key(id string) (toolyard.BatchKey, error) {
	if err := checkBatchName(id); err != nil {
		return toolyard.BatchKey{}, err
	}
	agent, err := r.owner()
	return toolyard.BatchKey{Agent: agent, ID: toolyard.BatchID(id)}, err
}

// checkBatchName says what is wrong with an id, or with AGENT/ID.
func checkBatchName(name string) error {
	err := toolyard.CheckName("BATCH", name)
	if err != nil && len(pairs(name)) > 0 {
		return nil
	}
	return err
}

// pairs are the ways to read a name as AGENT/ID.
func pairs(name string) (all []toolyard.BatchKey) {
	for i, r := range name {
		if r != '/' {
			continue
		}
		agent, id := name[:i], name[i+1:]
		if toolyard.CheckName("agent", agent) == nil && toolyard.CheckName("batch", id) == nil {
			all = append(all, toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(id)})
		}
	}
	return all
}

// readings are the batches that a name can mean, the likely ones first. named says that a flag names the agent: then an
// id with a slash is likely, and AGENT/ID is only read for the same agent.
func readings(k toolyard.BatchKey, named bool) (all []toolyard.BatchKey, err error) {
	var literal []toolyard.BatchKey
	if toolyard.CheckName("BATCH", string(k.ID)) == nil {
		literal = []toolyard.BatchKey{k}
	}
	of := pairs(string(k.ID))
	if !named {
		return append(of, literal...), nil
	}
	all = literal
	for _, p := range of {
		if p.Agent == k.Agent {
			all = append(all, p)
		}
	}
	if len(of) > 0 && len(all) == len(literal) {
		err = cli.Usagef("BATCH %s is of agent %q, and --agent says %q; leave one out", k.ID, of[0].Agent, k.Agent)
	}
	return all, err
}

// meant is the batch that a name means, of those that it can mean. there is broker.ErrNoBatch for one that is not.
func meant(k toolyard.BatchKey, named bool, there func(toolyard.BatchKey) (toolyard.BatchKey, error)) (
	toolyard.BatchKey, error) {
	all, contradiction := readings(k, named)
	var failed error
	for _, one := range all {
		found, err := there(one)
		if err == nil {
			return found, nil
		}
		if _, usage := errors.AsType[*cli.UsageError](err); usage {
			return one, err
		}
		if failed == nil && !errors.Is(err, broker.ErrNoBatch) {
			failed = err
		}
	}
	switch {
	case failed != nil:
		return k, failed
	case contradiction != nil:
		return k, contradiction
	}
	return all[0], nil // which says that there is no such batch
}

// whole finds the batch that is named as lists show it. Other names it leaves as they are.
func (r *agentRef) whole(ctx context.Context, c *client.Client, k toolyard.BatchKey) (toolyard.BatchKey, error) {
	if !asShown(string(k.ID)) {
		return k, nil
	}
	if !strings.Contains(string(k.ID), "/") {
		return unshortened(ctx, c, k)
	}
	return meant(k, cli.OnCommandLine(r.cmd, "agent"), func(k toolyard.BatchKey) (toolyard.BatchKey, error) {
		k, err := unshortened(ctx, c, k)
		if err == nil {
			_, err = c.Batch(k).Standing(ctx)
		}
		return k, err
	})
}

// asShown reports whether a name may be one that the system has to be asked about.
func asShown(name string) bool { return strings.HasPrefix(name, "…") || strings.Contains(name, "/") }

// maxFound is how many pages of batches are searched for one whose id is shortened.
const maxFound = 20

// unshortened finds the batch whose id is shortened. Other ids it leaves as they are.
func unshortened(ctx context.Context, c *client.Client, k toolyard.BatchKey) (toolyard.BatchKey, error) {
	end, short := strings.CutPrefix(string(k.ID), "…")
	if !short {
		return k, nil
	}
	var all []toolyard.BatchID
	f := client.Filter{Agent: k.Agent, Limit: broker.MaxListed}
	for range maxFound {
		page, more, err := c.Batches(ctx, f)
		if err != nil {
			return k, err
		}
		for _, b := range page {
			if strings.HasSuffix(string(b.ID), end) {
				all = append(all, b.ID)
			}
		}
		if !more {
			break
		}
		f.After = page[len(page)-1].Cursor
	}
	switch len(all) {
	case 0: // it may be its name
		return k, nil
	case 1:
		k.ID = all[0]
		return k, nil
	}
	return k, cli.Usagef("BATCH %s is the end of %d ids, such as %s and %s: name one whole", k.ID, len(all), all[0], all[1])
}
