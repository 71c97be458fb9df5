package replay

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/submission"
)

// times has what the fold drops: the times of all events.
type times struct {
	submitted, planned, last time.Time
	by                       string // who submitted
	groups                   map[int]time.Time
	calls                    map[int]*callTimes
	happened, replies        []moment
	// shaped is the last event that planned calls.
	shaped int
}

// callTimes are those of one call. A zero time means that it did not happen.
type callTimes struct {
	attempts []attempt
	waits    []wait
	finished time.Time
	notRun   string // how it was answered, if its group did not have to start
	changed  int    // the last event about it
}

// wait is a time in which a call waited for a person.
type wait struct{ asked, over time.Time }

type attempt struct {
	n               int
	worker          string
	claimed, failed time.Time
	code            toolyard.Code
}

// moment is a time and what happened, in words.
type moment struct {
	at   time.Time
	what string
}

func (t *times) call(i int) *callTimes {
	if t.calls[i] == nil {
		t.calls[i] = &callTimes{}
	}
	return t.calls[i]
}

// record records the time of an event. One that does not say when it was written counts as written with the one before
// it: a CloudEvent need not have a time, and agents write submissions with other libraries.
func (t *times) record(e Event, s *batch.State) {
	if e.Time.IsZero() {
		e.Time = t.last
	}
	if e.Time.After(t.last) {
		t.last = e.Time
	}
	if t.submitted.IsZero() {
		t.submitted = e.Time
	}
	t.touch(e)
	switch b := e.Body.(type) {
	case events.Submitted:
		t.submitted, t.by = e.Time, e.Meta.Source
	case events.Planned:
		t.planned = e.Time
		if b.Start != nil {
			t.groups[b.Start.Group] = e.Time
		}
		t.notRun(b.Results, e.Time, "answered at plan")
	case events.Extended:
		t.happened = append(t.happened, moment{e.Time, Words(e.Record, s)})
		t.notRun(b.Results, e.Time, "answered at plan")
	case events.Settled:
		t.notRun(b.Results, e.Time, "settled without running")
	case events.Started:
		if _, again := t.groups[b.Group]; again {
			t.happened = append(t.happened, moment{e.Time, Words(e.Record, s) + " again"})
			return
		}
		t.groups[b.Group] = e.Time
	case events.Claimed:
		c := t.call(e.Calls()[0])
		c.attempts = append(c.attempts, attempt{n: b.Attempt, worker: b.Worker, claimed: e.Time})
	case events.AttemptFailed:
		c := t.call(e.Calls()[0])
		if n := len(c.attempts); n == 0 || !c.attempts[n-1].failed.IsZero() { // it needed no claim
			c.attempts = append(c.attempts, attempt{n: b.Attempt, worker: b.Worker})
		}
		last := &c.attempts[len(c.attempts)-1]
		last.failed, last.code = e.Time, b.Code
	case events.Finished:
		for _, i := range e.Calls() {
			t.call(i).finished = e.Time
		}
	case events.Reply:
		t.replies = append(t.replies, moment{e.Time, strings.TrimPrefix(Words(e.Record, s), "replied ")})
	case events.Adopted, events.Canceled, events.Interrupted, events.Parked, events.Waiting, events.Decided,
		events.Returned,
		events.Appended, events.Closed, events.Unreadable, events.Newer:
		t.happened = append(t.happened, moment{e.Time, Words(e.Record, s)})
	}
}

// touch records which calls an event is about, and how long they waited for people.
func (t *times) touch(e Event) {
	n := int(e.Seq)
	switch e.Body.(type) {
	case events.Submitted, events.Planned, events.Extended, events.Appended:
		t.shaped = n
	}
	for _, r := range events.ResultsIn(e.Body) {
		t.call(r.Index).changed = n
	}
	for _, i := range e.Calls() {
		c := t.call(i)
		c.changed = n
		if last := len(c.waits) - 1; last >= 0 && c.waits[last].over.IsZero() {
			c.waits[last].over = e.Time
		}
		if _, asked := e.Body.(events.Waiting); asked {
			c.waits = append(c.waits, wait{asked: e.Time})
		}
	}
}

func (t *times) notRun(results []toolyard.Result, at time.Time, how string) {
	for _, r := range results {
		c := t.call(r.Index)
		c.finished, c.notRun = at, how
	}
}

// since is a time relative to the submission, in milliseconds.
func (t *times) since(at time.Time) float64 {
	return math.Round(float64(at.Sub(t.submitted))/float64(time.Microsecond)) / 1000
}

// Report is the result of a replay. Its JSON has times in milliseconds since the submission.
type Report struct {
	Batch toolyard.BatchView `json:"batch"`
	// Events is the number of events that were read; Consistent says that none of them contradicts those before.
	Events        int            `json:"events"`
	Consistent    bool           `json:"consistent"`
	Contradiction *Contradiction `json:"contradiction,omitempty"`
	SubmittedAt   time.Time      `json:"submitted_at"`
	LastMS        float64        `json:"last_ms"`
	Owner         string         `json:"owner"`
	Takeovers     int            `json:"takeovers"`
	Groups        []Group        `json:"groups"`
	Happened      []Moment       `json:"happened"`
	Replies       []Moment       `json:"replies"`
	// GivenUp are the calls that were answered as internal_error, without an event, by an owner that gave up the batch.
	GivenUp []int `json:"given_up,omitempty"`
	// Missing says that the log lacks the beginning of the batch, so that nothing was checked.
	Missing bool `json:"missing,omitempty"`

	state batch.State
	times times
}

// Group is when a group ran.
type Group struct {
	Group     int      `json:"group"`
	StartedMS *float64 `json:"started_ms,omitempty"`
	Ticket    uint64   `json:"ticket,omitempty"`
	Safe      bool     `json:"safe"`
	Calls     []Call   `json:"calls"`
}

// Call is when a call ran.
type Call struct {
	Index      int       `json:"index"`
	FinishedMS *float64  `json:"finished_ms,omitempty"`
	NotRun     string    `json:"not_run,omitempty"`
	Attempts   []Attempt `json:"attempts,omitempty"`
}

// Attempt is one attempt in the log: it was claimed, or it failed and was repeated.
type Attempt struct {
	Attempt   int           `json:"attempt"`
	Worker    string        `json:"worker,omitempty"`
	ClaimedMS *float64      `json:"claimed_ms,omitempty"`
	FailedMS  *float64      `json:"failed_ms,omitempty"`
	Code      toolyard.Code `json:"code,omitempty"`
}

// Moment is a time and what happened, in words.
type Moment struct {
	MS   float64 `json:"ms" doc:"When it happened, in milliseconds since the submission."`
	What string  `json:"what" doc:"What happened."`
}

// Report evaluates the events so far as the whole log. Before a submission was added it is empty. More events may be
// added after it.
func (p *Replay) Report() *Report {
	defer func(wrong *Contradiction) { p.wrong = wrong }(p.wrong)
	p.end()
	s, t := &p.state, &p.times
	r := &Report{
		Batch: s.View(), Events: p.read, Consistent: p.wrong == nil, Contradiction: p.wrong, SubmittedAt: t.submitted,
		LastMS: t.since(t.last),
		Owner:  s.Owner, Takeovers: s.Takeovers, Groups: []Group{}, Happened: t.moments(t.happened),
		Replies: t.moments(t.replies), GivenUp: p.givenUp, state: *s, times: *t,
	}
	ms := func(at time.Time) *float64 {
		if at.IsZero() {
			return nil
		}
		v := t.since(at)
		return &v
	}
	if s.Plan == nil {
		return r
	}
	for g, group := range s.Plan.Groups {
		out := Group{Group: g, StartedMS: ms(t.groups[g]), Ticket: s.Started[g], Safe: group.Safe}
		for _, i := range group.Calls {
			c := Call{Index: i}
			if ct := t.calls[i]; ct != nil {
				c.FinishedMS, c.NotRun = ms(ct.finished), ct.notRun
				for _, a := range ct.attempts {
					c.Attempts = append(c.Attempts, Attempt{Attempt: a.n, Worker: a.worker, ClaimedMS: ms(a.claimed),
						FailedMS: ms(a.failed), Code: a.code})
				}
			}
			out.Calls = append(out.Calls, c)
		}
		r.Groups = append(r.Groups, out)
	}
	return r
}

func (t *times) moments(in []moment) []Moment {
	out := make([]Moment, len(in))
	for i, m := range in {
		out[i] = Moment{MS: t.since(m.at), What: m.what}
	}
	return out
}

// The width in characters of the time from the submission to the last event: the usual one, and the least where lines
// have to fit a terminal.
const (
	barWidth      = 40
	leastBarWidth = 10
)

// Look says how a report is drawn.
type Look struct {
	// Columns is how many characters lines of calls have at most, 60 or more: bars are shorter there, and names lose
	// their middle. 0 sets no limit. Other lines may be longer.
	Columns int
	// Brief leaves out the phases of calls.
	Brief bool
}

// Text draws the report with all there is to say: the batch, its groups and calls over time, how it ended, and the
// result of the checks.
func (r *Report) Text() string { return r.Draw(Look{}) }

// Draw is [Report.Text] in another form.
func (r *Report) Draw(look Look) string {
	var b strings.Builder
	printf := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	s := &r.state
	if r.Missing {
		return fmt.Sprintf("batch %s · agent %s\nnot checked: the log has %s of it, and not its submission\n",
			plain(string(s.Key.ID)), plain(string(s.Key.Agent)), count(r.Events, "event"))
	}
	if s.Submission == nil {
		return r.verdict() + "\n"
	}
	printf("batch %s · agent %s · session %s · workspace %s · %s\n", plain(string(r.Batch.ID)),
		plain(string(r.Batch.Agent)),
		plain(string(r.Batch.Session)), plain(string(r.Batch.Workspace)),
		count(max(len(s.Submission.Calls), len(s.Calls)), "call"))
	printf("submitted %s by %s\n", r.SubmittedAt.UTC().Format("2006-01-02 15:04:05.000 MST"), plain(r.times.by))
	if p := s.Submission.Options.Parent; p != nil {
		printf("made by a script: call %d of batch %s\n", p.Call, plain(string(p.Batch)))
	}
	if s.Plan != nil {
		printf("planned   %s by %s: %s, %s, surface %.12s\n", at(r.times.since(r.times.planned)), plain(s.Plan.Owner),
			count(len(s.Plan.Groups), "group"), plain(string(s.Plan.Partition)), plain(s.Plan.Surface))
	}
	for _, m := range r.Happened {
		printf("%9s %s %s\n", "", at(m.MS), m.What)
	}
	if len(r.Groups) > 0 {
		printf("each bar is the time from 0 to %s ms: · waits, █ runs, ! an attempt fails\n", millis(r.LastMS))
	}
	size := r.fit(look.Columns)
	for _, g := range r.Groups {
		b.WriteString(r.group(g, size, look.Brief))
	}
	for i, c := range s.Calls {
		if res := c.Result; res != nil && res.Tool == toolyard.RunCodeTool && res.Attempts > 0 {
			attempt := max(c.Attempt, res.Attempts) // some may not have been started, or not been claimed
			first := submission.ChildID(toolyard.Parent{Batch: s.Key.ID, Call: i, Attempt: attempt, N: 1})
			printf("\nthe script of call %d makes its calls as batches from %s on\n", i, first)
		}
	}
	if len(r.Replies) > 0 {
		printf("\nreplies\n")
		for _, m := range r.Replies[:min(len(r.Replies), maxListed)] {
			printf("  %s %s\n", at(m.MS), m.What)
		}
		if more := len(r.Replies) - maxListed; more > 0 {
			printf("  … %d more\n", more)
		}
	}
	printf("\n%s\n%s\n", r.ended(), r.verdict())
	return b.String()
}

func at(ms float64) string { return fmt.Sprintf("+%s ms", millis(ms)) }

// callForm is a call's line: title, bar and span.
const callForm = "  %s |%s| %s"

// aroundCall is how many characters a call's line has beside those.
const aroundCall = len(callForm) - 3*len("%s")

// size says how long the parts of calls' lines are, the same for all calls: bars that have one scale stand below each
// other.
type size struct{ columns, title, bar int }

// fit finds the sizes with which the lines of calls that ran fit.
func (r *Report) fit(columns int) size {
	all, ran, span := 0, 0, 0 // the longest title, that of calls that have a bar, and the longest span of these
	for _, g := range r.Groups {
		for _, c := range g.Calls {
			title := utf8.RuneCountInString(r.title(c.Index))
			all = max(all, title)
			if c.NotRun == "" {
				ran, span = max(ran, title), max(span, utf8.RuneCountInString(r.span(c)))
			}
		}
	}
	if columns <= 0 {
		return size{title: all, bar: barWidth}
	}
	bar := max(leastBarWidth, min(barWidth, columns-aroundCall-ran-span))
	return size{columns: columns, title: min(all, columns-aroundCall-bar-span), bar: bar}
}

// Middle takes the middle out of a text that has more than so many characters: its beginning and its end say most.
func Middle(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	if most < 3 {
		return string(runes[:max(most, 0)])
	}
	end := (most - 1) / 2
	return string(runes[:most-1-end]) + "…" + string(runes[len(runes)-end:])
}

// callLine draws one call. Where not all has room, a call that was answered without running has no bar, which would be
// empty.
func (r *Report) callLine(g Group, c Call, s size) string {
	title, span := r.title(c.Index), r.span(c)
	if room := s.columns - utf8.RuneCountInString(span); s.columns > 0 {
		if c.NotRun != "" && room < aroundCall+s.title+s.bar {
			return fmt.Sprintf("  %s %s", Middle(title, room-len("   ")), span)
		}
		title = Middle(title, s.title)
	}
	title += strings.Repeat(" ", max(s.title-utf8.RuneCountInString(title), 0))
	return fmt.Sprintf(callForm, title, r.bar(g, c, s.bar), span)
}

// group draws one group.
func (r *Report) group(g Group, s size, brief bool) string {
	var b strings.Builder
	how := "alone"
	if len(g.Calls) > 1 {
		how = "together"
	}
	fmt.Fprintf(&b, "\ngroup %d · %s %s", g.Group+1, count(len(g.Calls), "call"), how)
	if g.StartedMS != nil {
		fmt.Fprintf(&b, " · started %s%s\n", at(*g.StartedMS), ticketWords(g.Ticket))
	} else {
		b.WriteString(" · never started\n")
	}
	for _, c := range g.Calls {
		b.WriteString(r.callLine(g, c, s) + "\n")
		for _, line := range r.details(c, brief) {
			fmt.Fprintf(&b, "      %s\n", line)
		}
	}
	return b.String()
}

// title is the call and its end.
func (r *Report) title(i int) string {
	p, c := r.state.Plan.Calls[i], r.state.Calls[i]
	mark, end := "…", string(c.Status)
	if c.Result != nil {
		mark, end = "✓", outcome(c.Result)
		if c.Result.IsError {
			mark = "✗"
		}
	}
	return fmt.Sprintf("%s [%d] %s %s %s", mark, i, plain(p.Tool), p.Judgement.Class, end)
}

// span is the time in which the call was open, in numbers.
func (r *Report) span(c Call) string {
	switch {
	case c.FinishedMS == nil && c.NotRun == "":
		return "open"
	case c.FinishedMS == nil: // no event has a time
		return c.NotRun
	case c.NotRun != "":
		return at(*c.FinishedMS) + " " + c.NotRun
	}
	return at(*c.FinishedMS)
}

// bar draws the call over time: waiting from its group's start, running for the duration in its result, or since its
// claim.
func (r *Report) bar(g Group, c Call, width int) string {
	cells := []rune(strings.Repeat(" ", width))
	cell := func(ms float64) int {
		if r.LastMS <= 0 {
			return 0
		}
		return max(0, min(width-1, int(ms/r.LastMS*float64(width))))
	}
	fill := func(from, to float64, with rune) {
		for i := cell(from); i <= cell(to); i++ {
			cells[i] = with
		}
	}
	if c.NotRun != "" || g.StartedMS == nil {
		return string(cells)
	}
	end := r.LastMS
	if c.FinishedMS != nil {
		end = *c.FinishedMS
	}
	fill(*g.StartedMS, end, '·')
	for _, a := range c.Attempts {
		if a.ClaimedMS != nil {
			to := end
			if a.FailedMS != nil {
				to = *a.FailedMS
			}
			fill(*a.ClaimedMS, to, '█')
		}
		if a.FailedMS != nil {
			cells[cell(*a.FailedMS)] = '!'
		}
	}
	// If the last attempt needed no claim, no event marks its start: only its result has its duration.
	from := *g.StartedMS
	if n := len(c.Attempts); n > 0 {
		if c.Attempts[n-1].FailedMS == nil {
			return string(cells)
		}
		from = *c.Attempts[n-1].FailedMS
	}
	if res := r.state.Calls[c.Index].Result; res != nil && res.DurationMS > 0 {
		fill(max(end-res.DurationMS, from), end, '█')
	}
	return string(cells)
}

// details are the lines below a call: its attempts, its times, its phases.
func (r *Report) details(c Call, brief bool) []string {
	var lines []string
	for _, a := range c.Attempts {
		line := fmt.Sprintf("attempt %d", a.Attempt)
		if a.ClaimedMS != nil {
			line += fmt.Sprintf(": claimed %s", at(*a.ClaimedMS))
		}
		line += by(a.Worker)
		if a.FailedMS != nil {
			line += fmt.Sprintf(", failed %s as %s", at(*a.FailedMS), plain(string(a.Code)))
		}
		lines = append(lines, line)
	}
	res := r.state.Calls[c.Index].Result
	if res == nil {
		return lines
	}
	if res.Worker != "" || res.Attempts > 0 {
		ran := count(res.Attempts, "attempt")
		if res.Attempts == 0 {
			ran = "not executed"
		}
		lines = append(lines, fmt.Sprintf("%s%s: queued %s, took %s, executed %s ms", ran, by(res.Worker),
			millis(res.QueueMS), millis(res.DurationMS), millis(res.ExecuteMS)))
	}
	if brief {
		return lines
	}
	var phases []string
	for _, f := range res.Phases {
		phase := plain(string(f.Phase)) + " " + millis(f.MS)
		if f.Outcome == toolyard.OutcomeFailed {
			phase += " ✗ " + plain(string(f.Code))
		}
		phases = append(phases, phase)
	}
	if len(phases) > 0 {
		lines = append(lines, strings.Join(phases, " · "))
	}
	return lines
}

// ended describes the batch at the end of the log.
func (r *Report) ended() string {
	s := &r.state
	if s.Refused != nil {
		return fmt.Sprintf("refused (%d): %s", s.Refused.Status, plain(s.Refused.Detail))
	}
	if len(r.GivenUp) > 0 {
		return fmt.Sprintf("given up at %s: %s answered as internal_error: %s", at(r.LastMS),
			count(len(r.GivenUp), "call"), ranges(r.GivenUp))
	}
	if s.Plan == nil {
		return "accepted, and not planned yet"
	}
	failed, open := 0, []int(nil)
	for i, c := range s.Calls {
		switch {
		case c.Result == nil:
			open = append(open, i)
		case c.Result.IsError:
			failed++
		}
	}
	text := fmt.Sprintf("%s at %s: %s, %s", r.Batch.Status, at(r.LastMS),
		count(len(s.Calls)-len(open)-failed, "result"), count(failed, "error"))
	if len(open) > 0 {
		text += fmt.Sprintf(", %s without a result: %s", count(len(open), "call"), ranges(open))
	}
	return text
}

// verdict says what was checked, or what is wrong.
func (r *Report) verdict() string {
	if r.Contradiction != nil {
		return "contradiction: " + r.Contradiction.Error()
	}
	return fmt.Sprintf("checked: %s, replies match results", count(r.Events, "event"))
}
