package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// Slim forms are how bodies are stored that there are many of. They leave out what has its default and what is said
// twice. Whoever shows an event writes the body's own form, as [Encode] does; reading takes both. A process that is
// older than slim leaves the event to one that is not.

// slimmer is a body that has a slim form. ok is false if its own form is stored.
type slimmer interface {
	slim() (form any, ok bool)
}

// readForm is what the stored data of a body is decoded into, whichever form it has.
type readForm interface {
	body() (Body, error)
}

// readForms make it, by the type of the event. Others are decoded into their bodies.
var readForms = map[Type]func() readForm{
	CallFinished: func() readForm { return &readFinished{} },
	BatchPlanned: func() readForm { return &readPlanned{} },
}

// SlimForms are the slim forms, empty, for those who look at their types.
func SlimForms() map[string]any {
	return map[string]any{
		"slim " + string(CallFinished): slimFinished{}, "slim " + string(BatchPlanned): slimPlanned{},
		"slim fact": slimFact{},
	}
}

// slimFinished is the slim form of [Finished].
type slimFinished struct {
	Ends []slimEnd `json:"ends"`
}

type readFinished struct {
	Finished
	slimFinished
}

// slimEnd is an [End].
type slimEnd struct {
	Index          int                 `json:"i,omitempty"`
	CallID         string              `json:"id,omitempty"`
	Tool           string              `json:"tool,omitempty"`
	IsError        bool                `json:"failed,omitempty"`
	Code           toolyard.Code       `json:"code,omitempty"`
	Output         string              `json:"out,omitempty"`
	Content        []toolyard.Content  `json:"content,omitempty"`
	Structured     json.RawMessage     `json:"structured,omitempty"`
	Echo           toolyard.Echo       `json:"echo,omitempty"`
	Error          string              `json:"error,omitempty"`
	Detail         string              `json:"detail,omitempty"`
	Retryable      bool                `json:"retry,omitempty"`
	RetryAfterMS   int64               `json:"after,omitempty"`
	Class          toolyard.Class      `json:"class,omitempty"`
	WasConcurrent  bool                `json:"beside,omitempty"`
	DurationMS     float64             `json:"ms,omitempty"`
	ExecuteMS      float64             `json:"execute,omitempty"`
	QueueMS        float64             `json:"queue,omitempty"`
	ApprovalWaitMS float64             `json:"approval,omitempty"`
	Attempts       int                 `json:"n,omitempty"`
	Worker         string              `json:"worker,omitempty"`
	Truncated      bool                `json:"cut,omitempty"`
	Blob           string              `json:"blob,omitempty"`
	Isolation      string              `json:"isolation,omitempty"`
	Cache          toolyard.CacheUse   `json:"cache,omitempty"`
	Origin         *toolyard.Origin    `json:"origin,omitempty"`
	Overlay        *toolyard.Overlay   `json:"overlay,omitempty"`
	Phases         slimFacts           `json:"phases,omitzero"`
	Session        *tool.SessionChange `json:"session,omitempty"`
}

func (f Finished) slim() (any, bool) {
	out := slimFinished{Ends: make([]slimEnd, 0, 1+len(f.More))}
	for e := range f.Ends() {
		r := &e.Result
		out.Ends = append(out.Ends, slimEnd{
			r.Index, r.CallID, r.Tool, r.IsError, r.Code, r.Output, r.Content, r.Structured, r.Echo, r.Error, r.Detail,
			r.Retryable, r.RetryAfterMS, r.Class, r.WasConcurrent, r.DurationMS, r.ExecuteMS, r.QueueMS,
			r.ApprovalWaitMS, r.Attempts, r.Worker, r.Truncated, r.Blob, r.Isolation, r.Cache, r.Origin,
			r.Overlay, r.Phases, e.Session,
		})
	}
	return out, true
}

func (f *readFinished) body() (Body, error) {
	if len(f.slimFinished.Ends) == 0 {
		return f.Finished, nil
	}
	out := Finished{}
	if n := len(f.slimFinished.Ends); n > 1 {
		out.More = make([]End, n-1)
	}
	for n := range f.slimFinished.Ends {
		s, e := &f.slimFinished.Ends[n], &out.End
		if n > 0 {
			e = &out.More[n-1]
		}
		e.Session = s.Session
		e.Result = toolyard.Result{
			Index: s.Index, CallID: s.CallID, Tool: s.Tool, IsError: s.IsError, Code: s.Code, Output: s.Output,
			Content: s.Content, Structured: s.Structured, Echo: s.Echo, Error: s.Error, Detail: s.Detail,
			Retryable: s.Retryable, RetryAfterMS: s.RetryAfterMS, Class: s.Class, WasConcurrent: s.WasConcurrent,
			DurationMS: s.DurationMS, ExecuteMS: s.ExecuteMS, QueueMS: s.QueueMS, ApprovalWaitMS: s.ApprovalWaitMS,
			Attempts: s.Attempts, Worker: s.Worker, Truncated: s.Truncated, Blob: s.Blob, Isolation: s.Isolation,
			Cache: s.Cache, Origin: s.Origin, Overlay: s.Overlay, Phases: s.Phases,
		}
	}
	return out, nil
}

// slimFacts are facts by their place: a number is the microseconds of the next phase of [toolyard.Phases], which passed
// and left no detail. Anything else is an object.
type slimFacts []toolyard.Fact

// slimFact is a fact that a number does not say.
type slimFact struct {
	Phase   *toolyard.Phase   `json:"p,omitempty"` // nil: the next one
	Outcome *toolyard.Outcome `json:"o,omitempty"` // nil: passed
	Code    toolyard.Code     `json:"c,omitempty"`
	Detail  string            `json:"d,omitempty"`
	Micros  int64             `json:"us,omitempty"`
	MS      float64           `json:"ms,omitempty"` // what is no whole number of microseconds
}

// IsZero says that there are no facts, which is not the same as an empty list.
func (f slimFacts) IsZero() bool { return f == nil }

// microsOf returns milliseconds as whole microseconds. ok is false if they are none.
func microsOf(ms float64) (n int64, ok bool) {
	const most = 1 << 50
	micros := math.Round(ms * 1000)
	if !(micros >= 0 && micros < most) {
		return 0, false
	}
	return int64(micros), msOf(int64(micros)) == ms
}

func msOf(micros int64) float64 { return float64(micros) / 1000 }

// MarshalJSON implements [json.Marshaler].
func (f slimFacts) MarshalJSON() ([]byte, error) {
	const factBytes = 16
	out := append(make([]byte, 0, factBytes*len(f)+2), '[')
	next := 0
	for i := range f {
		if i > 0 {
			out = append(out, ',')
		}
		s, micros := f.slim(i, &next)
		if micros {
			out = strconv.AppendInt(out, s.Micros, 10)
			continue
		}
		object, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		out = append(out, object...)
	}
	return append(out, ']'), nil
}

// slim is a fact as it is stored, and whether it is a number of microseconds alone. next is the place in
// [toolyard.Phases] where it is expected, and moves on.
func (f slimFacts) slim(i int, next *int) (s slimFact, micros bool) {
	fact := &f[i]
	s = slimFact{Code: fact.Code, Detail: fact.Detail}
	if *next >= len(toolyard.Phases) || toolyard.Phases[*next] != fact.Phase {
		s.Phase = &fact.Phase
		*next = max(*next, slices.Index(toolyard.Phases, fact.Phase))
	}
	*next++
	if fact.Outcome != toolyard.OutcomeOK {
		s.Outcome = &fact.Outcome
	}
	var whole bool
	if s.Micros, whole = microsOf(fact.MS); !whole {
		s.Micros, s.MS = 0, fact.MS
	}
	return s, whole && s == (slimFact{Micros: s.Micros})
}

// UnmarshalJSONFrom implements [jsonv2.UnmarshalerFrom].
func (f *slimFacts) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != '[' {
		return fmt.Errorf("facts are %q and no list", kind)
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*f = make(slimFacts, 0, len(toolyard.Phases))
	for next := 0; dec.PeekKind() != ']'; {
		var s slimFact
		if dec.PeekKind() == '{' {
			if err := jsonv2.UnmarshalDecode(dec, &s); err != nil {
				return err
			}
		} else {
			number, err := dec.ReadValue()
			if err == nil {
				s.Micros, err = strconv.ParseInt(string(number), 10, 64)
			}
			if err != nil {
				return err
			}
		}
		fact, err := s.fact(&next)
		if err != nil {
			return err
		}
		*f = append(*f, fact)
	}
	_, err := dec.ReadToken()
	return err
}

// fact is the fact at a place in [toolyard.Phases]; it moves on the place of the next one.
func (s *slimFact) fact(next *int) (toolyard.Fact, error) {
	fact := toolyard.Fact{Outcome: toolyard.OutcomeOK, Code: s.Code, Detail: s.Detail, MS: s.MS}
	if s.Outcome != nil {
		fact.Outcome = *s.Outcome
	}
	if s.Micros != 0 {
		fact.MS = msOf(s.Micros)
	}
	switch {
	case s.Phase != nil:
		fact.Phase = *s.Phase
		*next = max(*next, slices.Index(toolyard.Phases, fact.Phase))
	case *next < len(toolyard.Phases):
		fact.Phase = toolyard.Phases[*next]
	default:
		return fact, errors.New("a fact is of no phase")
	}
	*next++
	return fact, nil
}

// slimPlanned is the slim form of [Planned]: calls of the same kind share what was decided about them.
type slimPlanned struct {
	Planned
	Calls []slimPlannedCall `json:"calls"`
	Kinds []PlannedCall     `json:"kinds"`
}

type slimPlannedCall struct {
	ID          string  `json:"id"`
	Kind        int     `json:"kind,omitempty"`
	InputSHA256 string  `json:"input_sha256"`
	Mended      *Mended `json:"mended,omitempty"`
}

// readPlanned reads both forms.
type readPlanned struct {
	Planned
	Calls []readPlannedCall `json:"calls"`
	Kinds []PlannedCall     `json:"kinds"`
}

type readPlannedCall struct {
	PlannedCall
	Kind int `json:"kind"`
}

// kind is what a call has in common with others: all but what is its own.
func (c PlannedCall) kind() PlannedCall {
	c.ID, c.InputSHA256, c.Mended = "", "", nil
	return c
}

func (p Planned) slim() (any, bool) {
	out := slimPlanned{Planned: p, Calls: make([]slimPlannedCall, len(p.Calls))}
	at := map[PlannedCall]int{}
	for i := range p.Calls {
		c := &p.Calls[i]
		kind := c.kind()
		n, known := at[kind]
		if !known {
			n = len(out.Kinds)
			at[kind] = n
			out.Kinds = append(out.Kinds, kind)
		}
		out.Calls[i] = slimPlannedCall{c.ID, n, c.InputSHA256, c.Mended}
	}
	return out, len(out.Kinds) < len(p.Calls)
}

func (p *readPlanned) body() (Body, error) {
	out := p.Planned
	if p.Calls != nil {
		out.Calls = make([]PlannedCall, len(p.Calls))
	}
	for i := range p.Calls {
		c := &p.Calls[i]
		out.Calls[i] = c.PlannedCall
		if len(p.Kinds) == 0 {
			continue
		}
		if c.Kind < 0 || c.Kind >= len(p.Kinds) {
			return nil, fmt.Errorf("call %d is of the kind %d, of %d", i, c.Kind, len(p.Kinds))
		}
		kind := p.Kinds[c.Kind]
		kind.ID, kind.InputSHA256, kind.Mended = c.ID, c.InputSHA256, c.Mended
		out.Calls[i] = kind
	}
	return out, nil
}
