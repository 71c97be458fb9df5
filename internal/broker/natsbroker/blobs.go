package natsbroker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/gate"
	"github.com/toolyard/toolyard/tool"
)

// objectName names an object by its kind and content, so that storing it twice stores the same object.
func objectName(kind string, content []byte) string {
	return kind + "." + sumOf(content)
}

// sumOf is the hash in a name of [objectName].
func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// prefixSurface begins the names of surfaces. They end in the hash of the surface, which is not that of what is stored.
const prefixSurface = "surface."

// names reports whether the name of an object ends in the hash of a content.
func names(name string, content []byte) bool {
	return name[strings.LastIndexByte(name, '.')+1:] == sumOf(content)
}

// putObject stores content under a name that is made from it, for at least a lifetime and the slack. If the object
// exists and is younger than the slack, it is kept, since it lasts long enough.
func (b *Broker) putObject(ctx context.Context, name string, content []byte) error {
	if b.guest != nil {
		if err := b.guest.put(ctx, b, objectQuestion{Name: name, Call: broker.CallOf(ctx)}, content); err != nil {
			return fmt.Errorf("store object %s (%d bytes): %w", name, len(content), err)
		}
		return nil
	}
	if stored, err := b.isStored(ctx, name); stored || err != nil {
		return err
	}
	var storing gate.Gate
	done := false
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) {
		// Not beside the request that this one repeats: each would store all parts, and all but one would be left.
		err := storing.LockWithin(ctx)
		if err != nil {
			return struct{}{}, err
		}
		defer storing.Unlock()
		if !done {
			err = b.putWhole(ctx, name, content)
			done = err == nil
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("store object %s (%d bytes): %w", name, len(content), err)
	}
	return nil
}

const (
	// chunkBytes is the size of the parts in which an object is stored: that of the client library.
	chunkBytes = 128 << 10
	// silentPart is how long no answer comes to a part of an object until it is stored anew.
	silentPart = 2 * attemptTimeout
	// The subjects of an object: its parts, by a name that is new each time it is stored, and its description, by its
	// name, of which the stream keeps the last one.
	prefixChunks      = "$O." + bucketBlob + ".C."
	prefixDescription = "$O." + bucketBlob + ".M."
)

// putWhole stores an object in the form of the client library, in the place of the one that has its name. Its
// description is stored when all of its parts are. PutBytes of nats.go 1.55 sends all of it at once: where the store is
// full the parts are refused, and the description, for which there is room, takes the place of an object that was
// whole.
func (b *Broker) putWhole(ctx context.Context, name string, content []byte) error {
	asking, cancel := context.WithTimeout(ctx, silentPart)
	defer cancel()
	was, err := b.blobs.GetInfo(asking, name, jetstream.GetObjectInfoShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	info := jetstream.ObjectInfo{Bucket: bucketBlob, NUID: broker.NewID(), Size: uint64(len(content)),
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}}}
	of := []jetstream.PublishOpt{jetstream.WithExpectStream("OBJ_" + bucketBlob), jetstream.WithRetryAttempts(0)}
	chunks := prefixChunks + info.NUID
	digest := sha256.New()
	var sent []jetstream.PubAckFuture
	for part := range slices.Chunk(content, chunkBytes) {
		digest.Write(part)
		ack, err := b.bulk.PublishMsgAsync(&nats.Msg{Subject: chunks, Data: part}, of...)
		if err != nil {
			b.dropLater(ctx, chunks, sent)
			return err
		}
		sent = append(sent, ack)
	}
	// One that is refused may be followed by one for which there is room when the others are deleted.
	var refused error
	for i, ack := range sent {
		silent := time.NewTimer(silentPart)
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			refused = cmp.Or(refused, err)
		case <-silent.C:
			b.dropLater(ctx, chunks, sent[i:])
			return cmp.Or(refused, nats.ErrTimeout)
		case <-ctx.Done():
			silent.Stop()
			b.dropLater(ctx, chunks, sent[i:])
			return cmp.Or(refused, context.Cause(ctx))
		}
		silent.Stop()
	}
	if refused != nil {
		b.dropChunks(ctx, chunks)
		return refused
	}
	info.Chunks, info.Digest = uint32(len(sent)), jetstream.GetObjectDigestValue(digest)
	description := nats.NewMsg(prefixDescription + base64.URLEncoding.EncodeToString([]byte(name)))
	description.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	if description.Data, err = json.Marshal(info); err != nil {
		return fmt.Errorf("describe object %s: %w", name, err)
	}
	describing, cancel := context.WithTimeout(ctx, silentPart)
	defer cancel()
	if _, err := b.js.PublishMsg(describing, description, of...); err != nil {
		if _, refused := errors.AsType[*jetstream.APIError](err); refused { // otherwise it may be stored
			b.dropChunks(ctx, chunks)
		}
		return err
	}
	if was != nil && !was.Deleted {
		b.dropChunks(ctx, prefixChunks+was.NUID)
	}
	return nil
}

// dropLater is dropChunks when all parts that were sent are stored or refused: those on their way would come behind it.
func (b *Broker) dropLater(ctx context.Context, chunks string, sent []jetstream.PubAckFuture) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*longestAttempt) // each is over behind one
	go func() {
		defer cancel()
		for _, ack := range sent {
			select {
			case <-ack.Ok():
			case <-ack.Err():
			case <-ctx.Done():
			}
		}
		b.dropChunks(ctx, chunks)
	}()
}

// dropChunks deletes the parts of an object that nobody can find. What it cannot delete goes when it is too old.
func (b *Broker) dropChunks(ctx context.Context, chunks string) {
	if s, err := b.js.Stream(ctx, "OBJ_"+bucketBlob); err == nil {
		_ = s.Purge(ctx, jetstream.WithPurgeSubject(chunks))
	}
}

// isStored reports whether an object is there, with all of its parts, and stays for a while. One that has lost parts is
// stored again by whoever has its content.
func (b *Broker) isStored(ctx context.Context, name string) (bool, error) {
	stored, err := retry(ctx, func(ctx context.Context) (bool, error) {
		info, err := b.blobs.GetInfo(ctx, name)
		if err != nil || time.Since(info.ModTime) >= b.Settings().Slack/2 {
			return false, err
		}
		return b.hasParts(ctx, info)
	})
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return false, fmt.Errorf("look for object %s: %w", name, err)
	}
	return stored, nil
}

// hasParts reports whether all parts of an object are there.
func (b *Broker) hasParts(ctx context.Context, info *jetstream.ObjectInfo) (bool, error) {
	chunks := prefixChunks + info.NUID
	s, err := b.js.Stream(ctx, "OBJ_"+bucketBlob)
	if err != nil {
		return false, err
	}
	there, err := s.Info(ctx, jetstream.WithSubjectFilter(chunks))
	if err != nil {
		return false, err
	}
	return there.State.Subjects[chunks] >= uint64(info.Chunks), nil
}

func (b *Broker) getObject(ctx context.Context, name string) ([]byte, error) {
	if err := b.awaitRoom(ctx, name); errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, broker.ErrNoObject
	} else if err != nil {
		return nil, fmt.Errorf("read object %s: %w", name, err)
	}
	var asked atomic.Bool
	content, err := retry(ctx, func(ctx context.Context) ([]byte, error) {
		if b.guest != nil {
			return b.guest.get(ctx, b, objectQuestion{Name: name, Call: broker.CallOf(ctx)})
		}
		if asked.Swap(true) { // no answer came: that may be why
			if err := b.partsMissing(ctx, name); err != nil {
				return nil, err
			}
		}
		return abandoned(ctx, func() ([]byte, error) { return b.blobs.GetBytes(ctx, name) })
	})
	switch {
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return nil, broker.ErrNoObject
	case errors.Is(err, jetstream.ErrDigestMismatch):
		return nil, &broker.LostError{Subject: "object " + name, Problem: "what is left of it is not what was stored"}
	case err != nil:
		return nil, fmt.Errorf("read object %s: %w", name, err)
	}
	return content, nil
}

// partsMissing is [jetstream.ErrDigestMismatch] if parts of an object are not there. The client library finds that out
// where some are left. Where none are, it waits for the first one.
func (b *Broker) partsMissing(ctx context.Context, name string) error {
	info, err := b.blobs.GetInfo(ctx, name)
	if err != nil {
		return err
	}
	if whole, err := b.hasParts(ctx, info); whole || err != nil {
		return err
	}
	again, err := b.blobs.GetInfo(ctx, name)
	if err == nil && again.NUID == info.NUID { // nobody has stored it again meanwhile, in other parts
		err = jetstream.ErrDigestMismatch
	}
	return err
}

// abandoned waits for a function until ctx ends. GetBytes of nats.go 1.55 goes on until the deadline of its context,
// whoever has canceled it: it waits for parts that will not come when somebody has stored the object again meanwhile.
func abandoned[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := do()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// PutSurface stores a surface or a toolset under its hash.
func (b *Broker) PutSurface(ctx context.Context, hash string, content []byte) error {
	return b.putObject(ctx, prefixSurface+broker.Escape(hash), content)
}

// Surface reads what [Broker.PutSurface] stored.
func (b *Broker) Surface(ctx context.Context, hash string) ([]byte, error) {
	content, err := b.getObject(ctx, prefixSurface+broker.Escape(hash))
	if errors.Is(err, broker.ErrNoObject) {
		return nil, fmt.Errorf("surface %s: %w", hash, err)
	}
	return content, err
}

// refPrefix begins the references of offloaded results.
const refPrefix = "result-"

// PutResult offloads a result of an agent and returns its reference. Only that agent's calls can read it.
func (b *Broker) PutResult(ctx context.Context, agent toolyard.Agent, content []byte) (ref string, err error) {
	name := objectName("result."+broker.Escape(string(agent)), content)
	if err := b.putObject(ctx, name, content); err != nil {
		return "", err
	}
	return refPrefix + name[strings.LastIndexByte(name, '.')+1:], nil
}

// Result reads an offloaded result of an agent. It wraps [tool.ErrNoBlob] if the agent has none with that reference.
func (b *Broker) Result(ctx context.Context, agent toolyard.Agent, ref string) ([]byte, error) {
	sum, ok := strings.CutPrefix(ref, refPrefix)
	if _, err := hex.DecodeString(sum); !ok || err != nil || len(sum) != 2*sha256.Size {
		return nil, fmt.Errorf("%w: a reference is %q and %d hexadecimal digits", tool.ErrNoBlob, refPrefix,
			2*sha256.Size)
	}
	content, err := b.getObject(ctx, "result."+broker.Escape(string(agent))+"."+sum)
	if errors.Is(err, broker.ErrNoObject) {
		return nil, fmt.Errorf("%w: %s", tool.ErrNoBlob, ref)
	}
	return content, err
}
