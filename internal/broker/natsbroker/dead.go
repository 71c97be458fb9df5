package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/toolyard/toolyard/internal/broker"
)

// The limits of messages that could not be used.
const (

	// buryTimeout bounds the storing of a dead letter, which must not delay other work.
	buryTimeout = 5 * time.Second
)

func deadSubject(l *broker.DeadLetter) string {
	token := func(name string) string {
		if name == "" {
			return broker.NoPool
		}
		return broker.Escape(name)
	}
	return prefixDead + l.Kind + "." + token(string(l.Agent)) + "." + token(string(l.Batch))
}

// Bury records a dead letter with the beginning of its data.
func (b *Broker) Bury(ctx context.Context, l broker.DeadLetter, data []byte) error {
	l.Time, l.By, l.Bytes = time.Now().UTC(), b.source, len(data)
	if len(l.Cause) > broker.MaxDeadCauseBytes {
		l.Cause = strings.ToValidUTF8(l.Cause[:broker.MaxDeadCauseBytes], "") + "…"
	}
	clipped := data[:min(len(data), broker.MaxDeadDataBytes)]
	if text := whole(clipped); utf8.Valid(text) {
		l.Data = string(text)
	} else {
		l.DataBase64 = clipped
	}
	if b.guest != nil {
		_, err := b.question(ctx, opBury, l, clipped)
		return err
	}
	encoded, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode a dead letter: %w", err)
	}
	msg := nats.NewMsg(deadSubject(&l))
	msg.Data = encoded
	ctx, cancel := context.WithTimeout(ctx, buryTimeout)
	defer cancel()
	if _, err := b.publish(ctx, streamDead, msg); err != nil {
		return fmt.Errorf("record a dead letter of %s: %w", l.Subject, err)
	}
	return nil
}

// whole drops a partial character at the end.
func whole(text []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if i := len(text) - n; utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}

// DeadLetters returns the newest dead letters, newest first.
func (b *Broker) DeadLetters(ctx context.Context, most int) ([]broker.DeadLetter, error) {
	stream, err := retry(ctx, func(ctx context.Context) (jetstream.Stream,
		error) {
		return b.js.Stream(ctx, streamDead)
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", streamDead, err)
	}
	state := stream.CachedInfo().State
	out := []broker.DeadLetter{}
	for seq := state.LastSeq; seq >= max(state.FirstSeq, 1) && len(out) < most; seq-- {
		m, err := b.hotAt(ctx, streamDead, "", seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // it has expired since
		}
		if err != nil {
			return out, err
		}
		var l broker.DeadLetter
		if err := json.Unmarshal(m.data, &l); err != nil { // any writer of the stream may write anything
			l = broker.DeadLetter{Time: m.time, Subject: m.subject, Seq: m.seq,
				Cause: "the dead letter itself cannot be read: " + err.Error(), Bytes: len(m.data)}
		}
		out = append(out, l)
	}
	return out, nil
}
