package events

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
)

// Results are also most of what is encoded. The bodies that have them are written here, field by field, as
// encoding/json writes them. What is rare is left to it: results with parts, echoes, changes of sessions, notices.
// TestOwnWriter holds that both write the same bytes.

// writeOwn encodes a body. ok is false if encoding/json has to.
func writeOwn(b Body) (data []byte, ok bool) {
	const (
		resultBytes = 1_300 // of one without its texts: so that the text seldom grows
		endBytes    = 400
	)
	w := &writer{}
	switch b := b.(type) {
	case Reply:
		size := 64
		for i := range b.Results {
			size += resultBytes + len(b.Results[i].Output) + len(b.Results[i].Error)
		}
		w.to = make([]byte, 0, size)
		w.reply(&b)
	case Finished:
		size := 64 + endBytes + len(b.Result.Output)
		for i := range b.More {
			size += endBytes + len(b.More[i].Result.Output)
		}
		w.to = make([]byte, 0, size)
		w.finished(&b)
	default:
		return nil, false
	}
	return w.to, !w.bad
}

// writer is a text that grows. bad says that something came that encoding/json has to write.
type writer struct {
	to  []byte
	bad bool
}

func (w *writer) text(s string) { w.to = append(w.to, s...) }

// string writes a string: one that is not plain as encoding/json does.
func (w *writer) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, err := json.Marshal(s)
			w.bad = w.bad || err != nil
			w.to = append(w.to, escaped...)
			return
		}
	}
	w.to = append(w.to, '"')
	w.to = append(w.to, s...)
	w.to = append(w.to, '"')
}

func (w *writer) int(n int64) { w.to = strconv.AppendInt(w.to, n, 10) }

func (w *writer) bool(b bool) { w.to = strconv.AppendBool(w.to, b) }

// float writes a number. encoding/json has another form for those that are very large or small.
func (w *writer) float(f float64) {
	if size := math.Abs(f); f != 0 && !(size >= 1e-6 && size < 1e21) {
		w.bad = true
	}
	w.to = strconv.AppendFloat(w.to, f, 'f', -1, 64)
}

func (w *writer) reply(r *Reply) {
	if r.Notice != nil || r.Results == nil {
		w.bad = true
		return
	}
	w.text(`{"results":[`)
	for i := range r.Results {
		if i > 0 {
			w.text(",")
		}
		w.result(&r.Results[i])
	}
	w.text(`],"completed":`)
	w.bool(r.Completed)
	w.text("}")
}

func (w *writer) result(r *toolyard.Result) {
	if len(r.Content) > 0 || len(r.Structured) > 0 || len(r.Echo) > 0 || r.Overlay != nil ||
		r.Phases == nil {
		w.bad = true
		return
	}
	w.text(`{"index":`)
	w.int(int64(r.Index))
	w.text(`,"call_id":`)
	w.string(r.CallID)
	w.text(`,"tool":`)
	w.string(r.Tool)
	w.text(`,"is_error":`)
	w.bool(r.IsError)
	w.text(`,"code":`)
	w.string(string(r.Code))
	w.text(`,"output":`)
	w.string(r.Output)
	w.text(`,"error":`)
	w.string(r.Error)
	if r.Detail != "" {
		w.text(`,"detail":`)
		w.string(r.Detail)
	}
	w.text(`,"retryable":`)
	w.bool(r.Retryable)
	w.text(`,"retry_after_ms":`)
	w.int(r.RetryAfterMS)
	w.text(`,"concurrency_class":`)
	w.string(string(r.Class))
	w.text(`,"was_concurrent":`)
	w.bool(r.WasConcurrent)
	w.text(`,"duration_ms":`)
	w.float(r.DurationMS)
	w.text(`,"execute_ms":`)
	w.float(r.ExecuteMS)
	w.text(`,"queue_ms":`)
	w.float(r.QueueMS)
	w.text(`,"approval_wait_ms":`)
	w.float(r.ApprovalWaitMS)
	w.text(`,"attempts":`)
	w.int(int64(r.Attempts))
	w.text(`,"worker":`)
	w.string(r.Worker)
	if r.Cache != "" {
		w.text(`,"cache":`)
		w.string(string(r.Cache))
	}
	w.text(`,"truncated":`)
	w.bool(r.Truncated)
	w.text(`,"blob":`)
	w.string(r.Blob)
	w.text(`,"isolation":`)
	w.string(r.Isolation)
	if r.Origin != nil {
		w.text(`,"origin":`)
		w.origin(r.Origin)
	}
	w.text(`,"phases":[`)
	for i := range r.Phases {
		f := &r.Phases[i]
		if i > 0 {
			w.text(",")
		}
		w.text(`{"phase":`)
		w.string(string(f.Phase))
		w.text(`,"outcome":`)
		w.string(string(f.Outcome))
		if f.Code != "" {
			w.text(`,"code":`)
			w.string(string(f.Code))
		}
		w.text(`,"ms":`)
		w.float(f.MS)
		if f.Detail != "" {
			w.text(`,"detail":`)
			w.string(f.Detail)
		}
		w.text("}")
	}
	w.text("]}")
}

func (w *writer) finished(f *Finished) {
	w.text(`{"ends":[`)
	w.end(&f.End)
	for i := range f.More {
		w.text(",")
		w.end(&f.More[i])
	}
	w.text("]}")
}

// field begins a field of an object that leaves out what has its default.
func (w *writer) field(name string) {
	if w.to[len(w.to)-1] != '{' {
		w.to = append(w.to, ',')
	}
	w.to = append(w.to, '"')
	w.to = append(w.to, name...)
	w.to = append(w.to, '"', ':')
}

func (w *writer) textField(name, s string) {
	if s != "" {
		w.field(name)
		w.string(s)
	}
}

func (w *writer) intField(name string, n int64) {
	if n != 0 {
		w.field(name)
		w.int(n)
	}
}

func (w *writer) boolField(name string, b bool) {
	if b {
		w.field(name)
		w.bool(b)
	}
}

func (w *writer) floatField(name string, f float64) {
	if f != 0 {
		w.field(name)
		w.float(f)
	}
	w.bad = w.bad || f == 0 && math.Signbit(f)
}

func (w *writer) end(e *End) {
	r := &e.Result
	if len(r.Content) > 0 || len(r.Structured) > 0 || len(r.Echo) > 0 || r.Overlay != nil ||
		e.Session != nil {
		w.bad = true
		return
	}
	w.text("{")
	w.intField("i", int64(r.Index))
	w.textField("id", r.CallID)
	w.textField("tool", r.Tool)
	w.boolField("failed", r.IsError)
	w.textField("code", string(r.Code))
	w.textField("out", r.Output)
	w.textField("error", r.Error)
	w.textField("detail", r.Detail)
	w.boolField("retry", r.Retryable)
	w.intField("after", r.RetryAfterMS)
	w.textField("class", string(r.Class))
	w.boolField("beside", r.WasConcurrent)
	w.floatField("ms", r.DurationMS)
	w.floatField("execute", r.ExecuteMS)
	w.floatField("queue", r.QueueMS)
	w.floatField("approval", r.ApprovalWaitMS)
	w.intField("n", int64(r.Attempts))
	w.textField("worker", r.Worker)
	w.boolField("cut", r.Truncated)
	w.textField("blob", r.Blob)
	w.textField("isolation", r.Isolation)
	w.textField("cache", string(r.Cache))
	if r.Origin != nil {
		w.field("origin")
		w.origin(r.Origin)
	}
	if r.Phases != nil {
		w.field("phases")
		w.facts(r.Phases)
	}
	w.text("}")
}

// origin writes an origin. What scanners have found encoding/json writes.
func (w *writer) origin(o *toolyard.Origin) {
	w.bad = w.bad || len(o.Found) > 0
	w.text(`{"source":`)
	w.string(o.Source)
	if o.Fence != "" {
		w.text(`,"fence":`)
		w.string(o.Fence)
	}
	w.text("}")
}

func (w *writer) facts(facts slimFacts) {
	w.text("[")
	next := 0
	for i := range facts {
		if i > 0 {
			w.text(",")
		}
		s, micros := facts.slim(i, &next)
		if micros {
			w.int(s.Micros)
			continue
		}
		w.text("{")
		if s.Phase != nil {
			w.field("p")
			w.string(string(*s.Phase))
		}
		if s.Outcome != nil {
			w.field("o")
			w.string(string(*s.Outcome))
		}
		w.textField("c", string(s.Code))
		w.textField("d", s.Detail)
		w.intField("us", s.Micros)
		w.floatField("ms", s.MS)
		w.text("}")
	}
	w.text("]")
}
