// Package natsbroker implements the ports of package broker on NATS JetStream. Only it knows streams, subjects,
// consumers and headers.
//
// Authority: the streams. Everything that must happen once uses one primitive, [Broker.Append]: an event is stored at
// the end of a chain only if the chain still has the last sequence that the writer saw.
//
//	what           where                                      who writes               fence
//	submission     TY_BATCH  ty.batch.<agent>.<batch>         agents                   expected 0
//	wake           TY_BATCH  ty.wake.<agent>.<batch>          anyone with news for a   none: it names what it wakes
//	                                                          parked batch
//	batch events   TY_EVENT  ty.event.<agent>.<batch>._.*     the owner; control: any  expected last, per chain
//	call events    TY_EVENT  ty.event.<agent>.<batch>.<p>.<i> claiming worker, owner   expected last
//	work           TY_CALL   ty.call.<class>.<pool>.…         owners                   none: duplicates lose at the claim
//	replies        TY_REPLY  ty.reply.<agent>.<batch>         the owner                expected last
//	tickets        ty_ticket one key a workspace in use       dispatchers              expected revision
//	workers        ty_worker one key a worker, with a TTL     that worker
//	sessions       ty_session one key a session               owners, people           expected revision
//	index          ty_index  one key a batch, no values       the owner                none: the log is right
//	approvals      ty_approval one key a waiting call         the owner                none: the log is right
//	dead letters   TY_DEAD   ty.dead.<kind>.<agent>.<batch>   anyone who finds one     none: a record for people
//	blobs          ty_blob   objects named by their content   anybody                  the name
//	archive        TY_ARCHIVE ty.archive.<sum of the object>  dispatchers              the record on the batch chain
//
// Ordering: appends to one chain are ordered; between chains there is no order. Live copies of stored events come over
// core NATS and may be lost: they are hints to read.
//
// Failure: an append whose answer is lost is repeated with the same event id, and recognises its own event in the
// stream. Reads that decide something go to the stream's leader, since any other replica may lag.
package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/version"
)

// Broker is a connection to the streams. It is safe for concurrent use.
type Broker struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	bulk      jetstream.JetStream              // the same, for parts of objects: their answers may take longer
	held      *atomic.Pointer[broker.Settings] // the settings, which may change
	source    string
	build     string
	outage    *outage
	linkWatch *linkWatch

	streams   map[string]jetstream.Stream
	tickets   jetstream.KeyValue
	workers   jetstream.KeyValue
	sessions  jetstream.KeyValue
	approvals jetstream.KeyValue
	blobs     jetstream.ObjectStore

	// system is what is known of the shards. one says that this is the broker of one of them, and shard of which.
	system *system
	one    bool
	shard  int
	// serves are the shards that this process takes batches and calls of. Everything else is done in all.
	serves shard.Set

	forgotten *forgotten
	earlier   *earlier
	fresh     *fresh
	archived  *archived
	// pools is how many pools may have work queues.
	pools int
	guest *guest // nil: the connection uses the platform's account, which has the streams
}

// Open creates the missing streams, as a dispatcher does, and returns a broker on them. source is the writer, as a URI
// reference ("/dispatcher/<id>"). The caller closes the connection. Open fails if a relation between the settings is
// violated, if the system was created with other settings or by a version that this one cannot follow, if the
// connection's account has no streams, or if the server does not answer within ctx. Then it has created nothing.
func Open(ctx context.Context, nc *nats.Conn, settings broker.Settings, source string) (*Broker, error) {
	want := settings.WithDefaults()
	if err := want.Check(); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	b, err := on(nc, want, source)
	if err != nil {
		return nil, err
	}
	pause := firstPause
	for begun := time.Now(); ; { // wait for a cluster that is electing its leaders
		err := b.open(ctx, settings)
		if err == nil {
			return b, nil
		}
		if noJetStream(err) {
			if err := b.foreign(ctx, err, time.Since(begun)); err != nil {
				return nil, err
			}
		}
		if !MayPass(err) || wait(ctx, &pause) != nil {
			return nil, err
		}
	}
}

func (b *Broker) open(ctx context.Context, wanted broker.Settings) error {
	f, err := b.find(ctx)
	if err != nil {
		return err
	}
	if f != nil {
		if err := errors.Join(f.settings.Agree(wanted), f.check()); err != nil {
			return err
		}
		b.held.Store(&f.settings) // also for what is missing
	} else if err := b.mayCompress(b.Settings()); err != nil {
		return err
	}
	if err := b.create(ctx); err != nil {
		return err
	}
	if err := b.attach(ctx); err != nil {
		return err
	}
	return b.Settings().Agree(wanted) // another dispatcher may have created it in the meantime
}

// Join returns a broker on a system that a dispatcher has created, with its settings. While there is none, or none that
// answers, it waits until ctx ends, and calls waiting once.
func Join(ctx context.Context, nc *nats.Conn, source string, waiting func(why error)) (*Broker, error) {
	pause := firstPause
	for {
		b, err := Attach(ctx, nc, source)
		if err == nil || !errors.Is(err, broker.ErrNoSystem) && !MayPass(err) {
			return b, err
		}
		if waiting != nil {
			waiting(err)
			waiting = nil
		}
		if wait(ctx, &pause) != nil {
			return nil, err
		}
	}
}

// Attach returns a broker on a system that a dispatcher has created, with its settings, or [ErrNoSystem].
func Attach(ctx context.Context, nc *nats.Conn, source string) (*Broker, error) {
	b, err := on(nc, broker.Settings{}, source)
	if err != nil {
		return nil, err
	}
	err = b.attach(ctx)
	switch {
	case noJetStream(err):
		err = b.attachGuest(ctx, err)
	case errors.Is(err, nats.ErrNoResponders) && b.attachGuest(ctx, err) == nil:
		err = nil // behind a leaf node nobody says that the account has no JetStream
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("%w (%w)", broker.ErrNoSystem, err)
	}
	return b, err
}

func on(nc *nats.Conn, settings broker.Settings, source string) (*Broker, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(attemptTimeout))
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	bulk, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(longestAttempt))
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	b := &Broker{nc: nc, js: js, bulk: bulk, held: &atomic.Pointer[broker.Settings]{}, source: source,
		build: version.Build(), forgotten: &forgotten{}, earlier: &earlier{}, archived: newArchived(),
		fresh: &fresh{}, system: newSystem(), outage: &outage{}, linkWatch: &linkWatch{}, pools: broker.MaxPools}
	b.held.Store(&settings)
	b.outage.watch(nc)
	return b, nil
}

// As returns the same broker for another writer in the same process.
func (b *Broker) As(source string) *Broker {
	other := *b
	other.source = source
	return &other
}

// Serve returns the same broker for a process that takes batches and calls of some shards only; nil: of all. It fails
// if the system does not have one of them.
func (b *Broker) Serve(only shard.Set) (*Broker, error) {
	if err := only.Check(b.view().Served()); err != nil {
		return nil, err
	}
	other := *b
	other.serves = only
	return &other, nil
}

// Who returns whose account the connection uses; the zero Principal if it is the platform's, or there are no accounts.
func (b *Broker) Who() access.Principal {
	if b.guest == nil {
		return access.Principal{}
	}
	return b.guest.who
}

// Settings returns the system's settings.
func (b *Broker) Settings() broker.Settings { return *b.held.Load() }
