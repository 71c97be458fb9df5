package natsbroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/archive"
	"github.com/toolyard/toolyard/internal/broker"
)

// ErrNotArchived says that a batch is not in the archive, so that nobody has signed its log.
var ErrNotArchived = errors.New("the batch is not archived, and what is not archived is not signed")

// Proof is what the archive says of a batch's log.
type Proof struct {
	// Entry is the batch in the object's list, with its signature. Object is the object's name.
	Entry  archive.Entry
	Object string
	// Messages are so many, stored from First to Last.
	Messages    int
	First, Last time.Time
	// Strange names messages of the batch in the streams that are no part of the log that was archived.
	Strange []string
}

// Prove reads the archived log of a batch, and looks for what was stored of the batch beside it. It returns
// [broker.ErrNoBatch], [ErrNotArchived], and a [*broker.LostError] when the log is not the one that the record names.
func (b *Broker) Prove(ctx context.Context, k toolyard.BatchKey) (p Proof, err error) {
	b, err = b.of(ctx, k)
	if err != nil {
		return p, err
	}
	rec, ok, err := b.archivedRecord(ctx, k)
	if err != nil {
		return p, err
	}
	if !ok {
		if _, ok, err = b.hotLast(ctx, streamBatch, subjectBatch(k)); err == nil && ok {
			err = ErrNotArchived
		}
		if err == nil {
			err = broker.ErrNoBatch
		}
		return p, err
	}
	object, err := b.archiveObject(ctx, rec.Object)
	if err != nil {
		return p, err
	}
	lost := func(problem string) error {
		return &broker.LostError{Subject: prefixArchive + rec.Object, Problem: problem}
	}
	if object == nil {
		return p, lost("it is gone")
	}
	log, err := object.Log(k, rec.Sum)
	if err != nil {
		return p, lost(err.Error())
	}
	if len(log.Messages) == 0 {
		return p, lost("the log in it has no messages")
	}
	p.Object, p.Messages = rec.Object, len(log.Messages)
	p.Entry, _ = object.Entry(k, rec.Sum)
	p.First, p.Last = log.Messages[0].Time, log.Messages[0].Time
	for _, m := range log.Messages {
		if m.Time.Before(p.First) {
			p.First = m.Time
		}
		if m.Time.After(p.Last) {
			p.Last = m.Time
		}
	}
	p.Strange, err = b.strange(ctx, k, log.Messages)
	return p, err
}

// strange names the messages of an archived batch in the streams that are neither fences nor, not deleted yet, of its
// log.
func (b *Broker) strange(ctx context.Context, k toolyard.BatchKey, log []archive.Message) (out []string, err error) {
	for _, of := range []struct{ stream, subject string }{
		{streamBatch, subjectBatch(k)}, {streamEvent, subjectEvents(k)}, {streamReply, subjectReply(k)},
	} {
		for at := uint64(0); ; {
			m, ok, err := b.hotAfter(ctx, of.stream, of.subject, at)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			at = m.seq
			if m.fence() || slices.ContainsFunc(log, func(l archive.Message) bool {
				return l.Subject == m.subject && l.Seq == m.seq && l.Time.Equal(m.time) &&
					bytes.Equal(l.Data, m.data) && maps.EqualFunc(l.Header, m.header, slices.Equal)
			}) {
				continue
			}
			out = append(out, fmt.Sprintf("message %d on %s", m.seq, m.subject))
			if len(out) == maxStrange {
				return out, nil
			}
		}
	}
	return out, nil
}

// maxStrange is how many messages a proof names.
const maxStrange = 100
