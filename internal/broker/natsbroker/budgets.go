package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/pattern"
)

// bucketBudget has the accounts of budgets. It is there when there was a budget.
const bucketBudget = "ty_budget"

// budgetBucket is the bucket of the accounts. One that nobody changes for the lifetime of batches is forgotten.
func budgetBucket(s broker.Settings) jetstream.StreamConfig {
	return bucket(s, bucketBudget, smallBytes(s), s.Lifetime+s.Slack, 0)
}

// budgetKey is the key of an account: its kind, and its name.
func budgetKey(account string) string {
	kind, _, _ := strings.Cut(account, " ")
	return broker.Escape(kind) + "." + broker.Escape(account)
}

// ChangeBudget changes an account with a compare-and-set; change may be called several times. It makes the bucket if it
// is not there.
func (b *Broker) ChangeBudget(ctx context.Context, account string,
	change func(admission.Account) (admission.Account, error)) (admission.Account, error) {
	kv, err := b.optionalBucket(ctx, bucketBudget, budgetBucket)
	var v admission.Account
	if err == nil {
		v, _, err = swap(ctx, b, kv, budgetKey(account), seen[admission.Account]{}, false, change)
	}
	if err != nil {
		return v, fmt.Errorf("change the budget of %s: %w", account, err)
	}
	return v, nil
}

// Budgets reads the accounts of an agent's session, of the agent, and of its teams, by their names. There are none
// where there was no budget.
func (b *Broker) Budgets(ctx context.Context, a toolyard.Agent, s toolyard.Session) (map[string]admission.Account,
	error) {
	out := map[string]admission.Account{}
	kv, err := retry(ctx, func(ctx context.Context) (jetstream.KeyValue, error) {
		kv, err := b.js.KeyValue(ctx, bucketBudget)
		if errors.Is(err, jetstream.ErrBucketNotFound) { // an answer, and no reason to ask again
			return nil, nil
		}
		return kv, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("key-value bucket %s: %w", bucketBudget, err)
	case kv == nil:
		return out, nil
	}
	for _, name := range []string{admission.SessionAccount(a, s), admission.AgentAccount(a)} {
		v, _, revision, err := load[admission.Account](ctx, kv, budgetKey(name))
		if err != nil {
			return nil, fmt.Errorf("read the budget of %s: %w", name, err)
		}
		if revision > 0 {
			out[name] = v
		}
	}
	var bad error
	err = list(ctx, kv, string(admission.BudgetOfTeam)+".*",
		func(key string, _ uint64, v admission.Account, err error) (more bool) {
			name, unescaped := broker.Unescape(strings.TrimPrefix(key, string(admission.BudgetOfTeam)+"."))
			agents := strings.TrimPrefix(name, admission.TeamAccount(""))
			if bad = errors.Join(err, unescaped); bad != nil {
				return false
			}
			if pattern.Matches(agents, string(a)) {
				out[name] = v
			}
			return true
		})
	if err = errors.Join(err, bad); err != nil {
		return nil, fmt.Errorf("list the budgets of teams: %w", err)
	}
	return out, nil
}

// optionalBucket opens a bucket that a system has only when somebody needed it, and makes it if it is not there.
func (b *Broker) optionalBucket(ctx context.Context, name string, define func(broker.Settings) jetstream.StreamConfig,
) (jetstream.KeyValue, error) {
	kv, err := retry(ctx, func(ctx context.Context) (jetstream.KeyValue, error) {
		kv, err := b.js.KeyValue(ctx, name)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			cfg := define(b.Settings())
			if _, err = b.js.CreateStream(ctx, cfg); err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				kv, err = b.js.KeyValue(ctx, name)
			}
		}
		return kv, err
	})
	if err != nil {
		return nil, fmt.Errorf("key-value bucket %s: %w", name, noRoom(err))
	}
	return kv, nil
}
