package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/gate"
)

// The limits of a hub.
const (
	// MaxHubMessages and MaxHubBytes bound the waiting messages of one follower of a [Hub]. If more come, its messages
	// are dropped, and it reads the streams.
	MaxHubMessages = 256
	MaxHubBytes    = 1 << 20
	// hubLook is how often a hub compares what it has received with the end of the stream.
	hubLook = time.Second
	// hubLinger is how long an unused subscription is kept.
	hubLinger = 10 * time.Second
)

// Hub is the live copies of batches for one process. It hands each message to those who follow its batch, without
// waiting for any.
//
// With all it has one subscription for each kind, however many follow, and none while nobody does. A stream's messages
// are numbered without gaps, so the hub knows when it has missed one: it compares the numbers of what comes, and each
// second the end of the stream with what has come. Then it tells everybody that copies were lost.
//
// Without all it has a subscription for each batch that is followed. Their numbers have gaps, so each second it tells
// everybody that copies may have been lost.
type Hub struct {
	b     *Broker
	all   bool
	mu    gate.Gate
	lines map[string]*hubSubscription // by their subjects
}

// NewHub makes a hub on the broker's connection.
func NewHub(b *Broker, all bool) *Hub {
	return &Hub{b: b, all: all, lines: map[string]*hubSubscription{}}
}

// Hub is a new hub on the connection.
func (b *Broker) Hub(all bool) broker.Hub { return NewHub(b, all) }

// hubSubscription is one subscription.
type hubSubscription struct {
	h               *Hub
	prefix, subject string
	// of is the stream of shard 0 that all of streams correspond to; "" if there are none.
	of string
	// streams are what comes whole and numbered; none when it is not. looked says that it is stored, and read every
	// second.
	streams map[string]*heard
	looked  bool
	sub     *nats.Subscription
	users   int // guarded by the hub
	close   *time.Timer

	mu         gate.Gate
	followers  map[string]map[*hubFollower]bool // by the subject's tokens of the batch; by the agent's; by ""
	dropped    int
	reconnects uint64
	stop       context.CancelFunc
}

// heard is what has come of one stream.
type heard struct {
	// upTo is the sequence up to which everything has come, or was reported as lost. end is the stream's last sequence
	// at the last check.
	upTo, end uint64
}

// hubFollower is one follower of a hub. Its methods are safe for concurrent use.
type hubFollower struct {
	news chan struct{}

	lines []*hubSubscription
	key   string
	done  atomic.Bool

	mu    sync.Mutex
	queue []*broker.LiveMsg
	bytes int
	lost  bool
}

// Events follows what is stored about a batch: its events and its replies. Everything stored after it returns either
// comes or is reported as lost.
func (h *Hub) Events(ctx context.Context, k toolyard.BatchKey) (*hubFollower, error) {
	return h.follow(ctx, broker.KeyTokens(k), prefixLiveEvent, prefixLiveReply)
}

// Replies follows the replies of a batch.
func (h *Hub) Replies(ctx context.Context, k toolyard.BatchKey) (*hubFollower, error) {
	return h.follow(ctx, broker.KeyTokens(k), prefixLiveReply)
}

// Progress follows the progress of a batch's running calls.
func (h *Hub) Progress(ctx context.Context, k toolyard.BatchKey) (broker.Follow, error) {
	return h.follow(ctx, broker.KeyTokens(k), prefixProgress)
}

// Everything follows what is stored about all batches of an agent, of all agents if it is empty. Where the whole stream
// can be heard it is: only so is it known what was lost.
func (h *Hub) Everything(ctx context.Context, agent toolyard.Agent) (broker.Follow, error) {
	return h.follow(ctx, broker.Escape(string(agent)), prefixLiveEvent, prefixLiveReply)
}

// Read reads a live copy of something stored.
func (h *Hub) Read(ctx context.Context, m *broker.LiveMsg) (toolyard.BatchKey, broker.Logged, error) {
	stored, _, err := fromLive(m)
	if err != nil {
		return toolyard.BatchKey{}, broker.Logged{}, err
	}
	k, r, meta, err := h.b.looking(ctx, stored)
	return k, broker.Logged{Record: r, Meta: meta}, err
}

// ReadProgress reads the progress of a call.
func (h *Hub) ReadProgress(m *broker.LiveMsg) (broker.Progress, bool) { return readProgress(m) }

// Settle waits until followers can take everything that the connection has received.
func (h *Hub) Settle(ctx context.Context) error {
	settled := make(chan struct{})
	if err := h.b.nc.Barrier(func() { close(settled) }); err != nil {
		return fmt.Errorf("wait for messages that were received: %w", err)
	}
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Subscriptions is the number of the hub's subscriptions.
func (h *Hub) Subscriptions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lines)
}

func (h *Hub) follow(ctx context.Context, key string, prefixes ...string) (e *hubFollower, err error) {
	e = &hubFollower{news: make(chan struct{}, 1), key: key}
	defer func() {
		if err != nil {
			e.Stop()
		}
	}()
	for _, prefix := range prefixes {
		l, err := h.line(ctx, prefix, key)
		if err != nil {
			return e, err
		}
		e.lines = append(e.lines, l)
		l.mu.Lock()
		if l.followers[key] == nil {
			l.followers[key] = map[*hubFollower]bool{}
		}
		l.followers[key][e] = true
		l.mu.Unlock()
	}
	return e, nil
}

func (e *hubFollower) News() <-chan struct{} { return e.news }

// Stop ends the follower. Further messages are dropped.
func (e *hubFollower) Stop() {
	if e.done.Swap(true) {
		return
	}
	for _, l := range e.lines {
		l.mu.Lock()
		if delete(l.followers[e.key], e); len(l.followers[e.key]) == 0 {
			delete(l.followers, e.key)
		}
		l.mu.Unlock()
		l.h.leave(l)
	}
}

// subject is what a follower of a batch, or of an agent's batches, subscribes to.
func (h *Hub) subject(prefix, key string) string {
	batch := strings.Contains(key, ".")
	switch {
	case h.all, key == "", !batch && h.b.guest == nil:
		return prefix + ">"
	case !batch, prefix == prefixLiveEvent:
		return prefix + key + ".>"
	}
	return prefix + key
}

// line returns the subscription of a kind, with one more user, and makes it when there is none.
func (h *Hub) line(ctx context.Context, prefix, key string) (*hubSubscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	subject := h.subject(prefix, key)
	if l := h.lines[subject]; l != nil {
		l.users++
		l.close.Stop()
		return l, nil
	}
	l := &hubSubscription{h: h, prefix: prefix, subject: subject, users: 1,
		followers: map[string]map[*hubFollower]bool{}, streams: map[string]*heard{},
		reconnects: h.b.Reconnects()}
	switch whole := subject == prefix+">" && h.b.guest == nil; {
	case prefix == prefixProgress:
	case !whole:
		l.looked = true
	default:
		l.of = streamReply
		if prefix == prefixLiveEvent {
			l.of = streamEvent
		}
		each, err := h.b.all(ctx)
		if err != nil {
			return nil, err
		}
		for _, one := range each {
			l.streams[one.name(l.of)] = &heard{}
		}
	}
	l.mu.Lock() // messages wait until the end of the stream is known
	defer l.mu.Unlock()
	var err error
	if l.sub, err = h.b.nc.Subscribe(subject, l.dispatch); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	for name, s := range l.streams {
		if s.end, err = h.b.streamEnd(ctx, name); err != nil {
			return nil, errors.Join(err, l.sub.Unsubscribe())
		}
		s.upTo = s.end
	}
	looking, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.close = time.AfterFunc(hubLinger, func() { h.drop(l) })
	l.close.Stop()
	h.lines[subject] = l
	go l.watch(looking)
	return l, nil
}

func (h *Hub) leave(l *hubSubscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	if l.subject != l.prefix+">" { // of one batch, which is over or followed by nobody
		h.end(l)
		return
	}
	l.close.Reset(hubLinger)
}

// drop ends an unused subscription.
func (h *Hub) drop(l *hubSubscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.users > 0 || h.lines[l.subject] != l {
		return
	}
	h.end(l)
}

func (h *Hub) end(l *hubSubscription) {
	delete(h.lines, l.subject)
	l.close.Stop()
	l.stop()
	_ = l.sub.Unsubscribe() // it fails if the connection is closed, which ends the subscription too
}

// dispatch passes a message on.
func (l *hubSubscription) dispatch(m *broker.LiveMsg) {
	key, ok := strings.CutPrefix(m.Subject, l.prefix)
	if !ok {
		return
	}
	agent, rest, _ := strings.Cut(key, ".")
	batch, _, _ := strings.Cut(rest, ".")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of != "" {
		s := l.streams[m.Header.Get("Nats-Stream")]
		if s == nil {
			s = &heard{}
		}
		seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil || seq > s.upTo+1 {
			l.markLost()
		}
		s.upTo = max(s.upTo, seq)
	}
	if events.Fences(events.Type(m.Header.Get(headerType))) {
		return
	}
	for _, key := range []string{agent + "." + batch, agent, ""} {
		for e := range l.followers[key] {
			e.put(m)
		}
	}
}

// markLost tells everybody that copies were lost. The line is locked.
func (l *hubSubscription) markLost() { l.markLostOf(func(string) bool { return true }) }

func (l *hubSubscription) markLostOf(which func(key string) bool) {
	for key, followers := range l.followers {
		if !which(key) {
			continue
		}
		for e := range followers {
			e.markLost()
		}
	}
}

// watch detects lost messages that no later message reveals.
func (l *hubSubscription) watch(ctx context.Context) {
	tick := time.NewTicker(hubLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ends := map[string]uint64{}
		names, err := l.names(ctx)
		for i := 0; i < len(names) && err == nil; i++ {
			ends[names[i]], err = l.h.b.streamEnd(ctx, names[i])
		}
		if ctx.Err() != nil {
			return
		}
		dropped, derr := l.sub.Dropped()
		reconnects := l.h.b.Reconnects()
		l.mu.Lock()
		// What was stored before the last look had a second to come.
		behind := false
		for _, s := range l.streams {
			behind = behind || s.upTo < s.end
		}
		switch {
		case err != nil, derr != nil, dropped != l.dropped, reconnects != l.reconnects, behind:
			l.markLost()
			for _, s := range l.streams {
				s.upTo = max(s.upTo, s.end)
			}
		case l.looked: // who follows a batch reads it
			l.markLostOf(func(key string) bool { return strings.Contains(key, ".") })
		}
		for name, s := range l.streams {
			s.end = max(s.end, ends[name])
		}
		l.dropped, l.reconnects = dropped, reconnects
		l.mu.Unlock()
	}
}

// names are the streams that are heard. Those of shards that were added are heard from now on, and what came of them
// before may be lost.
func (l *hubSubscription) names(ctx context.Context) (names []string, err error) {
	if l.of == "" {
		return nil, nil
	}
	each, err := l.h.b.all(ctx) // a process that only follows does not read the map of shards otherwise
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range each {
		name := one.name(l.of)
		if l.streams[name] == nil {
			l.streams[name] = &heard{}
			l.markLost()
		}
		names = append(names, name)
	}
	return names, nil
}

func (e *hubFollower) put(m *broker.LiveMsg) {
	e.mu.Lock()
	switch {
	case e.lost:
	case len(e.queue) == MaxHubMessages || e.bytes+len(m.Data) > MaxHubBytes && len(e.queue) > 0:
		e.lost, e.queue, e.bytes = true, nil, 0
	default:
		e.queue = append(e.queue, m)
		e.bytes += len(m.Data)
	}
	e.mu.Unlock()
	e.signal()
}

func (e *hubFollower) markLost() {
	e.mu.Lock()
	e.lost, e.queue, e.bytes = true, nil, 0
	e.mu.Unlock()
	e.signal()
}

func (e *hubFollower) signal() {
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// Take returns what has come since the last call. lost says that there was more, which was dropped: then it returns
// nothing, and the follower must read what is stored.
func (e *hubFollower) Take() (msgs []*broker.LiveMsg, lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	msgs, lost = e.queue, e.lost
	e.queue, e.bytes, e.lost = nil, 0, false
	return msgs, lost
}

// streamEnd is the last sequence of a stream, from its leader.
func (b *Broker) streamEnd(ctx context.Context, stream string) (uint64, error) {
	s, err := retry(ctx, func(ctx context.Context) (jetstream.Stream, error) { return b.js.Stream(ctx, stream) })
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	return s.CachedInfo().State.LastSeq, nil
}
