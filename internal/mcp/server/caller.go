package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	wire "github.com/toolyard/toolyard/internal/mcp"
)

// Caller is whose calls a request makes, and where. The agent decides what may be seen; session and workspace are what
// calls get that name none themselves.
type Caller struct {
	Agent     toolyard.Agent
	Session   toolyard.Session
	Workspace toolyard.Workspace
	// Links says that long results come with a link beside their preview.
	Links bool
	// Permit refuses a batch that who calls may not hand in, and may take back that a person can be asked. Nil:
	// everything may be.
	Permit func(*toolyard.Batch) error
}

func (c *Caller) normalize() {
	if c.Agent == "" {
		c.Agent = toolyard.DefaultAgent
	}
	if c.Session == "" {
		c.Session = toolyard.DefaultSession
	}
	if c.Workspace == "" {
		c.Workspace = toolyard.DefaultWorkspace
	}
}

// Check says which of the names is none.
func (c *Caller) Check() error {
	for _, n := range []struct{ field, name string }{
		{"agent", string(c.Agent)}, {"session", string(c.Session)}, {"workspace", string(c.Workspace)},
	} {
		if n.name == "" {
			continue
		}
		if err := toolyard.CheckName(n.field, n.name); err != nil {
			return err
		}
	}
	return nil
}

// Where the caller of a request stands on its way to the request's handler.
type callerKey struct{}

const callerField = "caller"

// callerOf is who makes a request: over HTTP whoever was let in with it, over a pipe whoever has the pipe.
func (s *Server) callerOf(extra *mcp.RequestExtra) Caller {
	if extra == nil || extra.TokenInfo == nil {
		return s.cfg.Pipe
	}
	who, ok := extra.TokenInfo.Extra[callerField].(Caller)
	if !ok { // no request gets in without
		return Caller{}
	}
	return who
}

// Serve answers an HTTP request of an agent whom somebody has identified. The parameters session, workspace and links
// of its address are the calls' defaults; permit is as in [Caller]. It bounds the request's body; deadlines are for
// whoever serves.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, agent toolyard.Agent,
	permit func(*toolyard.Batch) error) {
	q := r.URL.Query()
	who := Caller{Agent: agent, Session: toolyard.Session(q.Get("session")),
		Workspace: toolyard.Workspace(q.Get("workspace")),
		Links:     q.Get("links") == "true", Permit: permit}
	if err := who.Check(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	who.normalize()
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
	r.Header = r.Header.Clone()
	r.Header.Set("Authorization", "Bearer -") // what was there has been looked at, and is for nobody further in
	s.http.ServeHTTP(w, r)
}

// The headers of the protocol that say where a request belongs.
const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
)

// stateless is the first revision in which every request stands alone. Revisions are dates, and compare as texts.
const stateless = "2026-07-28"

// handler routes requests: those of the revisions that have sessions, and belong to one or begin one, to a handler that
// keeps sessions; all others to one that does not. Of one session only its own agent's requests are taken.
func (s *Server) handler() http.Handler {
	get := func(*http.Request) *mcp.Server { return s.mcp }
	alone := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: MaxRequestBytes,
		Logger: demoted(s.cfg.Log),
	})
	kept := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		SessionTimeout: SessionTimeout, MaxRequestBodyBytes: MaxRequestBytes, Logger: demoted(s.cfg.Log),
	})
	route := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, session, err := ofSession(r)
		refusal := &refusing{ResponseWriter: w, body: body}
		defer refusal.end()
		w = refusal
		if r.Method == http.MethodPost && r.Header.Get(methodHeader) != "subscriptions/listen" {
			defer s.unanswered.enter()()
		}
		switch mismatch := misnamed(r); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		case mismatch != nil:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			if _, err := w.Write(mismatch); err != nil {
				s.cfg.Log.Debug("an answer was not sent", "error", err)
			}
		case session:
			if who, ok := r.Context().Value(callerKey{}).(Caller); ok && r.Method == http.MethodDelete {
				defer s.underWay.end(who.Agent, r.Header.Get(sessionHeader))()
			}
			kept.ServeHTTP(loweringResponse{w}, r)
		default:
			b := &beating{w: w}
			alone.ServeHTTP(b, r.WithContext(context.WithValue(r.Context(), beatingKey{}, b)))
		}
	})
	return auth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		who, ok := ctx.Value(callerKey{}).(Caller)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		// The library keeps the user of a session, and refuses it to any other.
		return &auth.TokenInfo{UserID: string(who.Agent), Expiration: time.Now().Add(time.Hour),
			Extra: map[string]any{callerField: who}}, nil
	}, nil)(route)
}

// ofSession reports whether a request is one of a session, or begins one. It reads the body, and puts it back with what
// it says of tasks where the library keeps it.
func ofSession(r *http.Request) (body []byte, session bool, err error) {
	older := r.Header.Get(versionHeader) < stateless
	if r.Method != http.MethodPost {
		return nil, older, nil
	}
	body, err = io.ReadAll(io.LimitReader(r.Body, MaxRequestBytes+1))
	if err != nil || len(body) > MaxRequestBytes {
		return nil, false, fmt.Errorf("the request did not arrive whole, or is longer than %d bytes", MaxRequestBytes)
	}
	if lifted := wire.LiftRequest(body); len(lifted) <= MaxRequestBytes { // the library takes no longer one
		body = lifted
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return body, older && (r.Header.Get(sessionHeader) != "" || begins(body)), nil
}

// misnamed is the answer to a request about a task whose headers name another: whoever routes by them must be able to
// rely on them. Nil: they do not, or it is no such request. It reads the body, and puts it back.
func misnamed(r *http.Request) []byte {
	if r.Header.Get(versionHeader) < stateless || !strings.HasPrefix(r.Header.Get(methodHeader), "tasks/") {
		return nil
	}
	body, err := io.ReadAll(r.Body) // it is no longer than ofSession has left it
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			TaskID string `json:"taskId"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &message) != nil || message.Params.TaskID == r.Header.Get(nameHeader) ||
		message.Method == wire.MethodList || message.Method == wire.MethodResult {
		return nil
	}
	answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": message.ID, "error": map[string]any{
		"code":    mcp.CodeHeaderMismatch,
		"message": nameHeader + " does not name the task of the request",
	}})
	if err != nil {
		return nil
	}
	return answer
}

// begins reports whether a message begins a session.
func begins(body []byte) bool {
	var message struct {
		Method string `json:"method"`
	}
	return json.Unmarshal(body, &message) == nil && message.Method == "initialize"
}
