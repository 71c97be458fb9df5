package events

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// Results and calls are most of what a batch stores, and reading their JSON was a fifth of its processor time. What our
// own writers have written is read here, field by field in their order. Anything else is left to the general reader:
// unknown fields, another order, spaces, results with parts, and what few calls have. TestOwnForms holds that both read
// the same.

// readOwn reads the data of an event whose body has results or calls. ok is false if the general reader has to.
func readOwn(t Type, data []byte) (b Body, ok bool) {
	c := &cursor{}
	switch t {
	case CallFinished:
		c.text = string(data)
		b = c.finished()
	case Results:
		c.text = string(data)
		b = c.reply()
	case BatchSubmitted:
		c.text = string(data)
		b = c.submitted()
	case CallsRequested:
		c.text = string(data)
		b = c.requested()
	default:
		return nil, false
	}
	return b, !c.bad && c.at == len(c.text)
}

// OwnSubmission reports whether the data of a submission is in the layout that our writers give it: it has known fields
// only, each at most once, with values of their types. Echoes, rules and tags are left to the general readers.
func OwnSubmission(data []byte) bool {
	_, ok := readOwn(BatchSubmitted, data)
	return ok
}

// cursor is a place in a text. bad says that something else stands there than was expected; then all that it returns
// means nothing.
type cursor struct {
	text string
	at   int
	bad  bool
}

// skip passes over a text that must stand here.
func (c *cursor) skip(text string) {
	if !c.next(text) {
		c.bad = true
	}
}

// next passes over a text if it stands here.
func (c *cursor) next(text string) bool {
	if c.bad || !strings.HasPrefix(c.text[c.at:], text) {
		return false
	}
	c.at += len(text)
	return true
}

// list reads the elements of a list.
func (c *cursor) list(element func()) {
	c.skip("[")
	if c.next("]") {
		return
	}
	for element(); c.next(","); {
		element()
	}
	c.skip("]")
}

// string reads a string. Without escapes it is a part of the text.
func (c *cursor) string() string {
	c.skip(`"`)
	if c.bad {
		return ""
	}
	begin, ascii := c.at, true
	for at := begin; at < len(c.text); at++ {
		switch b := c.text[at]; {
		case b == '"':
			c.at = at + 1
			text := c.text[begin:at]
			c.bad = !ascii && !utf8.ValidString(text)
			return text
		case b == '\\':
			return c.escaped(begin - 1)
		case b < ' ':
			c.bad = true
			return ""
		case b >= utf8.RuneSelf:
			ascii = false
		}
	}
	c.bad = true
	return ""
}

// escaped reads a string with escapes, which begins at a quote.
func (c *cursor) escaped(begin int) string {
	for at := begin + 1; at < len(c.text); at++ {
		switch c.text[at] {
		case '\\':
			at++
		case '"':
			c.at = at + 1
			out, err := jsontext.AppendUnquote(nil, c.text[begin:c.at])
			c.bad = err != nil
			return string(out)
		}
	}
	c.bad = true
	return ""
}

// digits passes over digits, of which there must be one.
func (c *cursor) digits() {
	begin := c.at
	for c.at < len(c.text) && '0' <= c.text[c.at] && c.text[c.at] <= '9' {
		c.at++
	}
	c.bad = c.bad || c.at == begin
}

// whole passes over the whole part of a number.
func (c *cursor) whole() {
	c.next("-")
	if !c.next("0") {
		c.digits()
	}
}

func (c *cursor) int() int64 {
	begin := c.at
	c.whole()
	n, err := strconv.ParseInt(c.text[begin:c.at], 10, 64)
	c.bad = c.bad || err != nil
	return n
}

func (c *cursor) float() float64 {
	begin := c.at
	c.whole()
	if c.next(".") {
		c.digits()
	}
	if c.next("e") {
		if !c.next("-") {
			c.next("+")
		}
		c.digits()
	}
	n, err := strconv.ParseFloat(c.text[begin:c.at], 64)
	c.bad = c.bad || err != nil
	return n
}

func (c *cursor) bool() bool {
	if c.next("true") {
		return true
	}
	c.skip("false")
	return false
}

// time reads a time. The general reader knows no escapes in one.
func (c *cursor) time() (t time.Time) {
	begin := c.at
	text := c.string()
	c.bad = c.bad || len(text) != c.at-begin-len(`""`) || t.UnmarshalText([]byte(text)) != nil
	return t
}

func (c *cursor) reply() (r Reply) {
	c.skip(`{"results":`)
	r.Results = make([]toolyard.Result, 0, strings.Count(c.text, `{"index":`))
	c.list(func() {
		r.Results = append(r.Results, toolyard.Result{})
		c.result(&r.Results[len(r.Results)-1])
	})
	c.skip(`,"completed":`)
	r.Completed = c.bool()
	c.skip("}")
	return r
}

func (c *cursor) result(r *toolyard.Result) {
	c.skip(`{"index":`)
	r.Index = int(c.int())
	c.skip(`,"call_id":`)
	r.CallID = c.string()
	c.skip(`,"tool":`)
	r.Tool = c.string()
	c.skip(`,"is_error":`)
	r.IsError = c.bool()
	c.skip(`,"code":`)
	r.Code = toolyard.Code(c.string())
	c.skip(`,"output":`)
	r.Output = c.string()
	c.skip(`,"error":`)
	r.Error = c.string()
	if c.next(`,"detail":`) {
		r.Detail = c.string()
	}
	c.skip(`,"retryable":`)
	r.Retryable = c.bool()
	c.skip(`,"retry_after_ms":`)
	r.RetryAfterMS = c.int()
	c.skip(`,"concurrency_class":`)
	r.Class = toolyard.Class(c.string())
	c.skip(`,"was_concurrent":`)
	r.WasConcurrent = c.bool()
	c.skip(`,"duration_ms":`)
	r.DurationMS = c.float()
	c.skip(`,"execute_ms":`)
	r.ExecuteMS = c.float()
	c.skip(`,"queue_ms":`)
	r.QueueMS = c.float()
	c.skip(`,"approval_wait_ms":`)
	r.ApprovalWaitMS = c.float()
	c.skip(`,"attempts":`)
	r.Attempts = int(c.int())
	c.skip(`,"worker":`)
	r.Worker = c.string()
	if c.next(`,"cache":`) {
		r.Cache = toolyard.CacheUse(c.string())
	}
	c.skip(`,"truncated":`)
	r.Truncated = c.bool()
	c.skip(`,"blob":`)
	r.Blob = c.string()
	c.skip(`,"isolation":`)
	r.Isolation = c.string()
	if c.next(`,"origin":`) {
		r.Origin = c.origin()
	}
	c.skip(`,"phases":`)
	r.Phases = make([]toolyard.Fact, 0, len(toolyard.Phases))
	c.list(func() {
		var f toolyard.Fact
		c.skip(`{"phase":`)
		f.Phase = toolyard.Phase(c.string())
		c.skip(`,"outcome":`)
		f.Outcome = toolyard.Outcome(c.string())
		if c.next(`,"code":`) {
			f.Code = toolyard.Code(c.string())
		}
		c.skip(`,"ms":`)
		f.MS = c.float()
		if c.next(`,"detail":`) {
			f.Detail = c.string()
		}
		c.skip("}")
		r.Phases = append(r.Phases, f)
	})
	c.skip("}")
}

func (c *cursor) finished() Body {
	c.skip(`{"ends":`)
	var f readFinished
	f.slimFinished.Ends = make([]slimEnd, 0, 1+strings.Count(c.text, `},{"`))
	c.list(func() {
		f.slimFinished.Ends = append(f.slimFinished.Ends, slimEnd{})
		c.end(&f.slimFinished.Ends[len(f.slimFinished.Ends)-1])
	})
	c.skip("}")
	b, err := f.body()
	c.bad = c.bad || err != nil || len(f.slimFinished.Ends) == 0
	return b
}

// object reads the fields of an object that are left out where they have their default.
type object struct {
	*cursor
	begun bool
}

// has passes over the name of a field if the field is next.
func (o *object) has(name string) bool {
	begin := o.at
	if o.begun && !o.next(",") {
		return false
	}
	if o.next(`"`) && o.next(name) && o.next(`":`) {
		o.begun = true
		return true
	}
	o.at = begin
	return false
}

func (o *object) text(name string, to *string) {
	if o.has(name) {
		*to = o.string()
	}
}

func (o *object) number(name string, to *float64) {
	if o.has(name) {
		*to = o.float()
	}
}

func (o *object) int(name string, to *int64) {
	if o.has(name) {
		*to = o.cursor.int()
	}
}

func (o *object) unsigned(name string, to *uint64) {
	if !o.has(name) {
		return
	}
	begin := o.at
	o.whole()
	n, err := strconv.ParseUint(o.cursor.text[begin:o.at], 10, 64)
	*to, o.bad = n, o.bad || err != nil
}

func (o *object) flag(name string, to *bool) {
	if o.has(name) {
		*to = o.bool()
	}
}

func (c *cursor) end(e *slimEnd) {
	c.skip("{")
	o := object{cursor: c}
	if o.has("i") {
		e.Index = int(c.int())
	}
	o.text("id", &e.CallID)
	o.text("tool", &e.Tool)
	o.flag("failed", &e.IsError)
	o.text("code", (*string)(&e.Code))
	o.text("out", &e.Output)
	o.text("error", &e.Error)
	o.text("detail", &e.Detail)
	o.flag("retry", &e.Retryable)
	o.int("after", &e.RetryAfterMS)
	o.text("class", (*string)(&e.Class))
	o.flag("beside", &e.WasConcurrent)
	o.number("ms", &e.DurationMS)
	o.number("execute", &e.ExecuteMS)
	o.number("queue", &e.QueueMS)
	o.number("approval", &e.ApprovalWaitMS)
	if o.has("n") {
		e.Attempts = int(c.int())
	}
	o.text("worker", &e.Worker)
	o.flag("cut", &e.Truncated)
	o.text("blob", &e.Blob)
	o.text("isolation", &e.Isolation)
	o.text("cache", (*string)(&e.Cache))
	if o.has("origin") {
		e.Origin = c.origin()
	}
	if o.has("phases") {
		c.facts(&e.Phases)
	}
	c.skip("}")
}

// origin reads an origin of which scanners have found nothing.
func (c *cursor) origin() *toolyard.Origin {
	var from toolyard.Origin
	c.skip(`{"source":`)
	from.Source = c.string()
	if c.next(`,"fence":`) {
		from.Fence = c.string()
	}
	c.skip("}")
	return &from
}

func (c *cursor) facts(f *slimFacts) {
	*f = make(slimFacts, 0, len(toolyard.Phases))
	place := 0
	c.list(func() {
		var s slimFact
		if !c.next("{") {
			s.Micros = c.int()
		} else {
			o := object{cursor: c}
			if o.has("p") {
				s.Phase = new(toolyard.Phase(c.string()))
			}
			if o.has("o") {
				s.Outcome = new(toolyard.Outcome(c.string()))
			}
			if o.has("c") {
				s.Code = toolyard.Code(c.string())
			}
			if o.has("d") {
				s.Detail = c.string()
			}
			if o.has("us") {
				s.Micros = c.int()
			}
			if o.has("ms") {
				s.MS = c.float()
			}
			c.skip("}")
		}
		fact, err := s.fact(&place)
		c.bad = c.bad || err != nil
		*f = append(*f, fact)
	})
}

// value reads any JSON value.
func (c *cursor) value() json.RawMessage {
	if c.bad {
		return nil
	}
	begin, depth := c.at, 0
	for c.at < len(c.text) {
		switch c.text[c.at] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			if c.pass(); c.bad {
				return nil
			}
			c.at-- // behind it, as behind any other byte
		case ',':
			if depth == 0 { // it belongs to the object around
				depth--
			}
		}
		if depth < 0 {
			break
		}
		c.at++
	}
	v := jsontext.Value(strings.Trim(c.text[begin:c.at], " \t\r\n"))
	// as the general reader: a key that comes twice is not its concern
	c.bad = c.bad || !v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return json.RawMessage(v)
}

// pass passes over a string, whatever is in it.
func (c *cursor) pass() {
	for c.at++; c.at < len(c.text); c.at++ {
		switch c.text[c.at] {
		case '\\':
			c.at++
		case '"':
			c.at++
			return
		}
	}
	c.at, c.bad = len(c.text), true
}

func (c *cursor) submitted() (s Submitted) {
	c.skip("{")
	o := object{cursor: c}
	o.text("id", (*string)(&s.ID))
	o.text("agent", (*string)(&s.Agent))
	o.text("session", (*string)(&s.Session))
	o.text("workspace", (*string)(&s.Workspace))
	o.flag("interactive", &s.Interactive)
	o.flag("open", &s.Open)
	if !o.has("calls") {
		c.bad = true
	}
	s.Calls = make([]toolyard.Call, 0, strings.Count(c.text, `,"input":`))
	c.list(func() {
		s.Calls = append(s.Calls, toolyard.Call{})
		c.call(&s.Calls[len(s.Calls)-1])
	})
	if o.has("options") {
		c.options(&s.Options)
	}
	c.skip("}")
	return s
}

func (c *cursor) call(call *toolyard.Call) {
	c.skip(`{"id":`)
	call.ID = c.string()
	c.skip(`,"tool":`)
	call.Tool = c.string()
	c.skip(`,"input":`)
	call.Input = c.value()
	if c.next(`,"incomplete":`) {
		call.Incomplete = c.bool()
	}
	c.skip("}")
}

func (c *cursor) options(opts *toolyard.Options) {
	c.skip("{")
	o := object{cursor: c}
	o.text("partition", (*string)(&opts.Partition))
	if o.has("max_concurrency") {
		n := c.int()
		opts.MaxConcurrency = int(n)
		c.bad = c.bad || int64(opts.MaxConcurrency) != n
	}
	o.text("on_error", (*string)(&opts.OnError))
	o.int("timeout_ms", &opts.TimeoutMS)
	o.int("call_timeout_ms", &opts.CallTimeoutMS)
	o.flag("supersede", &opts.Supersede)
	o.flag("repair", &opts.Repair)
	o.flag("dry_run", &opts.DryRun)
	o.flag("snapshot", &opts.Snapshot)
	o.flag("overlay", &opts.Overlay)
	o.flag("undo", &opts.Undo)
	o.text("priority", (*string)(&opts.Priority))
	c.skip("}")
}

// requested reads a request without rules, tags, locks, overlays and what the session has.
func (c *cursor) requested() (r Requested) {
	c.skip(`{"agent":`)
	r.Agent = toolyard.Agent(c.string())
	c.skip(`,"batch":`)
	r.Batch = toolyard.BatchID(c.string())
	c.skip(`,"session":`)
	r.Session = toolyard.Session(c.string())
	c.skip(`,"workspace":`)
	r.Workspace = toolyard.Workspace(c.string())
	o := object{cursor: c, begun: true}
	o.flag("interactive", &r.Interactive)
	c.skip(`,"group":`)
	r.Group = int(c.int())
	o.unsigned("ticket", &r.Ticket)
	o.unsigned("generation", &r.Generation)
	o.flag("was_concurrent", &r.WasConcurrent)
	c.skip(`,"item":`)
	r.Item = int(c.int())
	o.unsigned("expected", &r.Expected)
	c.skip(`,"calls":`)
	r.Calls = make([]RequestedCall, 0, min(64, strings.Count(c.text, `,"declaration":`))) // an input may have it too
	c.list(func() {
		r.Calls = append(r.Calls, RequestedCall{})
		c.requestedCall(&r.Calls[len(r.Calls)-1])
	})
	c.skip(`,"width":`)
	r.Width = int(c.int())
	o.flag("snapshot", &r.Snapshot)
	o.int("call_timeout_ms", &r.CallTimeoutMS)
	o.flag("fence", &r.Fence)
	c.skip(`,"max_attempts":`)
	r.MaxAttempts = int(c.int())
	c.skip(`,"remaining_ms":`)
	r.RemainingMS = c.int()
	c.skip(`,"queued_at":`)
	r.QueuedAt = c.time()
	o.text("surface", &r.Surface)
	c.skip("}")
	return r
}

func (c *cursor) requestedCall(call *RequestedCall) {
	c.skip(`{"index":`)
	call.Index = int(c.int())
	c.skip(`,"id":`)
	call.ID = c.string()
	c.skip(`,"tool":`)
	call.Tool = c.string()
	c.skip(`,"input":`)
	call.Input = c.value()
	c.skip(`,"declaration":`)
	call.Declaration = c.string()
	c.skip(`,"judgement":`)
	c.judgement(&call.Judgement)
	o := object{cursor: c, begun: true}
	o.flag("claim", &call.Claim)
	c.skip(`,"attempt":`)
	call.Attempt = int(c.int())
	if o.has("unstarted") {
		call.Unstarted = int(c.int())
	}
	o.flag("again", &call.Again)
	o.text("as", &call.As)
	o.text("mended", &call.Mended)
	o.text("waited", &call.Waited)
	c.skip("}")
}

func (c *cursor) judgement(j *tool.Judgement) {
	c.skip(`{"class":`)
	j.Class = toolyard.Class(c.string())
	o := object{cursor: c, begun: true}
	o.flag("read_only", &j.ReadOnly)
	o.flag("destructive", &j.Destructive)
	o.flag("idempotent", &j.Idempotent)
	o.text("why", &j.Why)
	c.skip("}")
}
