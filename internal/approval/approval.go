// Package approval is what a person may decide about a call that waits for one.
//
// Authority: the call's own chain. A decision is an append to it behind the question, so there is one.
//
// Failure: a decision that was stored stands, also when what follows it fails. Somebody who was faster is
// [broker.ErrNoApproval], with what was decided.
package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/schema"
)

// Store is what deciding needs of the store.
type Store interface {
	broker.Log
	broker.Inbox
	broker.Approvals
	broker.Asking
	broker.Blobs
	broker.Sessions
}

// RememberSession is a decision's Remember when the session keeps the approval.
const RememberSession = "session"

// Decide stores a person's decision about a call that waits, and wakes its batch. It is about the input that its hash
// names, or about the one that the call waits with: an approval with another hash is a [*toolyard.InputError]. It wraps
// [broker.ErrNoApproval] when somebody was faster, and so does a denial with another hash: the question was answered.
func Decide(ctx context.Context, s Store, k toolyard.BatchKey, index int, d events.Decided) error {
	asked, at, err := waiting(ctx, s, k, index)
	if err != nil {
		return err
	}
	_, err = decide(ctx, s, k, index, d, asked, at)
	return err
}

// behindTimeout bounds what follows a decision that is stored, whoever waits for it: the wake of its batch, and what
// the session remembers.
const behindTimeout = 10 * time.Second

// behind is a context for that. Whoever decides again finds it decided, and cannot make up for it.
func behind(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), behindTimeout)
}

// decide stores a decision about a question that was read, which its end of the chain is behind. The call may ask
// something else since. It may be stored although its batch could not be woken.
func decide(ctx context.Context, s Store, k toolyard.BatchKey, index int, d events.Decided, asked events.Waiting,
	at broker.ItemEnd) (stored bool, err error) {
	if d.Decision == events.Approve && d.Answers != (asked.Form != nil) {
		return false, broker.ErrConflict
	}
	if d.Decision == events.Reject && d.InputSHA256 != "" {
		if d.InputSHA256 != asked.InputSHA256 {
			return false, fmt.Errorf("%w: by now it asks something else", broker.ErrNoApproval)
		}
		d.InputSHA256 = "" // the log says by its place which question is answered
	}
	if d.Decision == events.Approve && d.Edited == "" {
		if err := shownIs(d.InputSHA256, asked); err != nil {
			return false, err
		}
		d.InputSHA256 = asked.InputSHA256
	}
	d.Call = index
	for {
		_, err = s.Append(ctx, k, batch.ChainItem, at.Pool, at.Item, at.Seq, d)
		if !errors.Is(err, broker.ErrConflict) {
			break
		}
		seen, question := at.Seq, asked
		if asked, at, err = waiting(ctx, s, k, index); err != nil {
			return false, err
		}
		if asked.InputSHA256 != question.InputSHA256 || asked.Attempt != question.Attempt {
			return false, broker.ErrNoApproval // the call was decided, went on, and asks something else
		}
		if at.Seq == seen {
			return false, broker.ErrConflict
		}
	}
	if err != nil {
		return false, err
	}
	waking, done := behind(ctx)
	defer done()
	_, err = s.WakeIfParked(waking, k)
	return true, err
}

// Supersede ends the calls of a session that wait for a person, because the session goes on without a decision: those
// that are listed, and whose batch may says it may. It returns the calls that it has ended, also with an error. What
// somebody else has decided meanwhile is left as it is.
func Supersede(ctx context.Context, s Store, a toolyard.Agent, session toolyard.Session, by, reason string,
	may func(toolyard.BatchKey) (bool, error)) (ended []broker.Approval, err error) {
	list, err := s.Approvals(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, w := range list {
		if w.Session != session {
			continue
		}
		if ok, err := may(w.Key()); err != nil {
			return ended, err
		} else if !ok {
			continue
		}
		err := Decide(ctx, s, w.Key(), w.Index, events.Decided{Decision: events.Supersede, By: by, Reason: reason})
		switch {
		case errors.Is(err, broker.ErrNoApproval):
		case err != nil:
			return ended, err
		default:
			ended = append(ended, w)
		}
	}
	return ended, nil
}

// waiting reads what a person is asked about a call, and where the decision goes. A call that is decided has its batch
// woken first: whoever decided may have failed to, and this may be the same person, who tries again.
func waiting(ctx context.Context, s Store, k toolyard.BatchKey, index int,
) (asked events.Waiting, at broker.ItemEnd, err error) {
	asked, at, err = s.Asked(ctx, k, index)
	if errors.Is(err, broker.ErrDecided) {
		if _, unwoken := s.WakeIfParked(ctx, k); unwoken != nil {
			return asked, at, unwoken
		}
	}
	return asked, at, err
}

// Approve stores a person's approval of a call that waits, with another input if one is given: it is checked again
// before it runs. The decision's hash is that of the input that the person has seen, as with [Decide]. What cannot be
// shown whole is approved with another input only. An approval that the session is to remember is written there behind
// it; what was changed cannot be remembered. An input that is no JSON, or with which the call could not run, is a
// [*toolyard.InputError], and the call goes on waiting.
func Approve(ctx context.Context, s Store, k toolyard.BatchKey, index int, d events.Decided,
	input json.RawMessage) error {
	asked, at, err := waiting(ctx, s, k, index)
	if err != nil {
		return err
	}
	if err := shownIs(d.InputSHA256, asked); err != nil {
		return err
	}
	if len(input) == 0 && display.Cut(string(asked.Input)) {
		return &toolyard.InputError{Field: "input", Problem: "the call's input is too long to be shown whole: " +
			"nobody has seen what would run; deny the call, or approve it with an input"}
	}
	d.Decision = events.Approve
	if asked.Form != nil {
		if err := answer(ctx, s, k, asked, &d, input); err != nil {
			return err
		}
		_, err := decide(ctx, s, k, index, d, asked, at)
		return err
	}
	if len(input) > 0 {
		if err := edit(ctx, s, k, &d, input); err != nil {
			return err
		}
	}
	switch d.Remember {
	case "":
	case RememberSession:
		if asked.Remember == "" {
			return &toolyard.InputError{Field: "remember", Problem: "this call cannot be remembered"}
		}
	default:
		problem := fmt.Sprintf("is %q; use %q, or leave it out", d.Remember, RememberSession)
		return &toolyard.InputError{Field: "remember", Problem: problem}
	}
	if d.Edited != "" { // last, since it takes time: an edit that cannot run must not use up the approval
		if err := check(ctx, s, k, index, at.Pool, d); err != nil {
			return err
		}
	}
	stored, err := decide(ctx, s, k, index, d, asked, at)
	if !stored || d.Remember == "" {
		return err
	}
	keeping, done := behind(ctx)
	defer done()
	st, lost := s.Look(keeping, k)
	if lost == nil {
		remember := func(s *broker.Session) { s.Remember(asked.Remember) }
		_, lost = s.ChangeSession(keeping, k.Agent, st.Submission.Session, remember)
	}
	if lost != nil {
		lost = fmt.Errorf("the call is approved, but the session does not remember it: %w", lost)
	}
	return errors.Join(err, lost)
}

// answer puts the answer to a form into a decision: the one that is given, or the form as it is filled in. It must fit
// the form.
func answer(ctx context.Context, s Store, k toolyard.BatchKey, asked events.Waiting, d *events.Decided,
	given json.RawMessage) error {
	field := "input"
	switch {
	case d.Remember != "":
		return &toolyard.InputError{Field: "remember", Problem: "an answer cannot be remembered"}
	case len(given) == 0:
		given, field = asked.Input, ""
	case len(given) > elicit.MaxAnswerBytes:
		return tooLong(len(given))
	}
	v, err := elicit.Fits(asked.Form.Schema, given)
	if err != nil && field == "" {
		err = fmt.Errorf("the tool asks for an answer, and the form alone is none; give one as the input: %w", err)
	}
	if err != nil {
		return &toolyard.InputError{Field: field, Problem: err.Error()}
	}
	if n := len(v.Canonical()); n > elicit.MaxAnswerBytes { // 1e20 is kept as its digits
		return tooLong(n)
	}
	if field != "" && redact.Marked(string(v.Canonical())) {
		return &toolyard.InputError{Field: field, Problem: "it has the mark of a secret that was taken out, and the tool " +
			"would get it as it stands there: write the answer anew"}
	}
	if d.Edited, err = s.PutInput(ctx, k.Agent, v.Canonical()); err != nil {
		return err
	}
	d.InputSHA256, d.Answers = v.Hash(), true
	return nil
}

// tooLong is the error of an answer of n bytes.
func tooLong(n int) error {
	return &toolyard.InputError{Field: "input", TooLarge: true,
		Problem: fmt.Sprintf("is %d bytes long; an answer has at most %d", n, elicit.MaxAnswerBytes)}
}

// edit puts another input into a decision.
func edit(ctx context.Context, s Store, k toolyard.BatchKey, d *events.Decided, input json.RawMessage) error {
	v, err := schema.ParseInput(input)
	if err != nil {
		return &toolyard.InputError{Field: "input", Problem: err.Error()}
	}
	if d.Remember != "" {
		return &toolyard.InputError{Field: "remember",
			Problem: "a changed input cannot be remembered: approve it as it is, or this once"}
	}
	if redact.Marked(string(v.Canonical())) {
		return &toolyard.InputError{Field: "input", Problem: "it has the mark of a secret that was taken out, " +
			"and would run as it stands there: write it anew without, or approve the call as it is, with its secret"}
	}
	if d.Edited, err = s.PutInput(ctx, k.Agent, v.Canonical()); err != nil {
		return err
	}
	d.InputSHA256 = v.Hash()
	return nil
}

// shownIs fails when a call waits with another input than the one that a person has seen. An empty hash stands for any.
func shownIs(sha256 string, asked events.Waiting) error {
	if sha256 == "" || sha256 == asked.InputSHA256 {
		return nil
	}
	return &toolyard.InputError{Field: "input_sha256",
		Problem: "the call does not wait with the input that was shown; look at it again"}
}

// check asks a worker whether a call could run as a person has changed it.
func check(ctx context.Context, s Store, k toolyard.BatchKey, index int, pool toolyard.Pool, d events.Decided) error {
	st, err := s.Look(ctx, k)
	if err != nil {
		return err
	}
	if st.Plan == nil || index >= len(st.Plan.Calls) {
		return fmt.Errorf("%w: call %d of %s is not planned", broker.ErrNoApproval, index, k)
	}
	edited := &events.Approved{By: d.By, InputSHA256: d.InputSHA256, Input: d.Edited}
	switch answer, err := s.Check(ctx, pool, st.Request(index, edited)); {
	case err != nil:
		return fmt.Errorf("%w: %w", broker.ErrUnchecked, err)
	case !answer.Checked: // a worker of an older version
		return fmt.Errorf("%w: the worker of pool %q cannot", broker.ErrUnchecked, pool)
	case answer.Problem != "":
		return &toolyard.InputError{Field: "input", Problem: answer.Problem}
	}
	return nil
}
