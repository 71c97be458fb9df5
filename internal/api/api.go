package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/audit"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/metrics"
	"github.com/toolyard/toolyard/internal/quota"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// Config is what a server needs.
type Config struct {
	Client *client.Client
	// Reader reads for all streams of this process what is stored about batches.
	Reader *follow.Reader
	// Tokens and Issuer say who asks. Both nil: nobody is asked, and the server must be Loopback.
	Tokens *Tokens
	Issuer *Issuer
	// PublicURL is under which URL clients reach the server. Empty: what each request says.
	PublicURL string
	// Loopback says that the listener is this machine's own: then requests of other sites' pages are refused.
	Loopback bool
	// Surface is the tools that an agent's batch with these options would see if it came now.
	Surface func(toolyard.Agent, toolyard.Workspace, toolyard.Options) (registry.Surface, error)
	// Metrics are what GET /metrics answers with. Nil: there is none.
	Metrics *metrics.Metrics
	// Trace begins the span of a batch that is handed in through a door, and returns the context to hand it in with,
	// and what ends the span. Nil: nobody watches.
	Trace func(ctx context.Context, door string) (context.Context, func(error))
	// Ready says why the system cannot be reached now, or nothing.
	Ready func() error
	// Room says what room the disk of the store has. Nil: nothing is known against storing.
	Room func() broker.Room
	// CheckOptions looks at the options of a batch before it is stored; an error is a [*toolyard.InputError]. Nil: they
	// are looked at when the batch is planned.
	CheckOptions func(toolyard.Options) error
	// Crowded is why a new batch of an agent would be turned away now by the dispatcher of this process; "" when it
	// would not. Nil: nobody is asked, and it is turned away when it is stored.
	Crowded func(toolyard.Agent) string
	// Unserved is why no dispatcher would take a new batch; "" when one would. Nil: nobody knows, and it waits for one.
	Unserved func(toolyard.BatchKey) string
	// Refused counts a new batch that was refused for one of these reasons before anything was stored, with its HTTP
	// status. Nil: nobody counts.
	Refused func(status int)
	// Workspaces reads who holds and waits for each workspace: most of them at most. Nil: nobody knows.
	Workspaces func(ctx context.Context, most int) ([]WorkspaceQueue, error)
	// Waiting counts the calls that wait for a person: of one agent, or of all if it is empty. Nil: nobody
	// knows.
	Waiting func(ctx context.Context, agent toolyard.Agent) (int, error)
	Log     *slog.Logger
	// Audit gets who did what. Nil: nobody.
	Audit *audit.Log
	// MaxStreams is how many streams and waits are open at a time; 0 means [MaxStreams].
	MaxStreams int
	// FeedIdle is how long a model's stream that comes in may be silent; 0 means [DefaultFeedIdle].
	FeedIdle time.Duration
}

// Server answers requests. Its streams end with Stop.
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	document func() ([]byte, error) // what is answered, for others
	// public are paths that need no token, beside those in open.
	public               map[string]bool
	logs                 *follow.Logs
	digests              digests
	streams, submissions *quota.Quota
	looks, reports       *quota.Quota
	blobs                *quota.Quota
	folding              *semaphore.Weighted // calls of logs that searches read
	bytes, rates         *pace
	conns                *connections
	stopping             context.Context
	stop                 context.CancelFunc
}

// New makes a server. It fails when anybody on a network could use it without a token.
func New(cfg Config) (*Server, error) {
	if !cfg.asks() && !cfg.Loopback {
		return nil, errors.New("without tokens the HTTP server listens on this machine only")
	}
	cfg.Log = cfg.Reader.Quiet(cfg.Log)
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = MaxStreams
	}
	if cfg.Room == nil {
		cfg.Room = func() broker.Room { return broker.Room{} }
	}
	if cfg.CheckOptions == nil {
		cfg.CheckOptions = func(toolyard.Options) error { return nil }
	}
	if cfg.Crowded == nil {
		cfg.Crowded = func(toolyard.Agent) string { return "" }
	}
	if cfg.Unserved == nil {
		cfg.Unserved = func(toolyard.BatchKey) string { return "" }
	}
	if cfg.Refused == nil {
		cfg.Refused = func(int) {}
	}
	if cfg.FeedIdle == 0 {
		cfg.FeedIdle = DefaultFeedIdle
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(),
		bytes: newPace(), rates: newPace(),
		conns:       newConnections(),
		streams:     quota.New(cfg.MaxStreams, MaxAgentStreams),
		submissions: quota.New(MaxSubmissions, MaxAgentSubmissions),
		looks:       quota.New(MaxLooks, MaxAgentLooks),
		blobs:       quota.New(MaxBlobReads, MaxAgentBlobReads),
		reports:     quota.New(MaxReports, MaxAgentReports),
		folding:     semaphore.NewWeighted(maxFoldedCalls),
		logs:        follow.NewLogs(cfg.Reader),
		public:      map[string]bool{},
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.operations()
	if cfg.Issuer != nil {
		s.mux.HandleFunc("GET "+resourcePath, s.describeResource)
		s.mux.HandleFunc("GET "+resourcePath+MCPPath, s.describeResource)
	}
	return s, nil
}

// asks reports whether requests need a token.
func (c Config) asks() bool { return c.Tokens != nil || c.Issuer != nil }

// Stop ends all streams and waits, for a server that shuts down: their clients go on elsewhere, with Last-Event-ID.
func (s *Server) Stop() { s.stop() }

// exchange is one request under way.
type exchange struct {
	s    *Server
	w    http.ResponseWriter
	r    *http.Request
	who  caller
	conn *http.ResponseController
	// query is what the request's address says.
	query url.Values
	// did is what the audit log says about it.
	did audit.Entry
	// doubles is what to look at before the request is sent again, when it has no id by which what it stores would be
	// found: the same again does it a second time. It is empty for all other requests.
	doubles string
}

type exchangeKey struct{}

// open are the paths that nobody needs a token for: they tell nothing about batches.
var open = map[string]bool{"/healthz": true, "/readyz": true, "/openapi.json": true, resourcePath: true,
	resourcePath + MCPPath: true, signInPath: true, loginPath: true}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if within := traceparent.With(r.Context(), traceparent.OfFields(r.Header.Values)); within != r.Context() {
		r = r.WithContext(within)
	}
	x := &exchange{s: s, r: r, conn: http.NewResponseController(w)}
	to := &audited{ResponseWriter: w, x: x}
	x.w, w = to, to
	if err := x.writeWithin(requestTimeout + bodyTimeout + writeTimeout); err != nil {
		s.cfg.Log.Error("a connection takes no deadline", "error", err)
		return
	}
	if err := x.bodyWithin(); err != nil {
		s.cfg.Log.Error("a connection takes no deadline", "error", err)
		return
	}
	p := s.admit(x)
	if p == nil && r.Method != http.MethodPost { // no other operation reads a body
		p = x.passOver()
	}
	if p != nil {
		p.metadata = s.metadata(r)
		if err := p.write(w); err != nil {
			s.cfg.Log.Debug("an answer was not sent", "path", r.URL.Path, "error", err)
		}
		return
	}
	defer s.contain(x)
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	to.record(http.StatusOK) // of an answer without a word
}

// contain ends a connection whose request panicked; the others go on. The library panics too when an answer cannot be
// written, which is nobody's fault when the client is gone.
func (s *Server) contain(x *exchange) {
	v := recover()
	if v == nil {
		return
	}
	if x.r.Context().Err() == nil && v != http.ErrAbortHandler {
		s.cfg.Log.Error("a request panicked", "method", x.r.Method, "path", x.r.URL.Path, "panic", v, "stack",
			string(debug.Stack()))
	}
	panic(http.ErrAbortHandler) // the server cuts the connection, so that half an answer is not taken for a whole one
}

// admit says why a request is not answered by any operation, and who asks otherwise.
func (s *Server) admit(x *exchange) *Problem {
	if s.cfg.Loopback {
		if p := checkLocal(x.r); p != nil && !s.sentBack(x.r) {
			return p
		}
	}
	if s.needsToken(x.r.URL.Path) {
		var p *Problem
		if x.who, p = s.identify(x.r); p != nil {
			return p
		}
		if p := s.conns.own(x.r, x.who); p != nil {
			return p
		}
		if p := x.who.within(x.r); p != nil {
			return p
		}
	}
	var err error
	if x.query, err = url.ParseQuery(x.r.URL.RawQuery); err != nil { // what cannot be decoded would be left out
		return newProblem(http.StatusBadRequest, "", "the query cannot be read: %v", err)
	}
	h, pattern := s.mux.Handler(x.r)
	if pattern == "" { // the mux says why, in a text
		found := &quiet{header: http.Header{}}
		h.ServeHTTP(found, x.r)
		if found.status == http.StatusMethodNotAllowed {
			return s.otherMethod(x.r)
		}
		// or the status of a redirection to another path that there is not
		return newProblem(http.StatusNotFound, "", "there is no %s; /openapi.json lists what there is", x.r.URL.Path)
	}
	if x.r.Method == http.MethodHead && s.needsToken(x.r.URL.Path) { // a stream's would never end
		return s.otherMethod(x.r)
	}
	return nil
}

// otherMethod says which methods a path takes. HEAD is one where no token is needed.
func (s *Server) otherMethod(r *http.Request) *Problem {
	methods := []string{http.MethodGet}
	// no path takes this one, so that the mux lists what it does take
	none := &http.Request{Method: "NONE", Host: r.Host, URL: r.URL}
	if h, pattern := s.mux.Handler(none); pattern == "" {
		found := &quiet{header: http.Header{}}
		h.ServeHTTP(found, none)
		methods = strings.Split(found.header.Get("Allow"), ", ")
	}
	if s.needsToken(r.URL.Path) {
		methods = slices.DeleteFunc(methods, func(m string) bool { return m == http.MethodHead })
	}
	p := newProblem(http.StatusMethodNotAllowed, "", "")
	p.allow = strings.Join(methods, ", ")
	p.Detail = "this path takes " + p.allow
	return p
}

// quiet keeps what an answer says about itself.
type quiet struct {
	header http.Header
	status int
}

func (q *quiet) Header() http.Header         { return q.header }
func (q *quiet) WriteHeader(status int)      { q.status = status }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }

// writeWithin bounds how long the client may take to read, from now. A writer without deadlines has none: a recorder of
// a test.
func (x *exchange) writeWithin(d time.Duration) error {
	return deadlines(x.conn.SetWriteDeadline(time.Now().Add(d)))
}

func deadlines(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// pay waits until a token may send so many bytes more, or alive ends. Who may be anybody may send any number.
func (s *Server) pay(alive context.Context, x *exchange, n int) error {
	if x.who.any {
		return nil
	}
	rate := float64(AgentBytesPerSecond)
	if x.who.grant.bytes > 0 {
		rate = float64(x.who.grant.bytes)
	}
	wait := s.bytes.spend(time.Now(), string(x.who.agent), float64(max(n, minWriteBytes)), rate, rate)
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-s.stopping.Done():
		return context.Cause(s.stopping)
	case <-alive.Done():
		return context.Cause(alive)
	case <-t.C:
		return nil
	}
}

// alive is a context that ends with the request, and when the server stops.
func (s *Server) alive(x *exchange) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(x.r.Context())
	unneeded := context.AfterFunc(s.stopping, cancel)
	valid := x.who.whenRevoked(cancel)
	return ctx, func() { valid(); unneeded(); cancel() }
}

// lists are the parameters of an operation that may be given many times.
func lists(api huma.API, op *huma.Operation) (names []string) {
	item := api.OpenAPI().Paths[op.Path]
	for _, one := range []*huma.Operation{item.Get, item.Post, item.Delete} {
		if one == nil || one.OperationID != op.OperationID {
			continue
		}
		for _, p := range one.Parameters {
			if p.In == "query" && p.Schema.Type == huma.TypeArray {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// once refuses a parameter that is given twice and is no list: only one of the two would count.
func once(query url.Values, lists []string) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) > 1 && !slices.Contains(lists, name) {
			return newProblem(http.StatusBadRequest, name, "is given %d times; give it once", len(query[name]))
		}
	}
	return nil
}

// register adds an operation. Its work is bounded by requestTimeout, beside the time in which a body arrives, and its
// errors become problems here.
func register[I, O any](s *Server, api huma.API, op huma.Operation,
	handle func(context.Context, *exchange, *I) (*O, error)) {
	op.RejectUnknownQueryParameters = true
	describe(api, &op)
	body := op.RequestBody
	op.RequestBody = nil // or the library would read it, and judge it by its schema
	if body != nil {
		defer func() { api.OpenAPI().Paths[op.Path].Post.RequestBody = body }()
	}
	most := requestTimeout
	if op.Method == http.MethodPost { // the work begins when the body is there: see bodyFor
		most += bodyTimeout
	}
	action, _ := op.Metadata[actionKey].(string)
	var many []string
	defer func() { many = lists(api, &op) }()
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		x, ok := ctx.Value(exchangeKey{}).(*exchange)
		if !ok {
			return nil, errors.New("the request came past the server's door")
		}
		x.did.Action = action
		if err := once(x.query, many); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		var out *O
		var err error
		if !aside[op.OperationID] {
			if err = s.cfg.Reader.Present(ctx); err != nil {
				return nil, s.problem(x, err)
			}
			var done context.CancelFunc
			ctx, done = s.cfg.Reader.WhilePresent(ctx)
			defer done()
		}
		// which looks whether the batch is stored already
		if op.Method == http.MethodPost && op.OperationID != submitID && !aside[op.OperationID] {
			err = s.stores()
		}
		if err == nil {
			out, err = handle(ctx, x, in)
		}
		if err != nil {
			away := context.Cause(ctx)
			if errors.Is(away, client.ErrNoAnswer) && (errors.Is(err, context.Canceled) || s.cfg.Reader.MayPass(err)) {
				err = away
			}
			return nil, s.problem(x, err)
		}
		return out, nil
	})
}

// text is a short answer for supervisors.
type text struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

type nothing struct{}

func (s *Server) healthz(context.Context, *exchange, *nothing) (*text, error) {
	return &text{ContentType: "text/plain; charset=utf-8", Body: []byte("ok\n")}, nil
}

func (s *Server) readyz(ctx context.Context, x *exchange, in *nothing) (*text, error) {
	if err := s.cfg.Ready(); err != nil {
		return nil, newProblem(http.StatusServiceUnavailable, "", "%v", err).again()
	}
	return s.healthz(ctx, x, in)
}

// metrics tell of all agents, so that no agent reads them.
func (s *Server) metrics(_ context.Context, x *exchange, _ *nothing) (*text, error) {
	if !x.who.any {
		return nil, newProblem(http.StatusForbidden, "", "metrics are about all agents; use an operator's token")
	}
	var out bytes.Buffer
	if err := s.cfg.Metrics.Write(&out); err != nil {
		return nil, err
	}
	return &text{ContentType: metrics.ContentType, Body: out.Bytes()}, nil
}

func (s *Server) openapi(context.Context, *exchange, *nothing) (*text, error) {
	document, err := s.document()
	if err != nil {
		return nil, err
	}
	return &text{ContentType: "application/json", Body: bytes.Clone(document)}, nil
}
