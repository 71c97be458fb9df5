package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// The limits of a relay.
const (
	Pause          = 2 * time.Second  // between two looks at the calls that wait
	MaxPause       = time.Minute      // between two questions about one call
	RequestTimeout = 10 * time.Second // of one question, and of one look
	DecideTimeout  = 20 * time.Second // of one decision: a worker may have to check an input
	MaxAsking      = 8                // questions on their way at a time
	MaxAnswerBytes = 64 << 10         // of the body of an answer
	MaxAnswers     = 10_000           // answers that are known when they come again
)

// Columns is the width of the lines of a question.
const Columns = 100

// System is what a relay needs of a [client.Client].
type System interface {
	Approvals(ctx context.Context, agent toolyard.Agent) ([]client.Approval, error)
	Decide(ctx context.Context, id string, d client.Decision) error
}

// Options are those of a relay. All but Agent and Callback are required.
type Options struct {
	System System
	// URL is where questions go.
	URL string
	// Callback is where the service sends answers; it is told with each question.
	Callback string
	// Agent restricts it to one agent's calls. Empty: all.
	Agent  toolyard.Agent
	Secret Secret
	Client *http.Client
	Log    *slog.Logger
	Now    func() time.Time
}

// Relay asks a service. [Relay.Run] asks, [Relay.ServeHTTP] takes answers.
type Relay struct {
	o Options
	// asking are the questions on their way, and slots has one of each.
	asking sync.WaitGroup
	slots  chan struct{}
	mu     sync.Mutex
	// asked are the calls that wait and were asked about, by the ids of their questions.
	asked map[string]*attempt
	// taken are the answers that have counted.
	taken answers
}

// attempt is how far one question is.
type attempt struct {
	asks  bool // it is on its way
	taken bool // the service has it, or cannot
	tries int
	next  time.Time
}

// New makes a relay.
func New(o Options) *Relay {
	c := *o.Client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &c
	return &Relay{o: o, slots: make(chan struct{}, MaxAsking), asked: map[string]*attempt{}}
}

// Question is what the service is asked.
type Question struct {
	Type string       `json:"type"` // [QuestionType]
	Time time.Time    `json:"timestamp"`
	Data QuestionData `json:"data"`
}

// QuestionType is the type of every question, and AnswerType that of every answer: neither can be taken for the other.
const (
	QuestionType = "approval.question"
	AnswerType   = "approval.answer"
)

// QuestionData is the call that waits.
type QuestionData struct {
	client.Approval
	// Lines show the input as it would run. Whoever decides should see all of them.
	Lines []string `json:"lines"`
	// Callback is where an answer goes.
	Callback string `json:"callback,omitempty"`
}

// questionID names a question, so that a service sees when it is asked again. A tool may ask the same thing twice: that
// is another question.
func questionID(a client.Approval) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", a.ID, a.InputSHA256, a.AskedAt.UnixNano()))
	const chars = 24
	return "ask_" + hex.EncodeToString(sum[:])[:chars]
}

// due are the calls of a list that are to be asked about now. What is known about calls that do not wait any more is
// forgotten.
func due(list []client.Approval, asked map[string]*attempt, now time.Time) (ask []client.Approval) {
	waits := map[string]bool{}
	for _, a := range list {
		id := questionID(a)
		waits[id] = true
		if had := asked[id]; had == nil {
			asked[id] = &attempt{}
		} else if had.asks || had.taken || now.Before(had.next) {
			continue
		}
		ask = append(ask, a)
	}
	for id := range asked {
		if !waits[id] {
			delete(asked, id)
		}
	}
	return ask
}

// failed puts the next try off, each time twice as long.
func (t *attempt) failed(now time.Time) {
	pause := MaxPause
	if t.tries < 5 {
		pause = min(MaxPause, Pause<<t.tries)
	}
	t.tries++
	t.next = now.Add(pause)
}

// Run asks about all calls that wait until the context ends. What fails is logged and tried again.
func (r *Relay) Run(ctx context.Context) {
	defer r.asking.Wait()
	tick := time.NewTicker(Pause)
	defer tick.Stop()
	for {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.o.Log.Warn("the calls that wait for a person cannot be listed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look begins to ask about what is due, and waits for no answer: a service that is slow with one question must not hold
// up the others. What finds no room among those on their way within [Pause] is due at the next look.
func (r *Relay) look(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	list, err := r.o.System.Approvals(short, r.o.Agent)
	if err != nil {
		return err
	}
	r.mu.Lock()
	ask := due(list, r.asked, r.o.Now())
	r.mu.Unlock()
	late := time.NewTimer(Pause)
	defer late.Stop()
	for _, a := range ask {
		select {
		case r.slots <- struct{}{}:
			r.begin(ctx, a)
		case <-late.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// begin asks about one call, whose slot it gives back.
func (r *Relay) begin(ctx context.Context, a client.Approval) {
	r.mu.Lock()
	state := r.asked[questionID(a)]
	state.asks = true
	r.mu.Unlock()
	r.asking.Go(func() {
		defer func() { <-r.slots }()
		done := r.ask(ctx, a)
		r.mu.Lock()
		defer r.mu.Unlock()
		if state.asks = false; done {
			state.taken = true
		} else {
			state.failed(r.o.Now())
		}
	})
}

// ask asks about one call. It reports whether there is nothing more to do.
func (r *Relay) ask(ctx context.Context, a client.Approval) bool {
	log := r.o.Log.With("approval", a.ID)
	lines, err := display.Lines(a.Input, display.Options{Columns: Columns, SHA256: a.InputSHA256, Form: a.Form})
	if err != nil {
		log.Warn("a call is not asked about, as nobody could see all of its input", "error", err)
		return true
	}
	now := r.o.Now()
	body, err := json.Marshal(Question{QuestionType, now.UTC(), QuestionData{a, lines, r.o.Callback}})
	if err != nil {
		log.Error("a question cannot be written", "error", err)
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.o.URL, bytes.NewReader(body))
	if err != nil {
		log.Error("a question cannot be sent", "error", err)
		return true
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "toolyard")
	r.o.Secret.sign(req.Header, questionID(a), now, body)
	res, err := r.o.Client.Do(req)
	if err == nil {
		err = res.Body.Close()
		if res.StatusCode < 200 || res.StatusCode > 299 {
			err = errors.Join(err, fmt.Errorf("it answered %s", res.Status))
		}
	}
	if err != nil {
		log.Warn("the approval service has not taken a question; it is asked again", "error", err)
		return false
	}
	log.Info("the approval service is asked")
	return true
}

// Answer is a decision, as the service sends it.
type Answer struct {
	ID       string
	Decision client.Decision
}

// readAnswer reads the body of an answer.
func readAnswer(body []byte) (a Answer, err error) {
	if err := strictjson.Check(body); err != nil {
		return a, err
	}
	doc, err := strictjson.ReadObject("", body)
	if err != nil {
		return a, err
	}
	if err := onlyHas(doc, "type", "timestamp", "data"); err != nil {
		return a, err
	}
	if kind, err := doc.String("type"); err != nil || kind != AnswerType {
		return a, strictjson.Errorf("type", "want %q", AnswerType)
	}
	data, err := doc.Object("data")
	if err != nil {
		return a, err
	}
	if err := onlyHas(data, "id", "decision", "by", "reason", "input_sha256", "remember"); err != nil {
		return a, err
	}
	verdict, err1 := data.String("decision")
	id, err2 := data.String("id")
	by, err3 := data.String("by")
	reason, err4 := data.OptionalString("reason")
	a = Answer{id, client.Decision{Verdict: client.Verdict(verdict), By: by, Reason: reason}}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return a, err
	}
	if a.Decision.Verdict != client.Allow { // one that names a question denies no other
		a.Decision.InputSHA256, err = data.OptionalString("input_sha256")
		return a, err
	}
	// Who allows a call says what was seen: a button under one question must not allow another input.
	if a.Decision.InputSHA256, err = data.String("input_sha256"); err != nil {
		return a, err
	}
	remember, err := data.OptionalString("remember")
	if err == nil && remember != "" && remember != "session" {
		err = strictjson.Errorf(data.At("remember"), "use session, or leave it out")
	}
	a.Decision.ForSession = remember != ""
	return a, err
}

func onlyHas(o strictjson.Object, names ...string) error {
	for _, name := range o.Names() {
		if !slices.Contains(names, name) {
			return strictjson.Errorf(o.At(name), "is not known here; there are %s", strings.Join(names, ", "))
		}
	}
	return nil
}

// ServeHTTP takes an answer. 204: it counts. 409: the call does not wait (any more). 401: it is not signed.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "an answer is a POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxAnswerBytes))
	if err != nil {
		http.Error(w, fmt.Sprintf("an answer has at most %d bytes", MaxAnswerBytes), http.StatusRequestEntityTooLarge)
		return
	}
	if err := r.o.Secret.verify(req.Header, r.o.Now(), body); err != nil {
		r.o.Log.Warn("an answer is not taken", "from", req.RemoteAddr, "error", err)
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	a, err := readAnswer(body)
	if err == nil {
		ctx, cancel := context.WithTimeout(req.Context(), DecideTimeout)
		defer cancel()
		err = r.decide(ctx, nameOf(req.Header, body), a)
	}
	status := http.StatusInternalServerError
	switch _, wrong := errors.AsType[*toolyard.InputError](err); {
	case err == nil:
		r.o.Log.Info("a person has decided", "approval", a.ID, "decision", a.Decision.Verdict, "by", a.Decision.By)
		w.WriteHeader(http.StatusNoContent)
		return
	case wrong:
		status = http.StatusBadRequest
	case errors.Is(err, client.ErrNoApproval):
		status = http.StatusConflict
	case errors.Is(err, client.ErrUnchecked):
		status = http.StatusServiceUnavailable
	}
	r.o.Log.Warn("an answer has no effect", "approval", a.ID, "by", a.Decision.By, "error", err)
	http.Error(w, err.Error(), status)
}

// decide stores the decision of an answer, once.
func (r *Relay) decide(ctx context.Context, name [sha256.Size]byte, a Answer) error {
	switch is, err := r.taken.begin(ctx, name); {
	case err != nil:
		return err
	case !is:
		return errTwice
	}
	counted := false
	defer func() { r.taken.end(name, counted) }()
	err := r.o.System.Decide(ctx, a.ID, a.Decision)
	counted = err == nil
	return err
}
