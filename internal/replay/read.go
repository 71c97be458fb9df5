package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// The limits of an event log in a file.
const (
	// MaxFileBytes is the longest log.
	MaxFileBytes = 256 << 20
	// MaxLineBytes is the longest event: the longest data that is ever stored, and its envelope.
	MaxLineBytes = 65 << 20
)

// Event is one stored event with its envelope.
type Event struct {
	batch.Record
	Meta events.Meta
}

// Read reads an event log, one CloudEvent in JSON per line, as "--events" writes it. An event's position in the file
// replaces its sequence, and its writer's clock the time at which it was stored. An error is a [*toolyard.InputError]
// and ends the reading.
func Read(r io.Reader) iter.Seq2[Event, error] { return read(r, MaxFileBytes, MaxLineBytes) }

func read(r io.Reader, maxFile int64, maxLine int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		limited := &io.LimitedReader{R: r, N: maxFile + 1}
		lines := bufio.NewScanner(limited)
		lines.Buffer(nil, maxLine)
		line, found := 0, 0
		wrong := func(tooLarge bool, format string, args ...any) {
			yield(Event{}, &toolyard.InputError{TooLarge: tooLarge, Problem: fmt.Sprintf(format, args...)})
		}
		for lines.Scan() {
			line++
			if limited.N <= 0 {
				break
			}
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			e, err := Decode(text, uint64(line))
			if err != nil {
				wrong(false, "line %d: %v", line, err)
				return
			}
			found++
			if !yield(e, nil) {
				return
			}
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			wrong(true, "line %d has more than %d bytes, the most that an event may have", line+1, maxLine)
		case err != nil:
			yield(Event{}, fmt.Errorf("read line %d: %w", line+1, err))
		case limited.N <= 0:
			wrong(true, "the log has more than %d bytes, the most that is read", maxFile)
		case found == 0:
			wrong(false, "the log is empty; it should have one CloudEvent a line, as --events writes them")
		}
	}
}

// Decode reads one event, a CloudEvent in JSON as on a line of [Read]. seq is its position in the log. An event that
// only a newer version knows is an [events.Newer].
func Decode(text []byte, seq uint64) (Event, error) {
	meta, body, err := events.DecodeJSON(text)
	if body, err = events.OrNewer(body, err); err != nil {
		return Event{}, err
	}
	e := Event{Meta: meta, Record: batch.Record{Seq: seq, Time: meta.Time, Body: body}}
	_, index, inCall, err := about(meta.Subject)
	switch b := body.(type) {
	case events.Submitted:
		e.Chain = batch.ChainSubmission // the agent chose its subject
		return e, nil
	case events.Canceled, events.Interrupted:
		e.Chain = batch.ChainControl
	case events.Appended, events.Closed:
		e.Chain = batch.ChainInput
	case events.Refused:
		e.Chain = batch.ChainReply
	case events.Reply:
		e.Chain = batch.ChainReply
		if len(b.Results) > 0 {
			e.Index = b.Results[0].Index
		}
	case events.Newer: // in whichever chain it is
		return e, nil
	case events.Unreadable: // whatever its subject was
		if e.Chain = batch.Chain(b.Chain); e.Chain != batch.ChainControl && e.Chain != batch.ChainInput {
			return e, fmt.Errorf("the chain of an event that could not be read is %.20q", b.Chain)
		}
		return e, nil
	case events.Requested:
		return e, fmt.Errorf("an event of type %s is work for a queue, and is never part of a batch's log", body.EventType())
	default:
		e.Chain = batch.ChainBatch
		if inCall {
			e.Chain, e.Index = batch.ChainItem, index
		}
	}
	return e, err
}

// about parses the subject of an event: "<agent>/<batch>", or "<agent>/<batch>/<index>" for one of a call.
func about(subject string) (k toolyard.BatchKey, index int, inCall bool, err error) {
	parts := strings.Split(subject, "/")
	bad := fmt.Errorf("the subject %q is not <agent>/<batch> or <agent>/<batch>/<index>", subject)
	if len(parts) != 2 && len(parts) != 3 {
		return k, 0, false, bad
	}
	var names [2]string
	for i := range names {
		// The escapes are those of URLs with "=" in place of "%", and no other part of a URL is possible here.
		if names[i], err = url.PathUnescape(strings.ReplaceAll(parts[i], "=", "%")); err != nil || names[i] == "" {
			return k, 0, false, bad
		}
	}
	if len(parts) == 3 {
		if index, err = strconv.Atoi(parts[2]); err != nil || index < 0 {
			return k, 0, false, bad
		}
	}
	return toolyard.BatchKey{Agent: toolyard.Agent(names[0]), ID: toolyard.BatchID(names[1])}, index, len(parts) == 3,
		nil
}
