package api

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/audit"
)

// Answer answers a request that is mounted, in the name of an agent. permit refuses a batch that the token may not hand
// in; one that says that a person can be asked says so no longer where the token does not.
type Answer func(w http.ResponseWriter, r *http.Request, agent toolyard.Agent, permit func(*toolyard.Batch) error)

// Mount has all requests for a path answered by something that is no operation of this API, behind the same door: the
// local check, the token, the bounds on bodies and on how many requests are under way. It gets the agent whom the token
// names, or ?agent= where the token names none. A body is here whole when it is called, and is maxBody bytes long at
// most; what it writes, the client must take in time. Its requests end with Stop. Mount before the first request.
func (s *Server) Mount(path string, maxBody int64, answer Answer) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		x, ok := r.Context().Value(exchangeKey{}).(*exchange)
		if !ok {
			panic("the request came past the server's door")
		}
		if err := s.mounted(x, maxBody, answer); err != nil {
			if err := s.problem(x, err).write(w); err != nil {
				s.cfg.Log.Debug("an answer was not sent", "path", path, "error", err)
			}
		}
	})
}

func (s *Server) mounted(x *exchange, maxBody int64, answer Answer) error {
	agent, err := x.who.meant(x.query.Get("agent"))
	if err != nil {
		return err
	}
	if x.r.Method == http.MethodPost {
		if err := s.cfg.Reader.Present(x.r.Context()); err != nil {
			return err
		}
	}
	leave, err := enter(s.streams, x.who)
	if err != nil {
		return err
	}
	defer leave()
	var body []byte
	if x.r.Method == http.MethodPost {
		if body, err = x.body(maxBody, false); err != nil {
			return err
		}
	}
	ctx, cancel := s.alive(x)
	defer cancel()
	r := x.r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	to := &mountedWriter{ResponseWriter: x.w, x: x}
	answer(to, r, agent, func(b *toolyard.Batch) error {
		b.Interactive = b.Interactive && x.who.interactive()
		err := x.who.permit(b)
		did := audit.Entry{Action: "mcp.call", Agent: string(b.Agent), Batch: string(b.ID), Session: string(b.Session)}
		if err != nil {
			did.Status = http.StatusForbidden
		}
		handsIn(&did, b.Calls)
		x.put(did)
		return err
	})
	return to.end()
}

// mountedWriter gives the client time for each write anew: nobody knows how long an answer is under way. An error that
// is a text becomes a problem document, as all errors of this API are.
type mountedWriter struct {
	http.ResponseWriter
	x *exchange
	// status is that of an error whose text is held; 0: there is none.
	status int
	text   []byte
}

// maxErrorText is how much of the text of an error is told.
const maxErrorText = 4 << 10

func (p *mountedWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && strings.HasPrefix(p.Header().Get("Content-Type"), "text/plain") {
		p.status = status
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *mountedWriter) Write(b []byte) (int, error) {
	if p.status != 0 {
		p.text = append(p.text, b[:min(len(b), maxErrorText-len(p.text))]...)
		return len(b), nil
	}
	if err := p.x.writeWithin(writeTimeout); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// end sends the error that is held.
func (p *mountedWriter) end() error {
	if p.status == 0 {
		return nil
	}
	p.Header().Del("Content-Length") // of the text
	text := bytes.TrimSpace(bytes.ToValidUTF8(p.text, nil))
	return newProblem(p.status, "", "%s", cmp.Or(string(text), http.StatusText(p.status)))
}

// Flush sends what was written. An error shows in the next write.
func (p *mountedWriter) Flush() {
	if f, ok := p.ResponseWriter.(http.Flusher); ok && p.status == 0 {
		f.Flush()
	}
}

// Unwrap is for [http.ResponseController].
func (p *mountedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
