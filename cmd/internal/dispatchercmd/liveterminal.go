package dispatchercmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// What a terminal is told to show a screen of its own without a cursor, and to go back to what it showed before.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// maxKeyBytesRead is how much of what a person types is read at a time, in bytes.
const maxKeyBytesRead = 64

// sequence is what a terminal sends for a key that is no character.
var sequence = regexp.MustCompile(`^\x1b(\[[0-9;]*|O)[A-Za-z~]`)

// sequences are those that are known, by their last letter, and typed the characters.
var (
	sequences = map[byte]liveKey{'A': keyUp, 'B': keyDown, 'H': keyTop, 'F': keyBottom}
	typed     = map[rune]liveKey{'k': keyUp, 'j': keyDown, 'g': keyTop, 'G': keyBottom, 'o': keyOpen, '\r': keyOpen,
		'\n': keyOpen, 'c': keyCancel, 'C': keyAll, 'a': keyApprove, 'y': keyYes, 'q': keyQuit, '\x1b': keyBack,
		3: keyStop}
)

// keysOf are the keys in what a terminal sent.
func keysOf(sent string) (keys []liveKey) {
	for sent != "" {
		if s := sequence.FindString(sent); s != "" {
			keys, sent = append(keys, sequences[s[len(s)-1]]), sent[len(s):]
			continue
		}
		r, n := utf8.DecodeRuneInString(sent)
		keys, sent = append(keys, typed[r]), sent[n:]
	}
	return keys
}

// hasScreen says whether a person can watch and type: then there is a live view.
func (s *std) hasScreen() (in, out *os.File, ok bool) {
	in, isFile := s.in.(*os.File)
	out, isFileToo := s.out.(*os.File)
	if !isFile || !isFileToo || !cli.IsTerminal(in) || !cli.IsTerminal(out) || os.Getenv("TERM") == "dumb" {
		return nil, nil, false
	}
	return in, out, true
}

// liveScreen is a live view on a terminal.
type liveScreen struct {
	s       *std
	c       *client.Client
	batch   *client.Batch
	view    *live
	in, out *os.File
	before  *term.State // nil while the terminal is as it was
	drawn   string
	broken  error
}

// watchLive shows a batch until it is complete or the person leaves. When the person has pressed a key, they leave.
func (s *std) watchLive(ctx context.Context, c *client.Client, k toolyard.BatchKey, in, out *os.File) (err error) {
	l := &liveScreen{s: s, c: c, batch: c.Batch(k), view: newLive(k, s.paint()), in: in, out: out}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	stored, reports := make(chan client.Event), make(chan client.Progress)
	ended := make(chan error, 1)
	parts.Go(func() {
		defer close(stored)
		for e, err := range l.batch.Watch(ctx) {
			if err != nil {
				ended <- err
				return
			}
			if !hand(ctx, stored, e) {
				return
			}
		}
	})
	parts.Go(func() {
		for p, err := range l.batch.Progress(ctx) {
			if err != nil || !hand(ctx, reports, p) {
				return // it is shown without progress
			}
		}
	})
	// What the terminal sends is read only when asked for: between, somebody else may read it.
	keys, more := make(chan string), make(chan struct{}, 1)
	go l.read(keys, more) // it may wait for ever, and then ends with the process
	if err := l.enter(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.leave()) }()
	more <- struct{}{}
	tick := time.NewTicker(barsEvery)
	defer tick.Stop()
	pressed := false
	for {
		l.draw()
		if l.broken != nil {
			return fmt.Errorf("draw on the terminal: %w", l.broken)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case p := <-reports:
			l.view.report(p, time.Now())
		case e, ok := <-stored:
			if ok {
				if err := l.view.apply(e); err != nil {
					return err
				}
				continue
			}
			stored = nil
			select {
			case err := <-ended:
				return misnamed(err)
			default:
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !pressed {
				return l.last()
			}
		case text, ok := <-keys:
			if !ok {
				keys = nil
				continue
			}
			pressed = true
			for _, k := range keysOf(text) {
				deed := l.view.key(k)
				if deed.interrupt {
					return cli.ErrInterrupted
				}
				if deed.quit {
					return l.last()
				}
				if err := l.do(ctx, deed); err != nil {
					return err
				}
			}
			more <- struct{}{}
		}
	}
}

func hand[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *liveScreen) read(keys chan<- string, more <-chan struct{}) {
	defer close(keys)
	buffer := make([]byte, maxKeyBytesRead)
	for range more {
		n, err := l.in.Read(buffer)
		if err != nil {
			return // the person has no more to say
		}
		keys <- string(buffer[:n])
	}
}

func (l *liveScreen) enter() (err error) {
	if l.before, err = term.MakeRaw(int(l.in.Fd())); err != nil {
		return fmt.Errorf("read single keys from the terminal: %w", err)
	}
	l.drawn = ""
	return l.tell(enterScreen)
}

func (l *liveScreen) leave() error {
	if l.before == nil {
		return nil
	}
	err := errors.Join(l.tell(leaveScreen), term.Restore(int(l.in.Fd()), l.before))
	l.before = nil
	return err
}

func (l *liveScreen) tell(text string) error {
	if l.broken == nil {
		_, l.broken = io.WriteString(l.out, text)
	}
	return l.broken
}

// draw shows the view as it is now.
func (l *liveScreen) draw() {
	sheet := l.s.sheetOf(l.out)
	lines := l.view.lines(max(sheet.columns, 1), max(sheet.rows, minRows), time.Now())
	text := "\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J"
	if text != l.drawn {
		l.drawn = text
		_ = l.tell(text) // broken has the error
	}
}

// last leaves the screen, and prints what it showed last where it stays.
func (l *liveScreen) last() error {
	if err := l.leave(); err != nil {
		return err
	}
	columns := cli.Columns(l.out)
	l.view.selected = -1
	body, _ := l.view.list(columns, time.Now())
	_, err := fmt.Fprintf(l.out, "%s\n", strings.Join(append(l.view.head(columns, time.Now()), body...), "\n"))
	return err
}

// do does what a key asked for.
func (l *liveScreen) do(ctx context.Context, deed liveDeed) error {
	if deed.cancel != nil {
		l.view.note = "the cancel is stored"
		if err := within(ctx, func(ctx context.Context) error {
			return l.batch.Cancel(ctx, "canceled by "+person(), deed.cancel...)
		}); err != nil {
			l.view.note = cli.OneLine(err.Error())
		}
	}
	if deed.decide < 0 {
		return nil
	}
	if err := l.leave(); err != nil {
		return err
	}
	said, err := l.decide(ctx, deed.decide)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		said = cli.OneLine(err.Error())
	}
	l.view.note = said
	return l.enter()
}

// decide asks the person about a call, below what the terminal showed before, and stores the answer.
func (l *liveScreen) decide(ctx context.Context, index int) (note string, err error) {
	list, err := listApprovals(ctx, l.c, l.view.state.Key.Agent)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(list, func(a client.Approval) bool {
		return a.Batch == l.view.state.Key.ID && a.Index == index
	})
	if at < 0 {
		return "this call does not wait any longer", nil
	}
	k := &asker{l.s.sheetOf(l.out), bufio.NewScanner(l.in)}
	text, partial := described(list[at], k.columns, nil)
	if partial != nil {
		return cli.OneLine(partial.Error()) + "; nobody can approve it: dispatcher deny ends it", nil
	}
	decision, wants := client.Decision{By: person(), InputSHA256: list[at].InputSHA256}, false
	asked := make(chan error, 1)
	go func() { // a terminal may be silent for ever; then it ends with the process
		var err error
		decision.Verdict, decision.ForSession, wants, err = k.allowOrDeny(text, list[at].Remember != "")
		asked <- err
	}()
	select {
	case err := <-asked:
		if err != nil || !wants {
			return "it still waits", err
		}
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if err := storeDecision(ctx, func(ctx context.Context) error {
		return l.c.Decide(ctx, list[at].ID, decision)
	}); err != nil {
		return "", err
	}
	if decision.Verdict == client.Allow {
		return "approved: the call runs", nil
	}
	return "denied: the call ends as approval_rejected", nil
}

// allowOrDeny asks what becomes of a call; wants is false if the person leaves that open.
func (k *asker) allowOrDeny(text []string, session bool) (v client.Verdict, forever, wants bool, err error) {
	said, err := k.ask("May this call run?", text, session)
	switch {
	case err != nil || said == silent:
		return "", false, false, err
	case said == yes || said == forSession:
		return client.Allow, said == forSession, true, nil
	}
	sure, err := k.prompt("End it as approval_rejected? [y]es, or it still waits: ")
	if errors.Is(err, io.EOF) {
		return "", false, false, nil
	}
	return client.Deny, false, sure == "y" || sure == "yes", err
}
