package natsbroker

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The subject grammar. Tokens are names, escaped so that a name is always exactly one token.
//
//	ty.batch.<agent>.<batch>                              a submission
//	ty.wake.<agent>.<batch>                               there is news for a parked batch
//	ty.event.<agent>.<batch>._.batch | control | input    the batch's own chains
//	ty.event.<agent>.<batch>.<pool>.<item>                the chain of an item: its first call's index
//	ty.call.<class>.<pool>.<lane>.<agent>.<batch>.<index>.<n>
//	                                                      calls to run, the first of them, after event n of their item's
//	                                                      chain; a lane for agents
//	ty.reply.<agent>.<batch>                              results, for the agent
//	ty.live.event.…, ty.live.reply.…                      the same messages again on core NATS, once stored
//	ty.progress.<agent>.<batch>                           progress of its calls, on core NATS; never stored
//	ty.told.<agent>.<batch>                               the same from a worker's own account, for dispatchers to pass on
//	ty.abort                                              stop these calls: a broadcast to all workers
//	ty.dead.<kind>.<agent>.<batch>                        dead letters, for people
//	ty.judge.<pool>                                       a request to any worker of the pool: judge these inputs
//	ty.room                                               a request to the process with the NATS server: is there room
//	ty.holder.<pool>.<worker>                             a request to one worker: do you have this call
//	ty.answer.<pool>.<nonce>                              the answer of a worker to such a request
//	ty.ask.<role>.<name>.<operation>                      a question of an agent or a worker to any dispatcher
//	ty.get.<agent>.<batch>                                a question for the replies of a batch
//	ty.beat.<pool>.<worker>                               a worker is alive: a dispatcher stores that
const (
	prefixBatch     = "ty.batch."
	prefixWake      = "ty.wake."
	prefixEvent     = "ty.event."
	prefixCall      = "ty.call."
	prefixReply     = "ty.reply."
	prefixLive      = "ty.live."
	prefixLiveEvent = "ty.live.event."
	prefixLiveReply = "ty.live.reply."
	subjectAbort    = "ty.abort"
	prefixJudge     = "ty.judge."
	prefixDead      = "ty.dead."
)

// about is the CloudEvents subject of a batch, or of one of its calls.
func about(k toolyard.BatchKey) string {
	return broker.Escape(string(k.Agent)) + "/" + broker.Escape(string(k.ID))
}

func aboutCall(k toolyard.BatchKey, index int) string { return about(k) + "/" + strconv.Itoa(index) }

func subjectBatch(k toolyard.BatchKey) string { return prefixBatch + broker.KeyTokens(k) }

func subjectReply(k toolyard.BatchKey) string { return prefixReply + broker.KeyTokens(k) }

func subjectEvents(k toolyard.BatchKey) string { return prefixEvent + broker.KeyTokens(k) + ".>" }

// subjectChain is the literal subject of a chain on the event stream.
func subjectChain(k toolyard.BatchKey, c batch.Chain, pool toolyard.Pool, index int) string {
	if c == batch.ChainItem {
		return prefixEvent + broker.KeyTokens(k) + "." + string(pool) + "." + strconv.Itoa(index)
	}
	return prefixEvent + broker.KeyTokens(k) + "." + broker.NoPool + "." + string(c)
}

// subjectCall is the subject under which calls of an item are queued, once for each event that the item's chain ends
// with: queueing them again, also by another owner, finds the existing message.
func subjectCall(r batch.Route, lane int, req *events.Requested) string {
	return prefixCall + string(r.Class) + "." + string(r.Pool) + "." + strconv.Itoa(lane) + "." +
		broker.KeyTokens(req.Key()) + "." + strconv.Itoa(req.Calls[0].Index) + "." +
		strconv.FormatUint(req.Expected, 10)
}

func filterCalls(r batch.Route, lane int) string {
	return prefixCall + string(r.Class) + "." + string(r.Pool) + "." + strconv.Itoa(lane) + ".>"
}

// ownChains are the chains on the event stream that belong to a batch and not to one of its calls.
var ownChains = []batch.Chain{batch.ChainBatch, batch.ChainControl, batch.ChainInput}

// place is the content of one of our subjects.
type place struct {
	key   toolyard.BatchKey
	chain batch.Chain
	pool  toolyard.Pool
	index int
	// wake says that the message is not an event of a batch but a wake.
	wake bool
}

// parseCallSubject parses a subject of the work queue.
func parseCallSubject(subject string) (k toolyard.BatchKey, index int, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 9 || t[0] != "ty" || t[1] != "call" {
		return k, 0, &events.UnreadableError{Problem: fmt.Sprintf("subject %q is not of the grammar", subject)}
	}
	agent, err1 := broker.Unescape(t[5])
	id, err2 := broker.Unescape(t[6])
	index, err3 := strconv.Atoi(t[7])
	if err := errors.Join(err1, err2, err3); err != nil {
		return k, 0, &events.UnreadableError{Problem: fmt.Sprintf("subject %q is not of the grammar: %v", subject, err)}
	}
	return toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(id)}, index, nil
}

// parseSubject parses a subject of the batch, event or reply stream. If it fails, it may still return the key.
func parseSubject(subject string) (place, error) {
	var p place
	bad := func() (place, error) {
		return place{key: p.key}, fmt.Errorf("subject %q is not of the grammar", subject)
	}
	t := strings.Split(subject, ".")
	if len(t) < 4 || t[0] != "ty" {
		return bad()
	}
	agent, err := broker.Unescape(t[2])
	if err != nil {
		return place{}, err
	}
	id, err := broker.Unescape(t[3])
	if err != nil {
		return place{}, err
	}
	p.key = toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(id)}
	switch {
	case t[1] == "batch" && len(t) == 4:
		p.chain = batch.ChainSubmission
	case t[1] == "wake" && len(t) == 4:
		p.wake = true
	case t[1] == "reply" && len(t) == 4:
		p.chain = batch.ChainReply
	case t[1] == "event" && len(t) == 6 && t[4] == broker.NoPool && slices.Contains(ownChains, batch.Chain(t[5])):
		p.chain = batch.Chain(t[5])
	case t[1] == "event" && len(t) == 6 && t[4] != broker.NoPool:
		p.chain, p.pool = batch.ChainItem, toolyard.Pool(t[4])
		if p.index, err = strconv.Atoi(t[5]); err != nil || p.index < 0 || strconv.Itoa(p.index) != t[5] {
			return bad()
		}
	default:
		return bad()
	}
	return p, nil
}
