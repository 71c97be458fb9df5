package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// judgeTimeout is how long a worker may take to judge a batch's calls: a second, and longer in a system that was made for
// long ways. Silence means UNSAFE.
func (s Settings) judgeTimeout() time.Duration { return max(time.Second, s.CallAckWait/4) }

// JudgeCall is one call whose class only the tool's code can tell.
type JudgeCall struct {
	Index       int             `json:"index"`
	Tool        string          `json:"tool"`
	Declaration string          `json:"declaration"`
	Input       json.RawMessage `json:"input"`
}

// Judged is a worker's answer for one call.
type Judged struct {
	Index     int            `json:"index"`
	Judgement tool.Judgement `json:"judgement"`
}

// Judge asks one worker of a pool. An error says that nothing is known of the calls.
func (b *Broker) Judge(ctx context.Context, pool toolyard.Pool, calls []JudgeCall) ([]Judged, error) {
	data, err := json.Marshal(calls)
	if err != nil {
		return nil, fmt.Errorf("encode a request to judge: %w", err)
	}
	if len(data) > MaxInlineBytes {
		return nil, fmt.Errorf("the inputs to judge have %d bytes; at most %d are sent", len(data), MaxInlineBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, b.settings.judgeTimeout())
	defer cancel()
	m, err := b.askWorkers(ctx, string(pool), prefixJudge+string(pool), data)
	if err != nil {
		return nil, fmt.Errorf("ask a worker of pool %q to judge: %w", pool, err)
	}
	var out []Judged
	if err := json.Unmarshal(m.Data, &out); err != nil {
		return nil, fmt.Errorf("a worker of pool %q judged unreadably: %w", pool, err)
	}
	return out, nil
}

// OnJudge answers requests to judge, beside the pool's other workers, until the returned function is called. judge does
// not panic, and leaves out what it cannot tell.
func (b *Broker) OnJudge(pool toolyard.Pool, judge func([]JudgeCall) []Judged, failed func(error)) (func() error, error) {
	sub, err := b.nc.QueueSubscribe(prefixJudge+string(pool), "workers", func(m *nats.Msg) {
		var calls []JudgeCall
		err := json.Unmarshal(m.Data, &calls)
		var answer []byte
		if err == nil {
			answer, err = json.Marshal(judge(calls))
		}
		if err == nil {
			err = m.Respond(answer)
		}
		if err != nil {
			failed(fmt.Errorf("judge calls: %w", err))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen for requests to judge: %w", err)
	}
	return sub.Unsubscribe, nil
}
