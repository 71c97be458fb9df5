package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/quota"
)

// Config is what a server needs.
type Config struct {
	Client *client.Client
	// Hide reports whether an agent does not see a tool, by its name and aliases. Nil: everybody sees everything.
	Hide func(agent toolyard.Agent, name string, aliases []string) bool
	// Pipe is whose calls come over a pipe.
	Pipe Caller
	// Approvals lets the person at the client allow calls that wait for one. The zero value is the strict one: nobody
	// is asked, and what nobody decided is denied.
	Approvals bool
	// Notices says that hooks run when a batch is over: what they say is looked for.
	Notices bool
	// Key protects what a client carries between a question and its answer. Servers behind one address need the same.
	// Nil: one of this server alone.
	Key []byte
	// Deny and Ask are permission rules that each call brings along, on top of the pool's.
	Deny, Ask []string
	// CallTimeout bounds each call, as the time limit of its batch. 0: the dispatcher's default.
	CallTimeout time.Duration
	// MaxWait is how long a request waits for its result, questions to people not counted. 0: [DefaultMaxWait].
	MaxWait time.Duration
	// Trace begins the span of a call that is handed in through a door, and returns the context to hand it in with, and
	// what ends the span. Nil: nobody watches.
	Trace func(ctx context.Context, door string) (context.Context, func(error))
	// KeepAlive is how often a silent response says that it is there; 0: every 15 s.
	KeepAlive time.Duration
	// Tasks is whether a tool can be called as a task, by the name that the pool knows it by. Nil: each tool can.
	Tasks func(tool string) wire.Support
	// TaskAfter is how long a call is waited for that then becomes a task; 0: [DefaultTaskAfter].
	TaskAfter time.Duration
	// Lifetime is how long the pool keeps a batch, and so a task; 0: three days, as for pools.
	Lifetime time.Duration
	// MaxCalls and MaxAgentCalls are the limits of those names when they are 0.
	MaxCalls, MaxAgentCalls int
	Log                     *slog.Logger
	Version                 string
	// Options and Extend add what is no tool of the pool: prompts, resources, completions.
	Options func(*mcp.ServerOptions)
	Extend  func(*mcp.Server)
}

// MinKeyBytes is how long a key must be at least.
const MinKeyBytes = 16

// Server answers requests. Its calls end with Stop.
type Server struct {
	cfg     Config
	mcp     *mcp.Server
	http    http.Handler
	calls   *quota.Quota
	told    *quota.Quota // the tasks that somebody is told of
	reads   *quota.Quota // of offloaded results
	state   *sealer
	tools   catalog
	holders holders
	// underWay are the calls that end with their session.
	underWay   underWay
	unanswered unanswered
	lives      lives

	stopping context.Context
	stop     context.CancelFunc
}

// New makes a server without tools; see [Server.SetSurface].
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Client == nil || cfg.Log == nil:
		return nil, errors.New("an MCP server needs a client and a log")
	case cfg.Key != nil && len(cfg.Key) < MinKeyBytes:
		return nil, fmt.Errorf("the key has %d bytes; use %d at least", len(cfg.Key), MinKeyBytes)
	}
	if cfg.Key == nil {
		cfg.Key = []byte(rand.Text())
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = DefaultMaxWait
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = keepAlive
	}
	if cfg.MaxCalls == 0 {
		cfg.MaxCalls = MaxCalls
	}
	if cfg.MaxAgentCalls == 0 {
		cfg.MaxAgentCalls = MaxAgentCalls
	}
	if cfg.TaskAfter == 0 {
		cfg.TaskAfter = DefaultTaskAfter
	}
	if cfg.Lifetime == 0 {
		cfg.Lifetime = defaultLifetime
	}
	cfg.Pipe.normalize()
	s := &Server{cfg: cfg, calls: quota.New(cfg.MaxCalls, cfg.MaxAgentCalls),
		told: quota.New(MaxTold, MaxAgentTold), reads: quota.New(MaxReads, MaxAgentReads), state: newSealer(cfg.Key)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	opts := &mcp.ServerOptions{
		Instructions: "The tools of a worker pool. A result that is too long comes as a preview, which says how to " +
			"read the whole with read_result.",
		Logger: demoted(cfg.Log),
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{}},
		SetCacheable: setCacheable,
	}
	opts.Capabilities.AddExtension(wire.Extension, nil)
	if cfg.Options != nil {
		cfg.Options(opts)
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "toolyard", Title: "Toolyard", Version: cfg.Version}, opts)
	s.mcp.AddReceivingMiddleware(s.coded, s.around)
	s.mcp.AddSendingMiddleware(acknowledging)
	s.addResources()
	if err := s.addTasks(); err != nil {
		return nil, err
	}
	if cfg.Extend != nil {
		cfg.Extend(s.mcp)
	}
	s.http = s.handler()
	return s, nil
}

// demoted is a log for what the library has to say: it reports what clients do wrong as errors, and anybody can do
// wrong.
func demoted(log *slog.Logger) *slog.Logger { return slog.New(lowered{log.Handler()}) }

type lowered struct{ slog.Handler }

func (l lowered) Enabled(ctx context.Context, _ slog.Level) bool {
	return l.Handler.Enabled(ctx, slog.LevelDebug)
}

func (l lowered) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return l.Handler.Handle(ctx, r)
}

func (l lowered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lowered{l.Handler.WithAttrs(attrs)}
}
func (l lowered) WithGroup(name string) slog.Handler { return lowered{l.Handler.WithGroup(name)} }

// Stop ends the waits for all calls, for a process that shuts down. The calls themselves go on. It returns when their
// requests over HTTP are answered, within a limit: end these afterwards.
func (s *Server) Stop() {
	s.stop()
	s.unanswered.wait(answerGrace)
}

// Run serves one client over a pipe until it goes or ctx ends. What it has asked for before it goes is answered, within
// a limit. The server's log must not be the same pipe.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	p := newPipe(in, out, s.cfg.Log)
	const unbounded = -1 // p bounds each message, and moves fields about in it
	return s.mcp.Run(ctx, &mcp.IOTransport{Reader: p.reader(), Writer: p.writer(), MaxLineLength: unbounded})
}

// around is done for every request: a session of the older revisions is counted, a question that could not be asked is
// answered with no, an agent is shown what it may see, and who listens for changes hears that we are there.
func (s *Server) around(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if task, ok := req.(taskRequest); ok {
			if task.Params == nil { // the library's own methods read it
				task.Params = &taskParams{}
			}
			return s.aroundTask(ctx, method, task)
		}
		switch method {
		case "initialize":
			if err := s.holders.enter(s.mcp, req, s.callerOf(req.GetExtra()).Agent); err != nil {
				return nil, err
			}
			res, err := next(ctx, method, req)
			return withTasks(res), err
		case "tools/call":
			ctx, over := s.underWay.enter(ctx, s.callerOf(req.GetExtra()).Agent, req.GetSession().ID())
			defer over()
			return s.aroundCall(ctx, method, req, next)
		case "tools/list":
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListToolsResult); ok && err == nil {
				s.show(list, s.callerOf(req.GetExtra()).Agent)
				if r, ok := req.(*mcp.ListToolsRequest); ok && hasTasks(r.ProtocolVersion()) {
					return s.withSupport(list), nil
				}
			}
			return res, err
		case "subscriptions/listen":
			defer beat(ctx, s.cfg.KeepAlive)()
			if r, ok := req.(*mcp.SubscriptionsListenRequest); ok {
				return s.listen(ctx, r, next)
			}
		}
		return next(ctx, method, req)
	}
}

// setCacheable says how long answers are good. None of them is for others than who asked.
func setCacheable(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	c.CacheScope = "private"
	switch req.GetParams().(type) {
	case *mcp.ReadResourceParams:
		c.TTLMs = int(resourceTTL.Milliseconds())
	default:
		c.TTLMs = int(listTTL.Milliseconds())
	}
}

// holders are the sessions of the older revisions, each with its agent.
type holders struct {
	mu   sync.Mutex
	each map[*mcp.ServerSession]toolyard.Agent
}

// enter counts a session that begins, or refuses it.
func (h *holders) enter(server *mcp.Server, req mcp.Request, agent toolyard.Agent) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	session, ok := req.GetSession().(*mcp.ServerSession)
	if !ok {
		return nil
	}
	live := map[*mcp.ServerSession]toolyard.Agent{} // without those that have ended
	own := 0
	for open := range server.Sessions() {
		if a, ok := h.each[open]; ok && open != session {
			live[open] = a
			if a == agent {
				own++
			}
		}
	}
	h.each = live
	switch {
	case len(live) >= MaxSessions:
		return busy("%d sessions are open, the most that this server has; end one, or come again later", len(live))
	case own >= MaxAgentSessions:
		return busy("%d sessions of agent %s are open, the most that one agent may have; end one, or come again later",
			own, agent)
	}
	live[session] = agent
	return nil
}
