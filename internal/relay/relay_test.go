package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

const secretText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="

// system has calls that wait, until they are decided.
type system struct {
	list    []client.Approval
	decided []client.Decision
	err     error
	failing error // of decisions
	// storing, if there is one, has each decision say that it is under way, and wait for what comes of it.
	storing chan chan error
}

func (s *system) Approvals(context.Context, toolyard.Agent) ([]client.Approval, error) {
	return s.list, s.err
}

func (s *system) Decide(_ context.Context, id string, d client.Decision) error {
	if s.storing != nil {
		stored := make(chan error)
		s.storing <- stored
		if err := <-stored; err != nil {
			return err
		}
	}
	if s.failing != nil {
		return s.failing
	}
	for i, a := range s.list {
		if a.ID == id {
			s.list, s.decided = append(s.list[:i:i], s.list[i+1:]...), append(s.decided, d)
			return nil
		}
	}
	return fmt.Errorf("%s: %w", id, client.ErrNoApproval)
}

// waits is a call that waits with an input.
func waits(id, input string) client.Approval {
	v, err := schema.Parse(json.RawMessage(input))
	if err != nil {
		panic(err)
	}
	return client.Approval{ID: id, Tool: "bash", Input: json.RawMessage(input), InputSHA256: v.Hash()}
}

// rig is a relay with a clock, beside a service that answers with a status.
type rig struct {
	*Relay
	*system
	now    time.Time
	status int
	asked  []*http.Request
	bodies []string
}

func newRig(t *testing.T, list ...client.Approval) *rig {
	t.Helper()
	secret, err := ParseSecret(secretText)
	must.OK(t, err)
	r := &rig{system: &system{list: list}, now: time.Unix(1_800_000_000, 0), status: http.StatusNoContent}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.asked, r.bodies = append(r.asked, req), append(r.bodies, string(body))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(r.status)
	}))
	t.Cleanup(service.Close)
	r.Relay = New(Options{System: r.system, URL: service.URL, Callback: "https://relay.example/answers", Secret: secret,
		Client: service.Client(), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return r.now }})
	return r
}

// look asks once, and waits until the service has answered.
func (r *rig) look(ctx context.Context) error {
	defer r.asking.Wait()
	return r.Relay.look(ctx)
}

// TestASlowQuestionHoldsUpNoOther: also not the calls that come to wait while the service is slow with one.
func TestASlowQuestionHoldsUpNoOther(t *testing.T) {
	asked, goOn := make(chan string, 9), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var q Question
		if err := json.NewDecoder(req.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		asked <- q.Data.ID
		select {
		case <-goOn:
		case <-req.Context().Done():
			t.Errorf("the question about %s was given up", q.Data.ID)
		}
	}))
	defer service.Close()
	r := newRig(t)
	r.o.URL = service.URL
	for _, next := range []string{"slow", "next"} {
		r.list = append(r.list, waits(next, `{}`))
		must.OK(t, r.Relay.look(t.Context()))
		if got := <-asked; got != next {
			t.Errorf("it asks about %s, not %s", got, next)
		}
	}
	if err := r.Relay.look(t.Context()); err != nil || len(asked) > 0 {
		t.Errorf("what is on its way is asked again: %d times, %v", len(asked), err)
	}
	close(goOn)
	r.asking.Wait()
}

// TestACallIsAskedAboutOnce: with all that a person is shown, signed, and again only when it was not taken.
func TestACallIsAskedAboutOnce(t *testing.T) {
	r := newRig(t, waits("a.b.0", `{"command":"ls"}`))
	r.status = http.StatusFound // a redirect is not followed: it would take the question elsewhere
	for _, after := range []time.Duration{0, time.Second, time.Second} {
		r.now = r.now.Add(after)
		must.OK(t, r.look(t.Context()))
	}
	if len(r.asked) != 2 {
		t.Fatalf("asked %d times within 2 s", len(r.asked))
	}
	r.status = http.StatusOK
	for range 3 {
		r.now = r.now.Add(MaxPause)
		must.OK(t, r.look(t.Context()))
	}
	if len(r.asked) != 3 || r.asked[0].Header.Get(headerID) != r.asked[2].Header.Get(headerID) {
		t.Fatalf("asked %d times", len(r.asked))
	}
	var q Question
	if err := json.Unmarshal([]byte(r.bodies[2]), &q); err != nil || q.Type != QuestionType || q.Data.ID != "a.b.0" ||
		len(q.Data.Lines) != 1 || q.Data.Lines[0] != `command: "ls"` || q.Data.Callback == "" {
		t.Errorf("the question is %s, %v", r.bodies[2], err)
	}
	sent := r.now.Add(-2 * MaxPause)
	if err := r.o.Secret.verify(r.asked[2].Header, sent, []byte(r.bodies[2])); err != nil {
		t.Errorf("the question: %v", err)
	}
	r.list = []client.Approval{waits("a.b.0", `{"command":"rm"}`)} // it waits anew, with another input
	if err := r.look(t.Context()); err != nil || len(r.asked) != 4 ||
		r.asked[3].Header.Get(headerID) == r.asked[2].Header.Get(headerID) {
		t.Errorf("with another input: asked %d times, %v", len(r.asked), err)
	}
	r.list = nil
	if err := r.look(t.Context()); err != nil || len(r.Relay.asked) != 0 {
		t.Errorf("%d questions are remembered, %v", len(r.Relay.asked), err)
	}
	cut := waits("a.b.1", `{"command":"ls"}`)
	cut.InputSHA256 = strings.Repeat("0", 64) // of another input
	r.list = []client.Approval{cut}
	if err := r.look(t.Context()); err != nil || len(r.asked) != 4 {
		t.Errorf("a call that nobody could see is asked about: %v", err)
	}
	r.err = errors.New("down")
	if err := r.look(t.Context()); err == nil {
		t.Error("a list that failed is no error")
	}
}

// TestTheSameQuestionOnceMore: a tool may ask the same thing again when it has its answer, before anybody has looked at
// the list in between. That is another question, which has to be answered by itself.
func TestTheSameQuestionOnceMore(t *testing.T) {
	first := waits("a.b.0", `{"code":""}`)
	first.AskedAt = time.Unix(1_800_000_000, 0)
	again := first
	again.AskedAt = first.AskedAt.Add(time.Millisecond)
	r := newRig(t, first)
	for _, list := range [][]client.Approval{{first}, {again}, {again}} {
		r.list = list
		must.OK(t, r.look(t.Context()))
	}
	if len(r.asked) != 2 || r.asked[0].Header.Get(headerID) == r.asked[1].Header.Get(headerID) {
		t.Errorf("asked %d times about two questions", len(r.asked))
	}
}

// TestAnAnswerCountsOnce: a service that has lost the response sends its answer again. That answers nothing else, such
// as the same question that the tool has asked once more. One that could not be stored counts when it comes again.
func TestAnAnswerCountsOnce(t *testing.T) {
	call := waits("a.b.0", `{"code":""}`)
	r := newRig(t, call)
	body := `{"type":"approval.answer","data":{"id":"a.b.0","decision":"allow","by":"ann","input_sha256":"` +
		call.InputSHA256 + `"}}`
	r.failing = client.ErrUnchecked
	if got := r.answer(t, body, nil); got != http.StatusServiceUnavailable {
		t.Errorf("one that could not be stored: status %d", got)
	}
	r.failing = nil
	for _, want := range []int{http.StatusNoContent, http.StatusConflict} {
		r.list = []client.Approval{call} // it asks the same again
		if got := r.answer(t, body, nil); got != want || len(r.decided) != 1 {
			t.Errorf("status %d, want %d; decided %d times", got, want, len(r.decided))
		}
		r.now = r.now.Add(time.Minute) // it is signed anew
	}
	if got := r.answer(t, body, func(q *http.Request) {
		r.o.Secret.sign(q.Header, "msg_2", r.now, []byte(body))
	}); got != http.StatusNoContent || len(r.decided) != 2 {
		t.Errorf("another answer: status %d, decided %d times", got, len(r.decided))
	}
}

// TestAnAnswerThatComesAgainMeanwhile: a service that does not wait for the response sends its answer again while the
// first one is stored. What that one says follows from what becomes of the first.
func TestAnAnswerThatComesAgainMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		first error
		want  [2]int
	}{
		"the first counts": {nil, [2]int{http.StatusNoContent, http.StatusConflict}},
		"the first cannot be stored": {client.ErrUnchecked,
			[2]int{http.StatusServiceUnavailable, http.StatusNoContent}},
	} {
		t.Run(name, func(t *testing.T) {
			secret, err := ParseSecret(secretText)
			must.OK(t, err)
			synctest.Test(t, func(t *testing.T) {
				r := &rig{system: &system{list: []client.Approval{waits("a.b.0", `{"code":""}`)},
					storing: make(chan chan error)}, now: time.Now()}
				r.Relay = New(Options{System: r.system, Secret: secret, Client: &http.Client{},
					Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return r.now }})
				body := `{"type":"approval.answer","data":{"id":"a.b.0","decision":"deny","by":"ann"}}`
				var got [2]int
				send := func(n int) { go func() { got[n] = r.answer(t, body, nil) }() }
				send(0)
				first := <-r.storing
				send(1)
				synctest.Wait()
				if got[1] != 0 {
					t.Errorf("the second is answered with status %d while the first is under way", got[1])
				}
				first <- c.first
				if c.first != nil && got[1] == 0 {
					(<-r.storing) <- nil
				}
				synctest.Wait()
				if got != c.want || len(r.decided) != 1 {
					t.Errorf("got %d, want %d; decided %d times", got, c.want, len(r.decided))
				}
			})
		})
	}
}

// TestThePauseGrows: up to its maximum.
func TestThePauseGrows(t *testing.T) {
	a := &attempt{}
	last := time.Duration(0)
	for range 10 {
		a.failed(time.Unix(0, 0))
		pause := a.next.Sub(time.Unix(0, 0))
		if pause < last || pause > MaxPause {
			t.Errorf("%s after %s", pause, last)
		}
		last = pause
	}
	if last != MaxPause {
		t.Errorf("the last pause is %s", last)
	}
}

// answer sends a body, signed, and returns the status.
func (r *rig) answer(t *testing.T, body string, change func(*http.Request)) int {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.o.Secret.sign(req.Header, "msg_1", r.now, []byte(body))
	if change != nil {
		change(req)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Code
}

// TestOnlyASignedAnswerCounts: and it counts once.
func TestOnlyASignedAnswerCounts(t *testing.T) {
	call := waits("a.b.0", `{"command":"ls"}`)
	allow := func(more string) string {
		return `{"type":"approval.answer","data":{"id":"a.b.0","decision":"allow","by":"ann"` + more + `}}`
	}
	seen := `,"input_sha256":"` + call.InputSHA256 + `"`
	r := newRig(t, call)
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		want   int
	}{
		"a GET":       {allow(seen), func(q *http.Request) { q.Method = http.MethodGet }, 405},
		"no header":   {allow(seen), func(q *http.Request) { q.Header.Del(headerSignature) }, 401},
		"no id":       {allow(seen), func(q *http.Request) { q.Header.Del(headerID) }, 401},
		"another id":  {allow(seen), func(q *http.Request) { q.Header.Set(headerID, "msg_2") }, 401},
		"an old time": {allow(seen), func(*http.Request) { r.now = r.now.Add(Tolerance + time.Second) }, 401},
		"a new time":  {allow(seen), func(*http.Request) { r.now = r.now.Add(-Tolerance - time.Second) }, 401},
		"another body": {allow(seen), func(q *http.Request) {
			q.Body = io.NopCloser(strings.NewReader(allow(seen + `,"reason":"x"`)))
		}, 401},
		"another secret": {allow(seen), func(q *http.Request) {
			Secret("x").sign(q.Header, "msg_1", r.now, []byte(allow(seen)))
		}, 401},
		"many signatures": {allow(seen), func(q *http.Request) {
			q.Header.Set(headerSignature, strings.Repeat("v1,AAAA ", maxSignatures)+q.Header.Get(headerSignature))
		}, 401},
		"too long":       {allow(`,"reason":"` + strings.Repeat("x", MaxAnswerBytes) + `"`), nil, 413},
		"no JSON":        {"allow", nil, 400},
		"a question":     {strings.Replace(allow(seen), "answer", "question", 1), nil, 400},
		"no type":        {strings.Replace(allow(seen), `"type":"approval.answer",`, "", 1), nil, 400},
		"without a hash": {allow(""), nil, 400},
		"more":           {allow(seen + `,"input":{}`), nil, 400},
		"remember":       {allow(seen + `,"remember":"always"`), nil, 400},
		"another call":   {strings.Replace(allow(seen), "a.b.0", "a.b.7", 1), nil, 409},
	} {
		if got := r.answer(t, c.body, c.change); got != c.want || len(r.decided) != 0 {
			t.Fatalf("%s: status %d, want %d; decided %+v", name, got, c.want, r.decided)
		}
		r.now = time.Unix(1_800_000_000, 0)
	}
	two := func(q *http.Request) { // while the secret is replaced
		q.Header.Set(headerSignature, "v1a,eA== v1,AAAA "+q.Header.Get(headerSignature))
	}
	body := allow(seen + `,"remember":"session","reason":"fine"`)
	if got := r.answer(t, body, two); got != 204 {
		t.Fatalf("status %d", got)
	}
	want := client.Decision{Verdict: client.Allow, By: "ann", Reason: "fine", InputSHA256: call.InputSHA256,
		ForSession: true}
	if len(r.decided) != 1 || fmt.Sprint(r.decided[0]) != fmt.Sprint(want) {
		t.Errorf("decided %+v, want %+v", r.decided, want)
	}
	if got := r.answer(t, body, nil); got != 409 {
		t.Errorf("once more: status %d", got)
	}
	r.list = []client.Approval{call}
	deny := strings.Replace(allow(seen), "allow", "deny", 1)
	if got := r.answer(t, deny, nil); got != 204 || r.decided[1].InputSHA256 != call.InputSHA256 {
		t.Errorf("a denial of one question: status %d, %+v", got, r.decided)
	}
	r.list = []client.Approval{call}
	if got := r.answer(t, strings.Replace(deny, seen, "", 1), nil); got != 204 || r.decided[2].InputSHA256 != "" {
		t.Errorf("a denial of whatever it asks: status %d, %+v", got, r.decided)
	}
}

// TestTheSignatureOfTheStandard: the form is that of Standard Webhooks.
func TestTheSignatureOfTheStandard(t *testing.T) {
	for _, bad := range []string{"", "x", "whsec_", "whsec_AAAA", "whsec_?", strings.TrimPrefix(secretText, "whsec_")} {
		if _, err := ParseSecret(bad); err == nil {
			t.Errorf("%q is a secret", bad)
		}
	}
	h := http.Header{}
	// The example of the standard.
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	must.OK(t, err)
	secret.sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got := h.Get(headerSignature); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("the signature is %s", got)
	}
}

// FuzzAnswer: whatever comes, it is refused or is a decision of one of two kinds; who allows says what was seen.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"approval.answer","data":{"id":"a.b.0","decision":"allow","by":"ann","input_sha256":"x"}}`))
	f.Add([]byte(`{"type":"approval.answer","data":{"id":"a.b.0","decision":"deny","by":"ann","reason":"no"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := readAnswer(body)
		if err != nil {
			if _, ok := errors.AsType[*toolyard.InputError](err); !ok {
				t.Errorf("%T is no InputError", err)
			}
			return
		}
		if a.Decision.Verdict == client.Allow && !bytes.Contains(body, []byte("input_sha256")) {
			t.Errorf("%s allows what nobody has seen", body)
		}
	})
}
