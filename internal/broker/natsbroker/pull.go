package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/toolyard/toolyard/internal/broker"
)

// The answers to a request that are not messages.
const (
	statusHeader      = "Status"
	statusDescription = "Description"
	statusHeartbeat   = "100"
	statusBadRequest  = "400"
	statusExpired     = "408"
	statusNobody      = "503" // no leader now, or no such consumer
)

// message is a received message, with its time.
type message struct {
	*nats.Msg
	received time.Time
}

// maxArrived is how many messages and answers of one consumer wait here: those of two requests, if one is late.
const maxArrived = 2 * prefetchSubmissions

// pull receives the messages of one pull consumer. It has one request at the server at a time, and makes the next one
// when that is over. The goroutine that counts messages also makes the requests. (The iterators of nats.go use another
// goroutine, and skip a request if its answer comes before that goroutine continues; see
// docs/adr/0022-our-own-pull.md.) Only one goroutine at a time may call next, one or all; any may call stop.
type pull struct {
	nc      *nats.Conn
	subject string // the subject of requests
	inbox   string // the prefix of the replies' subjects; each request has its own name under it
	sub     *nats.Subscription
	in      chan message     // what has come
	back    chan nats.Status // the connection has been restored
	ctx     context.Context  // until stop
	end     context.CancelFunc
	once    sync.Once
	// lease is the longest expiry of a request. It is less than the ack wait, so that when a message comes back from a
	// silent client, no request of that client is left to receive it again.
	lease time.Duration
	// lost is how long after it was made a request counts as lost, if the server has not said that it is over.
	lost time.Duration
	// unwanted gets messages that have come but are not received any more.
	unwanted func(message)
	// find returns an error if the consumer does not exist; nil: nobody here can say. looked is when it was called.
	find   func(context.Context) error
	looked time.Time

	rand   *rand.Rand // the random expiry of requests; see standing
	number int        // of the last request
	made   time.Time  // when that was
	left   int        // how many messages it may still bring; 0: it is over
	pause  time.Duration
}

// pull starts to receive the messages of a consumer with the given ack wait. unwanted gets messages that have come and
// were not received when it was stopped.
func (b *Broker) pull(stream, consumer string, ackWait time.Duration, unwanted func(message)) (*pull, error) {
	p := &pull{
		nc: b.nc, inbox: b.nc.NewInbox(),
		subject: fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", b.name(stream), consumer),
		in:      make(chan message, maxArrived), lease: broker.Lease(ackWait), lost: ackWait, pause: firstPause,
		unwanted: unwanted, rand: b.draws(b.name(stream) + "/" + consumer), looked: time.Now(),
	}
	if b.guest == nil {
		p.find = func(ctx context.Context) error {
			_, err := b.js.Consumer(ctx, b.name(stream), consumer)
			if errors.Is(err, jetstream.ErrConsumerNotFound) {
				return jetstream.ErrConsumerDeleted
			}
			return nil // it is there, or nobody answers now
		}
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	var err error
	if p.sub, err = p.nc.Subscribe(p.inbox+".*", p.receive); err == nil {
		err = p.sub.SetPendingLimits(-1, -1) // the request is the limit
	}
	if err != nil {
		return nil, fmt.Errorf("take from consumer %s of %s: %w", consumer, stream, err)
	}
	p.sub.SetClosedHandler(func(string) { p.end() })
	p.back = p.nc.StatusChanged(nats.CONNECTED)
	return p, nil
}

// receive records when a message came. If the pull has stopped, it gives the message back.
func (p *pull) receive(m *nats.Msg) {
	m.Subject = canonical(m.Subject)
	got := message{m, time.Now()}
	select {
	case p.in <- got:
	case <-p.ctx.Done():
		p.giveBack(got)
	}
	if p.ctx.Err() != nil { // stop may not have seen the message that was just put there
		p.giveAllBack()
	}
}

func (p *pull) giveAllBack() {
	for {
		select {
		case m := <-p.in:
			p.giveBack(m)
		default:
			return
		}
	}
}

func (p *pull) giveBack(m message) {
	if m.Reply != "" { // and not a status of a request
		p.unwanted(m)
	}
}

// nak gives a message back.
func nak(m message) {
	_ = m.Nak() // if it is lost, the message is redelivered after its ack wait
}

// stop ends the receiving. Messages that have come and were not received are given back.
func (p *pull) stop() {
	p.once.Do(func() {
		p.end()
		p.nc.RemoveStatusListener(p.back)
		_ = p.sub.Drain() // it fails if the connection is closed, and then nothing comes any more
		p.giveAllBack()
	})
}

// request makes a request for n messages.
func (p *pull) request(n int) error {
	p.number++
	p.made = time.Now()
	request := fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, n, standing(p.rand, p.lease).Nanoseconds())
	if err := p.nc.PublishRequest(p.subject, p.reply(), request); err != nil {
		return err
	}
	p.left = n
	return nil
}

// draws returns a random source that differs between processes, because their names differ, and is the same in each
// run, so that a simulation can be repeated.
func (b *Broker) draws(purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(b.source + " " + purpose)) // it never fails
	return rand.New(rand.NewPCG(h.Sum64(), 0))
}

// standing is the expiry of the next request: between half the lease and all of it, at random. The server delivers a
// message to the request that has waited longest. If all had the same expiry, their order would repeat, and a message
// that comes back once a second could always go to the same processes.
func standing(r *rand.Rand, lease time.Duration) time.Duration {
	return lease - time.Duration(r.Int64N(int64(lease/2)))
}

// reply is the reply subject of the last request.
func (p *pull) reply() string { return p.inbox + "." + strconv.Itoa(p.number) }

// next returns the next message of the current request, or of a new one for n messages. It returns nil if the request
// is over and has brought no more. [ErrStopped] is the end.
func (p *pull) next(n int) (*message, error) {
	if p.ctx.Err() != nil {
		return nil, broker.ErrStopped
	}
	// While the connection is lost, requests would accumulate and all be sent when it is back.
	if p.left == 0 && (!p.nc.IsConnected() || p.request(n) != nil) {
		return nil, p.backOff()
	}
	lost := time.NewTimer(time.Until(p.made.Add(p.lost)))
	defer lost.Stop()
	for p.left > 0 {
		select {
		case m := <-p.in:
			status := m.Header.Get(statusHeader)
			switch {
			case status == "" || len(m.Data) > 0:
				p.left-- // if it belongs to an earlier request, this request brings one more than is counted
				p.pause = firstPause
				return &m, nil
			case status == statusHeartbeat || m.Subject != p.reply(): // that one ends an earlier request
			case status == statusExpired:
				p.left, p.pause = 0, firstPause
			case status == statusBadRequest:
				return nil, fmt.Errorf("take from a consumer: %s", m.Header.Get(statusDescription))
			case strings.EqualFold(m.Header.Get(statusDescription), "Consumer Deleted"):
				return nil, fmt.Errorf("take from a consumer: %w", jetstream.ErrConsumerDeleted)
			default: // a server that stops, a leader that changes, no leader, no room for requests: it passes
				p.left = 0
				if status == statusNobody {
					if err := p.look(); err != nil {
						return nil, fmt.Errorf("take from a consumer: %w", err)
					}
				}
				return nil, p.backOff()
			}
		case <-p.back: // the request may be gone with the former connection
			p.left = 0
		case <-lost.C:
			p.left = 0
		case <-p.ctx.Done():
			return nil, broker.ErrStopped
		}
	}
	return nil, nil
}

// lookAgain is how long nobody must answer before a pull looks whether its consumer exists, and then again.
const lookAgain = 10 * time.Second

// look finds out from time to time whether the consumer of requests that nobody answers exists. It may have been
// deleted while no request stood, which the server then tells nobody.
func (p *pull) look() error {
	if p.find == nil || time.Since(p.looked) < lookAgain {
		return nil
	}
	p.looked = time.Now()
	ctx, cancel := context.WithTimeout(p.ctx, attemptTimeout)
	defer cancel()
	return p.find(ctx)
}

// backOff waits before the next request, longer each time until a message comes or the connection is back.
func (p *pull) backOff() error {
	t := time.NewTimer(p.pause)
	defer t.Stop()
	p.pause = min(2*p.pause, longestPause)
	select {
	case <-t.C:
	case <-p.back:
	case <-p.ctx.Done():
		return broker.ErrStopped
	}
	return nil
}

// one returns the next message, with as many requests for n as needed.
func (p *pull) one(n int) (*message, error) {
	for {
		if m, err := p.next(n); m != nil || err != nil {
			return m, err
		}
	}
}

// all yields the messages of one request for n. The last yielded value may be an error, which ends it for good.
func (p *pull) all(n int) iter.Seq2[*message, error] {
	return func(yield func(*message, error) bool) {
		for {
			m, err := p.next(n)
			if m == nil && err == nil || !yield(m, err) || err != nil || p.left == 0 {
				return
			}
		}
	}
}
