package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"io/fs"
	"log/slog"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/quota"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAPaceBoundsAFlow: over any time no more goes through than the rate allows and the burst at its beginning.
func TestAPaceBoundsAFlow(t *testing.T) {
	p, now := newPace(), time.Unix(1_000, 0)
	for range 10 {
		if wait := p.spend(now, "a", 10, 100, 100); wait != 0 {
			t.Fatalf("within the burst: %s", wait)
		}
	}
	if wait := p.spend(now, "a", 50, 100, 100); wait != 500*time.Millisecond {
		t.Errorf("past the burst: %s", wait)
	}
	if wait := p.spend(now, "b", 50, 100, 100); wait != 0 {
		t.Errorf("another key: %s", wait)
	}
	for i := range 5 {
		if wait := p.try(now, "c", 1, 5, 5); wait != 0 {
			t.Errorf("request %d: %s", i, wait)
		}
	}
	for range 3 {
		if wait := p.try(now, "c", 1, 5, 5); wait != 200*time.Millisecond {
			t.Errorf("a request too many: %s", wait)
		}
	}
	if wait := p.try(now.Add(200*time.Millisecond), "c", 1, 5, 5); wait != 0 {
		t.Errorf("a fifth of a second later: %s", wait)
	}
	for i := range maxPaced + 10 {
		p.spend(now.Add(time.Hour), fmt.Sprint(i), 1, 1000, 1)
		now = now.Add(time.Second)
	}
	if len(p.each) > maxPaced {
		t.Errorf("%d keys are kept", len(p.each))
	}
}

// TestGrants: what a token may do is read strictly, and a mistake in a line is no token that may do more.
func TestGrants(t *testing.T) {
	tokens, err := ParseTokens([]byte("tok alice agents=bob,carol workspaces=web tools=read_file,mcp__x__* " +
		"interactive=yes rate=5 streams=3 connections=4 bytes=1000\nplain dave\n"))
	must.OK(t, err)
	e, _ := tokens.find("tok")
	c := caller{agent: toolyard.Agent(e.agent), grant: e.grant}
	for agent, want := range map[toolyard.Agent]bool{"alice": true, "bob": true, "carol": true, "dave": false,
		"": false, "*": false} {
		if c.speaksFor(agent) != want {
			t.Errorf("it speaks for %q: %t", agent, !want)
		}
	}
	for name, want := range map[string]bool{"read_file": true, "read_files": false, "mcp__x__y": true, "mcp__x__": true,
		"mcp__y": false, "bash": false, "": false} {
		if c.usesTool(name) != want {
			t.Errorf("it may use %q: %t", name, !want)
		}
	}
	batch := func(w toolyard.Workspace, tool string) *toolyard.Batch {
		return &toolyard.Batch{Workspace: w, Interactive: true,
			Calls: []toolyard.Call{{Tool: "read_file"}, {Tool: tool}}}
	}
	if err := c.permit(batch("web", "read_file")); err != nil {
		t.Error(err)
	}
	for field, b := range map[string]*toolyard.Batch{"workspace": batch("", "read_file"),
		"calls[1].tool": batch("web", "bash")} {
		if p, ok := errors.AsType[*Problem](c.permit(b)); !ok || p.Status != http.StatusForbidden || p.Field != field {
			t.Errorf("%s: %v", field, p)
		}
	}
	background := func(input string) []toolyard.Call {
		return []toolyard.Call{{Tool: toolyard.BackgroundStart, Input: json.RawMessage(input)}}
	}
	starter := caller{grant: grant{tools: []string{"read_file", "background_*"}}}
	for input, may := range map[string]bool{`{"tool": "read_file", "input": {}}`: true,
		`{"tool": "bash", "input": {}}`: false, `{"tool": "read_file", "Tool": "bash"}`: false, `{}`: false,
		`"{tool: 'bash'}"`: false, ``: false} {
		p, refused := errors.AsType[*Problem](starter.calls(background(input)))
		if refused == may || refused && (p.Status != http.StatusForbidden || p.Field != "calls[0].input") {
			t.Errorf("it may start %s in the background: %t, %v", input, !may, p)
		}
	}
	if err := (caller{}).calls(background(`"{tool: 'bash'}"`)); err != nil {
		t.Errorf("a token for all tools: %v", err)
	}
	e, _ = tokens.find("plain")
	plain := caller{agent: toolyard.Agent(e.agent), grant: e.grant}
	if p, ok := errors.AsType[*Problem](plain.permit(batch("any", "any"))); !ok || p.Field != "interactive" {
		t.Errorf("interactive without a word of it: %v", p)
	}
	free := batch("any", "any")
	free.Interactive = false
	if err := plain.permit(free); err != nil {
		t.Error(err)
	}
	for _, words := range []string{
		"tool=bash", "Tools=bash", "tools", "tools=", "=x", "tools=*", "tools=a*b", "tools=a,,b", "tools=a tools=b",
		"workspaces=", "agents=,", "interactive=true", "interactive=YES",
		"rate=0", "rate=-1", "rate=x", "rate=1000000", "streams=0", "streams=257", "connections=99999",
		"bytes=99999999999", "sesame",
	} {
		if _, err := ParseTokens([]byte("secret alice " + words + "\n")); err == nil ||
			!strings.HasPrefix(err.Error(), "line 1") || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", words, err)
		}
	}
	if _, err := ParseTokens([]byte("secret * tools=read_file\n")); err == nil {
		t.Error("an operator who may do everything and not everything")
	}
}

// TestATokenFileOfOthers: a file that others can read or write holds no secrets.
func TestATokenFileOfOthers(t *testing.T) {
	path := must.File(t, "tokens", "secret-a alice\n")
	if _, err := ReadTokens(path); err != nil {
		t.Error(err)
	}
	for _, mode := range []os.FileMode{0o604, 0o640, 0o660, 0o602, 0o644, 0o777} {
		must.OK(t, os.Chmod(path, mode))
		if _, err := ReadTokens(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("with the mode %o: %v", mode, err)
		}
	}
}

// TestATokenFileThatIsGiven: another user gives a file to a process by its group, which may read it and no more.
func TestATokenFileThatIsGiven(t *testing.T) {
	for _, c := range []struct {
		mode          fs.FileMode
		ours, another bool // whether it is too open
	}{
		{0o400, false, false}, {0o600, false, false}, {0o440, true, false}, {0o640, true, false},
		{0o460, true, true}, {0o450, true, true}, {0o444, true, true}, {0o644, true, true}, {0o402, true, true},
	} {
		if tooOpen(c.mode, true) != c.ours || tooOpen(c.mode, false) != c.another {
			t.Errorf("%o: too open of ours: %v, of another's: %v", c.mode, tooOpen(c.mode, true),
				tooOpen(c.mode, false))
		}
	}
	path := filepath.Join(t.TempDir(), "tokens")
	must.OK(t, os.WriteFile(path, nil, 0o600))
	for path, want := range map[string]bool{path: true, "/": os.Geteuid() == 0} {
		info, err := os.Stat(path)
		must.OK(t, err)
		if own(info) != want {
			t.Errorf("%s belongs to this user: %v", path, !want)
		}
	}
}

// TestTokensAreReadAgain: a token that was taken out of the file, or may do less, counts no longer, and its streams
// end; a file that cannot be used takes all tokens away, after a while.
func TestTokensAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		must.OK(t, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)))
	}
	write("secret-a alice\nsecret-b bob\nsecret-c carol interactive=yes\n", 0o600)
	tokens, err := ReadTokens(path)
	must.OK(t, err)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go tokens.Follow(ctx, path, slog.New(slog.DiscardHandler))
		synctest.Wait()
		there := func(token string) chan struct{} {
			e, ok := tokens.find(token)
			if !ok {
				return nil
			}
			return e.revoked
		}
		ended := func(c chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		a, b, c := there("secret-a"), there("secret-b"), there("secret-c")
		look := func(d time.Duration) {
			time.Sleep(d + TokenLook/2)
			synctest.Wait()
		}
		write("secret-b bob\nsecret-c carol\nsecret-d dave\n", 0o600)
		look(TokenLook)
		if there("secret-a") != nil || !ended(a) || there("secret-b") != b || ended(b) || there("secret-c") == nil ||
			!ended(c) || there("secret-d") == nil {
			t.Error("the file was not read again")
		}
		write("secret-b bob\nhalf a line", 0o600)
		look(TokenGrace / 2)
		if there("secret-d") == nil || ended(b) {
			t.Error("a file that is being written takes tokens away")
		}
		look(TokenGrace)
		if there("secret-b") != nil || there("secret-d") != nil || !ended(b) {
			t.Error("a file that cannot be used leaves its former tokens in force")
		}
		write("secret-b bob\n", 0o644)
		look(TokenLook)
		if there("secret-b") != nil {
			t.Error("a file that others can read is used")
		}
		write("secret-b bob\n", 0o600)
		look(TokenLook)
		if there("secret-b") == nil {
			t.Error("a file that was mended is not used")
		}
	})
}

// TestConnectionsAreBounded: of one token's agent, and of those that have shown none, so many are open and no more.
func TestConnectionsAreBounded(t *testing.T) {
	s := &Server{conns: newConnections()}
	who := caller{agent: "a", grant: grant{connections: 2}}
	open := func() (*http.Request, net.Conn) {
		c, _ := net.Pipe()
		s.ConnState(c, http.StateNew)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		return r.WithContext(s.ConnContext(r.Context(), c)), c
	}
	one, first := open()
	two, _ := open()
	three, _ := open()
	for _, r := range []*http.Request{one, two, one, two} {
		if p := s.conns.own(r, who); p != nil {
			t.Error(p)
		}
	}
	if p := s.conns.own(three, who); p == nil || p.Status != http.StatusTooManyRequests ||
		p.GetHeaders().Get("Connection") != "close" {
		t.Errorf("a third connection: %+v", p)
	}
	if p := s.conns.own(three, caller{agent: "b"}); p != nil {
		t.Errorf("another agent's: %v", p)
	}
	s.ConnState(first, http.StateClosed)
	s.ConnState(first, http.StateClosed)
	four, _ := open()
	if p := s.conns.own(four, who); p != nil {
		t.Errorf("one was closed: %v", p)
	}
	before := len(s.conns.all)
	for range MaxStrangers {
		_, c := open()
		defer s.ConnState(c, http.StateClosed)
	}
	_, late := open()
	if _, err := late.Write([]byte("x")); err == nil || len(s.conns.all) != before+MaxStrangers+1 {
		t.Errorf("a stranger too many: %v", err)
	}
}

// halting is a client that takes its time for each write.
type halting struct {
	httptest.ResponseRecorder
	each time.Duration
}

func (h *halting) Write(b []byte) (int, error) {
	time.Sleep(h.each)
	return h.ResponseRecorder.Write(b)
}

// TestASlowStreamSaysSo: a stream is slow when its client took long for the last write, and one that ends for it says
// so.
func TestASlowStreamSaysSo(t *testing.T) {
	for each, slow := range map[time.Duration]bool{2 * slowWrite: true, slowWrite / 2: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{bytes: newPace(), cfg: Config{Log: slog.New(slog.DiscardHandler)}}
			w := &halting{*httptest.NewRecorder(), each}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			out := &stream{alive: t.Context(), x: &exchange{s: s, w: w, r: r, who: caller{any: true},
				conn: http.NewResponseController(w)}}
			if out.slow() {
				t.Error("it is slow before it has written")
			}
			if err := out.send("1", "cloudevent", []byte("{}")); err != nil || out.slow() != slow {
				t.Errorf("a client that takes %s for a write: slow %t, %v", each, out.slow(), err)
			}
			s.sendProblem(out.x, out, follow.ErrBehind)
			if !strings.Contains(w.Body.String(), "event: behind\ndata: {\"detail\":") {
				t.Errorf("it ends with %q", w.Body.String())
			}
		})
	}
}

// TestALongEventEndsWithItsStream: a stream whose client is gone, or whose token is not in force any more, ends at
// once, also in the middle of an event that its token may send only slowly.
func TestALongEventEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{bytes: newPace(), stopping: t.Context()}
		w := httptest.NewRecorder()
		alive, end := context.WithCancel(t.Context())
		out := &stream{alive: alive, x: &exchange{s: s, w: w, who: caller{agent: "ann", grant: grant{bytes: 1024}},
			conn: http.NewResponseController(w)}}
		time.AfterFunc(90*time.Second, end)
		began := time.Now()
		err := out.send("1", "cloudevent", make([]byte, 4*maxWriteBytes))
		if took := time.Since(began); !errors.Is(err, context.Canceled) || took != 90*time.Second {
			t.Errorf("it ends %s after it has begun: %v", took, err)
		}
		if w.Body.Len() > 2*maxWriteBytes {
			t.Errorf("%d bytes were sent", w.Body.Len())
		}
	})
}

// TestBlobReadsAreBounded: each holds a whole result.
func TestBlobReadsAreBounded(t *testing.T) {
	s, who := &Server{blobs: quota.New(2, 1)}, caller{agent: "ann"}
	leave, err := enter(s.blobs, who)
	must.OK(t, err)
	defer leave()
	_, err = s.blob(t.Context(), &exchange{s: s, who: who}, &blobInput{Agent: "ann", Ref: "result-1", Limit: 1})
	if p, ok := errors.AsType[*Problem](err); !ok || p.Status != http.StatusTooManyRequests {
		t.Errorf("a second one: %v", err)
	}
}
