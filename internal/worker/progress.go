package worker

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/gate"
	"github.com/toolyard/toolyard/tool"
)

// How a call's progress is told.
const (
	// ProgressInterval is how far apart the reports of one call are. What a tool says in between is told as one report.
	// A tool that says nothing is told of after so long, and not at all if it has ended by then.
	ProgressInterval = 200 * time.Millisecond
	// MaxProgressOutputBytes is how much output of one call waits to be told. Of more, the beginning is left out.
	MaxProgressOutputBytes = 16 << 10
	// MaxProgressStatusBytes is how long a status may be; the rest is cut off.
	MaxProgressStatusBytes = 512
	// progressHold is how long the beginning of a line waits for its end: a secret is recognised on a whole line.
	progressHold = time.Second
	// maxRawStatusBytes is how much of a status is looked at.
	maxRawStatusBytes = 8 << 10
)

// reporter tells the progress of one call: now and then, with what the tool has said since. Of fraction and status
// the last counts; pieces of output are put together. It never makes the tool wait.
type reporter struct {
	tell   func(p tool.Progress, lostBytes int)
	redact func(string) string
	// unfinished returns where the end of a text begins that may be the beginning of a secret. Nil: nobody knows.
	unfinished func(string) int

	sending gate.Gate // held while one report is made and told, so that they keep their order
	mu      sync.Mutex
	news    bool // fraction or status has not been told
	last    tool.Progress
	most    float64 // the largest fraction that was reported: none below it is told
	output  heldOutput
	told    time.Time
	timer   *time.Timer // runs while something is to be told
	over    bool
	// spoke says that the tool has said something itself; until then only that it was started is to be told, and begun
	// is when that was.
	spoke bool
	begun time.Time
}

// spoken reports whether a report has more than that the tool was started, or has returned.
func spoken(p tool.Progress) bool {
	return p != tool.Progress{Fraction: 0} && p != tool.Progress{Fraction: 1}
}

// report takes what the tool says.
func (r *reporter) report(p tool.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	if !r.spoke && spoken(p) {
		if r.spoke = true; r.timer != nil && r.timer.Stop() {
			r.timer = nil
		}
	}
	if p.Fraction = fraction(p.Fraction); p.Fraction >= 0 { // a report of words alone has a 0 there
		r.most = max(r.most, p.Fraction)
		r.last.Fraction = r.most
	} else if !r.news {
		r.last.Fraction = -1
	}
	if p.Status != "" || !r.news {
		r.last.Status = clip.Bytes(p.Status, maxRawStatusBytes)
	}
	r.news = true
	r.output.add(p.Output, time.Now())
	r.schedule()
}

// fraction is a fraction as it is told: 0 to 1, or -1 when it is unknown.
func fraction(f float64) float64 {
	if math.IsNaN(f) || f < 0 {
		return -1
	}
	return min(f, 1)
}

// schedule sees to it that what is to be told is, when it is time. r.mu is held.
func (r *reporter) schedule() {
	if r.timer != nil || !r.news && (r.output.text == "" || r.output.stuck) {
		return
	}
	at := r.told.Add(ProgressInterval)
	if !r.spoke && r.told.IsZero() {
		at = r.begun.Add(ProgressInterval)
	}
	if held := r.output.since.Add(progressHold); !r.news && held.After(at) {
		at = held
	}
	r.timer = time.AfterFunc(time.Until(at), func() { r.flush(false) })
}

// end tells what is left at once, and nothing more from then on.
func (r *reporter) end() {
	r.mu.Lock()
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.flush(true)
}

func (r *reporter) flush(final bool) {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.mu.Lock()
	text, lost := r.output.take(time.Now(), final, r.part)
	p, news := r.last, r.news && (r.spoke || !final || !r.told.IsZero())
	r.news = false
	r.mu.Unlock()
	if news || text != "" || lost > 0 {
		p.Status = clip.Bytes(r.clean(p.Status), MaxProgressStatusBytes)
		p.Output = r.clean(text)
		r.tell(p, lost)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told, r.timer = time.Now(), nil
	if !r.over {
		r.schedule()
	}
}

// clean takes secrets out. What the redactor cannot take is not told.
func (r *reporter) clean(text string) (clean string) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if text == "" || r.redact == nil {
		return text
	}
	defer func() {
		if recover() != nil {
			clean = ""
		}
	}()
	return r.redact(text)
}

// part returns how much of the beginning of a line may be told before the line goes on. The rest may be half a secret.
func (r *reporter) part(line string) (n int) {
	switch {
	case r.redact == nil:
		return len(line)
	case r.unfinished == nil:
		return 0
	}
	defer func() {
		if recover() != nil {
			n = 0
		}
	}()
	return r.unfinished(line)
}

// heldOutput is output that has not been told. Pieces come cut anywhere, and a secret is recognised only as a whole:
// so it goes out in whole lines, and a private key, which has several, when its end has come. The beginning of a line
// that does not go on is let go after [progressHold], but for what may be the beginning of a secret.
type heldOutput struct {
	text  string
	since time.Time // when the last line began
	lost  int       // bytes that were left out before it
	inKey bool      // the beginning of a private key was left out: so is the rest
	// inLine says that the beginning of a line was left out whose end has not come: so is the rest of it.
	inLine bool
	// stuck says that time alone lets nothing go: only what comes next does.
	stuck bool
}

const (
	keyBegin = "-----BEGIN "
	keyEnd   = "-----END "
)

func (o *heldOutput) add(piece string, now time.Time) {
	if piece == "" {
		return
	}
	o.stuck = false
	if o.inLine {
		end := strings.IndexAny(piece, "\r\n")
		if end < 0 {
			o.lost += len(piece)
			return
		}
		o.inLine = false
		o.lost += end + 1
		if piece = piece[end+1:]; piece == "" {
			return
		}
	}
	if o.text == "" || lines(piece) > 0 {
		o.since = now
	}
	o.text += piece
	if o.inKey {
		o.leaveKey()
	}
	if over := len(o.text) - MaxProgressOutputBytes; over > 0 {
		o.drop(over)
	}
}

// drop leaves out the beginning: so many bytes, and what is left of the line.
func (o *heldOutput) drop(n int) {
	if end := strings.IndexAny(o.text[n-1:], "\r\n"); end >= 0 {
		n += end
	} else {
		n, o.inLine = len(o.text), true
	}
	o.inKey = keyAt(o.text[:n]) >= 0
	o.lost += n
	o.text = o.text[n:]
	if o.inKey {
		o.leaveKey()
	}
}

// leaveKey leaves out what belongs to a key whose beginning was left out.
func (o *heldOutput) leaveKey() {
	n := lines(o.text)
	if at := strings.Index(o.text[:n], keyEnd); at >= 0 {
		o.inKey = false
		n = at + strings.IndexAny(o.text[at:], "\r\n") + 1
	}
	o.lost += n
	o.text = o.text[n:]
}

// keyAt is where a private key begins whose end is not there; negative when there is none.
func keyAt(text string) int {
	at := strings.LastIndex(text, keyBegin)
	if at < 0 {
		return at
	}
	// its last line is whole
	if end := strings.Index(text[at:], keyEnd); end >= 0 && strings.ContainsAny(text[at+end:], "\r\n") {
		return -1
	}
	return at
}

// lines is how long the whole lines at the beginning of a text are.
func lines(text string) int { return strings.LastIndexAny(text, "\r\n") + 1 }

// take returns what may be told now, and how many bytes before it were left out. part says how much of the beginning of
// a line may be told.
func (o *heldOutput) take(now time.Time, all bool, part func(string) int) (text string, lost int) {
	n := len(o.text)
	o.stuck = !all && now.Sub(o.since) >= progressHold
	if !all {
		if n = lines(o.text); now.Sub(o.since) >= progressHold {
			n += part(o.text[n:])
		}
		if at := keyAt(o.text); at >= 0 {
			n = min(n, at)
		}
		if o.inKey {
			n = 0
		}
	}
	text, lost = o.text[:n], o.lost
	o.text, o.lost = o.text[n:], 0
	if o.inKey && all { // its rest
		return "", lost + len(text)
	}
	return text, lost
}

// reporter makes what tells the progress of a call, as long as this worker may act for it.
func (w *Worker) reporter(r *running) *reporter {
	pipe := w.pipe.Load()
	return &reporter{redact: pipe.Redact, unfinished: pipe.Unfinished, tell: func(p tool.Progress, lost int) {
		if w.mayAct(r) != nil {
			return // another worker may have the call by now, and tell of it
		}
		r.told.add(p.Output, lost)
		err := w.b.Report(r.d.Key(), broker.Progress{
			Index: r.call.Index, CallID: r.call.ID, Tool: r.call.Tool, Worker: w.cfg.ID, Attempt: r.call.Attempt,
			Delivery: r.d.Deliveries,
			Progress: p, LostBytes: lost,
		})
		if err != nil {
			w.log.Debug("progress was not told", "batch", r.d.Key(), "call", r.call.Index, "error", err)
		}
	}}
}
