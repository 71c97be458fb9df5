package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/provider/native"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// bodyWithin bounds how long the client may take for a body, from now, also where nothing reads it: the server does
// before it answers.
func (x *exchange) bodyWithin() error {
	if x.r.ContentLength == 0 {
		return nil
	}
	return deadlines(x.conn.SetReadDeadline(time.Now().Add(bodyTimeout)))
}

// passOver reads the body of a request that needs none. Behind it the connection says when the client is gone.
func (x *exchange) passOver() *Problem {
	if x.r.ContentLength == 0 {
		return nil
	}
	_, err := io.Copy(io.Discard, http.MaxBytesReader(x.w, x.r.Body, MaxSmallBodyBytes))
	if err == nil {
		err = deadlines(x.conn.SetReadDeadline(time.Time{}))
	}
	if err != nil {
		return newProblem(http.StatusBadRequest, "", "a %s takes no body, and the one that was sent cannot be passed "+
			"over: %v", x.r.Method, err)
	}
	return nil
}

// body reads a request's body: JSON, up to so many bytes. An empty one is nil when it may be left out.
func (x *exchange) body(most int64, optional bool) ([]byte, error) {
	if err := x.bodyWithin(); err != nil {
		return nil, err
	}
	var data []byte
	var err error
	long := x.r.ContentLength > most
	if !long {
		data, err = io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, most))
		_, long = errors.AsType[*http.MaxBytesError](err)
	}
	if long {
		x.discard()
		return nil, newProblem(http.StatusRequestEntityTooLarge, "",
			"the body is longer than %d bytes, the most that is taken here; split it", most)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, newProblem(http.StatusBadRequest, "", "the body is shorter than its Content-Length says")
	}
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, "", "the body did not arrive whole within %s: %v", bodyTimeout,
			err)
	}
	if coding := x.r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, newProblem(http.StatusUnsupportedMediaType, "Content-Encoding",
			"send the body as it is, without %s", coding)
	}
	// What comes later on this connection is the end of the client's interest, and may come at any time.
	if err := deadlines(x.conn.SetReadDeadline(time.Time{})); err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	isJSON := err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
	if optional && len(bytes.TrimSpace(data)) == 0 {
		// Where nobody is asked for a token. A browser asks before it sends JSON, and is told no.
		if x.who.proof == ProvedByNothing && !isJSON && otherOrigin(x.r) {
			return nil, newProblem(http.StatusForbidden, "Origin",
				"a page of another origin sends no empty body, unless it says that it is application/json")
		}
		return nil, nil
	}
	if !isJSON {
		return nil, newProblem(http.StatusUnsupportedMediaType, "Content-Type",
			"the body must be application/json, and say so")
	}
	return data, nil
}

// bodyFor reads a request's body as body does, and returns the context for the work with it: that takes its time from
// when the body is there, however slowly it came.
func (x *exchange) bodyFor(ctx context.Context, most int64, optional bool) (context.Context, []byte, error) {
	data, err := x.body(most, optional)
	work, cancel := context.WithTimeout(ctx, requestTimeout)
	context.AfterFunc(ctx, cancel) // which ends with the request
	return work, data, err
}

// discard reads what is left of a body that is too long: most clients read the answer when they have sent all, and miss
// it when the connection is closed before. One that asks whether it may send (Expect) is told at once that it may not.
func (x *exchange) discard() {
	if x.r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, x.r.Body, maxDiscarded) // whoever has not sent all by then misses the answer
	}
}

// wrapper is a field that holds a provider's form. has is a field by which that is known without the wrapper.
type wrapper struct {
	field  string
	format provider.Format
	has    string
}

var wrappers = []wrapper{
	{"anthropic", provider.Anthropic, "content"}, {"openai", provider.OpenAI, "output"},
	{"openai_chat", provider.OpenAIChat, "choices"}, {"gemini", provider.Gemini, "candidates"},
}

// decodeBatch reads a submission: a native batch, or one whose calls stand in a provider's form in the field of its
// name. Every error is a [*toolyard.InputError]. The batch is neither normalized nor validated.
func decodeBatch(data []byte) (toolyard.Batch, error) {
	data, err := provider.MendJSON(data)
	if err != nil {
		return toolyard.Batch{}, err
	}
	o, err := strictjson.ReadObject("", data)
	if err != nil {
		return toolyard.Batch{}, err
	}
	form := -1
	for i, w := range wrappers {
		switch {
		case !o.Has(w.field):
		case form >= 0:
			return toolyard.Batch{}, strictjson.Errorf(w.field, "stands beside %q; a batch comes in one form",
				wrappers[form].field)
		default:
			form = i
		}
	}
	if form < 0 {
		if err := misplaced(o); err != nil {
			return toolyard.Batch{}, err
		}
		return native.Decode(data)
	}
	w := wrappers[form]
	if o.Has("calls") {
		return toolyard.Batch{}, strictjson.Errorf("calls", "stands beside %q; a batch comes in one form", w.field)
	}
	rest := map[string]json.RawMessage{}
	for _, name := range o.Names() {
		if name != w.field {
			rest[name] = o.Value(name)
		}
	}
	around, err := json.Marshal(rest)
	if err != nil {
		return toolyard.Batch{}, strictjson.Errorf("", "cannot be read: %v", err)
	}
	b, err := native.Decode(around)
	if err != nil {
		return b, err
	}
	inner, _, err := provider.Decode(o.Value(w.field), w.format)
	if in, ok := errors.AsType[*toolyard.InputError](err); ok {
		return b, &toolyard.InputError{Field: strings.TrimSuffix(w.field+"."+in.Field, "."), Problem: in.Problem,
			TooLarge: in.TooLarge}
	}
	b.Calls = inner.Calls
	return b, err
}

// misplaced says where a provider's form belongs, if the body is one, or names it wrongly.
func misplaced(o strictjson.Object) error {
	for _, name := range o.Names() {
		field := strings.ReplaceAll(strings.ToLower(name), "-", "_")
		if field != name && slices.ContainsFunc(wrappers, func(w wrapper) bool { return w.field == field }) {
			return strictjson.Errorf(name, "is not a field of a batch; did you mean %q?", field)
		}
	}
	for _, w := range wrappers {
		if o.Has(w.has) && !o.Has("calls") {
			return strictjson.Errorf(w.has, "is not a field of a batch; a message of a provider goes into %q", w.field)
		}
	}
	return nil
}

// decodeCalls reads calls that are appended to a batch, in any form, which it returns, and nothing beside them.
func decodeCalls(data []byte) (_ []toolyard.Call, form provider.Format, err error) {
	b, err := decodeBatch(data)
	if err != nil {
		return nil, "", err
	}
	if data, err = provider.MendJSON(data); err != nil {
		return nil, "", err
	}
	o, err := strictjson.ReadObject("", data)
	if err != nil {
		return nil, "", err
	}
	form = provider.Native
	for _, name := range o.Names() {
		i := slices.IndexFunc(wrappers, func(w wrapper) bool { return w.field == name })
		switch {
		case i >= 0:
			form = wrappers[i].format
		case name != "calls":
			return nil, "", strictjson.Errorf(name, "was settled when the batch was opened; send calls alone")
		}
	}
	if len(b.Calls) == 0 {
		return nil, "", strictjson.Errorf("calls", "has no calls; append at least one")
	}
	return b.Calls, form, nil
}

// object reads a small body that has these fields at most; nil stands for an empty object.
func object(data []byte, fields ...string) (strictjson.Object, error) {
	if data == nil {
		data = []byte("{}")
	}
	if err := provider.CheckJSON(data); err != nil {
		return strictjson.Object{}, err
	}
	o, err := strictjson.ReadObject("", data)
	if err != nil {
		return o, err
	}
	for _, name := range o.Names() {
		switch {
		case slices.Contains(fields, name):
		case len(fields) == 0:
			return o, strictjson.Errorf(name, "is not a field here; send an empty object, or nothing")
		default:
			return o, strictjson.Errorf(name, "is not a field here; the fields are %s", strings.Join(fields, ", "))
		}
	}
	return o, nil
}

// decodeReason reads the body of a cancel of a call.
func decodeReason(data []byte) (string, error) {
	o, err := object(data, "reason")
	if err != nil {
		return "", err
	}
	return o.OptionalString("reason")
}

// decodeInterruption reads the body of an interrupt.
func decodeInterruption(data []byte) (Interruption, error) {
	o, err := object(data, "reason", "resolve")
	if err != nil {
		return Interruption{}, err
	}
	reason, err := o.OptionalString("reason")
	if err != nil {
		return Interruption{}, err
	}
	resolve, err := o.OptionalBool("resolve")
	return Interruption{Reason: reason, Resolve: resolve}, err
}

// decodeRerun reads the body of a rerun.
func decodeRerun(data []byte) (Rerun, error) {
	o, err := object(data, "id", "allow_writes")
	if err != nil {
		return Rerun{}, err
	}
	id, err := o.OptionalString("id")
	if err != nil {
		return Rerun{}, err
	}
	writes, err := o.OptionalBool("allow_writes")
	return Rerun{ID: toolyard.BatchID(id), AllowWrites: writes}, err
}

// decodeCancel reads the body of a cancel of a batch: why, and which calls, if it is not all.
func decodeCancel(data []byte) (reason string, calls []int, err error) {
	o, err := object(data, "reason", "calls")
	if err != nil {
		return "", nil, err
	}
	if o.Given("calls") {
		items, err := o.Array("calls")
		if err != nil {
			return "", nil, err
		}
		if len(items) == 0 || len(items) > toolyard.MaxCallsPerBatch {
			return "", nil, strictjson.Errorf("calls", "has %d indices; name 1 to %d, or leave it out to cancel all",
				len(items), toolyard.MaxCallsPerBatch)
		}
		calls = make([]int, len(items))
		for i, item := range items {
			if calls[i], err = strconv.Atoi(string(item)); err != nil || calls[i] < 0 {
				return "", nil, strictjson.Errorf(strictjson.Item("calls", i), "is %.20s; want the index of a call",
					item)
			}
		}
	}
	reason, err = o.OptionalString("reason")
	return reason, calls, err
}

// decodeUndo reads how a batch is undone.
func decodeUndo(data []byte) (u client.Undoing, err error) {
	o, err := object(data, "group", "force", "interactive", "final")
	if err != nil {
		return u, err
	}
	if o.Given("group") {
		group, err := o.OptionalInt("group", strconv.IntSize)
		if err != nil {
			return u, err
		}
		u.Group = new(int(group))
	}
	err = decodeActing(o, &u.Force, &u.Interactive, &u.Final)
	return u, err
}

// decodeActing reads what all have that act on another batch.
func decodeActing(o strictjson.Object, force, interactive, final *bool) (err error) {
	if *force, err = o.OptionalBool("force"); err != nil {
		return err
	}
	if *interactive, err = o.OptionalBool("interactive"); err != nil {
		return err
	}
	*final, err = o.OptionalBool("final")
	return err
}

// decodeOverlayUse reads what is done with an overlay.
func decodeOverlayUse(data []byte) (u client.OverlayUse, err error) {
	o, err := object(data, "action", "force", "interactive", "final")
	if err != nil {
		return u, err
	}
	action, err := o.OptionalString("action")
	if err != nil {
		return u, err
	}
	if u.Action = toolyard.OverlayAction(action); !slices.Contains(toolyard.OverlayActions, u.Action) {
		return u, strictjson.Errorf("action", "is %.20q; use one of %q", action, toolyard.OverlayActions)
	}
	err = decodeActing(o, &u.Force, &u.Interactive, &u.Final)
	return u, err
}

// decodeDecision reads what a person decides.
func decodeDecision(data []byte) (d client.Decision, err error) {
	o, err := object(data, "decision", "reason", "input", "input_sha256", "remember")
	if err != nil {
		return d, err
	}
	what, err := o.OptionalString("decision")
	if err != nil {
		return d, err
	}
	d.Verdict = client.Verdict(what)
	if d.Reason, err = o.OptionalString("reason"); err != nil {
		return d, err
	}
	remember, err := o.OptionalString("remember")
	if err != nil {
		return d, err
	}
	if remember != "" && remember != approval.RememberSession {
		return d, strictjson.Errorf("remember", "is %q; use %q, or leave it out", remember,
			approval.RememberSession)
	}
	d.ForSession = remember != ""
	if d.InputSHA256, err = o.OptionalString("input_sha256"); err != nil {
		return d, err
	}
	if o.Given("input") {
		d.Input = o.Value("input")
	}
	return d, nil
}
