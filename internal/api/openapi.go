package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// Bodies are read by the decoders that the other ways in have too, not by the library: these types describe them.

// Submission is a batch as it is handed in. Its calls stand in one of the five forms.
type Submission struct {
	ID          string          `json:"id,omitempty" doc:"The same id is the same batch: submitting it again runs nothing. One is made when it is left out." maxLength:"128"`
	Agent       string          `json:"agent,omitempty" doc:"Whose batch it is, when no token says so." maxLength:"128"`
	Session     string          `json:"session,omitempty" doc:"The conversation." default:"default" maxLength:"128"`
	Workspace   string          `json:"workspace,omitempty" doc:"Where the calls act." default:"default" maxLength:"128"`
	Interactive bool            `json:"interactive,omitempty" doc:"A person can be asked: calls that need one wait."`
	Open        bool            `json:"open,omitempty" doc:"Calls may be appended until the batch is closed."`
	Calls       []Call          `json:"calls,omitempty" doc:"The calls in the native form." maxItems:"10000"`
	Anthropic   json.RawMessage `json:"anthropic,omitempty" doc:"The calls in an Anthropic assistant message, or a whole Messages response."`
	OpenAI      json.RawMessage `json:"openai,omitempty" doc:"The calls in an OpenAI Responses output, or a whole response."`
	OpenAIChat  json.RawMessage `json:"openai_chat,omitempty" doc:"The calls in an OpenAI Chat Completions assistant message, or a whole completion."`
	Gemini      json.RawMessage `json:"gemini,omitempty" doc:"The calls in a Gemini content, or a whole response."`
	Options     BatchOptions    `json:"options,omitempty"`
}

// Call is one call in the native form.
type Call struct {
	ID    string          `json:"id,omitempty" doc:"The provider's id, which the result has too." maxLength:"128"`
	Tool  string          `json:"tool" maxLength:"128"`
	Input json.RawMessage `json:"input,omitempty" doc:"The tool's input."`
	Echo  json.RawMessage `json:"echo,omitempty" doc:"What the provider wants to have back with the result, as an object of its own fields."`
	// Incomplete is for agents that read a model's stream themselves.
	Incomplete bool `json:"incomplete,omitempty" doc:"The model's stream was cut inside the call: it does not run, and ends as incomplete_call."`
}

// BatchOptions are a batch's own settings. Each can only tighten what the operator allows.
type BatchOptions struct {
	Partition      string   `json:"partition,omitempty" enum:"consecutive,safe_first,sequential,ordered_halt" default:"consecutive" doc:"How calls become groups."`
	MaxConcurrency int      `json:"max_concurrency,omitempty" minimum:"1" maximum:"1000" doc:"How many calls are in flight."`
	OnError        string   `json:"on_error,omitempty" enum:"cancel_group,continue" default:"cancel_group" doc:"What a call that fails while executing does to its group."`
	TimeoutMS      int64    `json:"timeout_ms,omitempty" minimum:"1" doc:"Bounds the batch: calls not answered by then end as deadline_exceeded."`
	CallTimeoutMS  int64    `json:"call_timeout_ms,omitempty" minimum:"1" doc:"Caps each call under its tool's own timeout."`
	Deny           []string `json:"deny,omitempty" doc:"Rules for what must not run."`
	Ask            []string `json:"ask,omitempty" doc:"Rules for what a person is asked about."`
	Supersede      bool     `json:"supersede,omitempty" doc:"End the calls of the session's other batches that wait for a person."`
	Repair         bool     `json:"repair,omitempty" doc:"Mend inputs that are no valid JSON, where there is one way to read them."`
	Tags           []string `json:"tags,omitempty" maxItems:"16" doc:"What the workers must have that run the calls: each of these tags."`
	Priority       string   `json:"priority,omitempty" enum:"interactive,bulk" default:"interactive" doc:"Interactive batches go before bulk ones, which take one turn in five."`
}

// MoreCalls are appended to an open batch, in one of the five forms.
type MoreCalls struct {
	Calls      []Call          `json:"calls,omitempty" doc:"Give each an id: then sending them again, when no answer came, appends nothing."`
	Anthropic  json.RawMessage `json:"anthropic,omitempty"`
	OpenAI     json.RawMessage `json:"openai,omitempty"`
	OpenAIChat json.RawMessage `json:"openai_chat,omitempty"`
	Gemini     json.RawMessage `json:"gemini,omitempty"`
}

// Reason says why something is stopped.
type Reason struct {
	Reason string `json:"reason,omitempty" doc:"The model reads it." maxLength:"1000"`
}

// Cancellation says what of a batch is stopped, and why.
type Cancellation struct {
	Reason string `json:"reason,omitempty" doc:"The model reads it." maxLength:"1000"`
	Calls  []int  `json:"calls,omitempty" doc:"The indices of the calls to stop; left out, all." minItems:"1" maxItems:"10000"`
}

// Decision is what a person decides about a call.
type Decision struct {
	Decision string          `json:"decision" enum:"allow,deny"`
	Reason   string          `json:"reason,omitempty" doc:"The model reads it." maxLength:"1000"`
	Input    json.RawMessage `json:"input,omitempty" doc:"Run this instead of the call's own input; it is checked again first. Null or left out: run what was shown."`
	SHA256   string          `json:"input_sha256,omitempty" doc:"The hash of the input that was seen, as the list has it. A call that waits with another one is not allowed."`
	Remember string          `json:"remember,omitempty" enum:"session" doc:"Allow the like for the rest of the session."`
}

// withBody says what the body of an operation is.
func withBody[T any](api huma.API, op huma.Operation, required bool) huma.Operation {
	op.RequestBody = &huma.RequestBody{Required: required, Content: map[string]*huma.MediaType{
		"application/json": {Schema: schemaOf[T](api)},
	}}
	return op
}

func schemaOf[T any](api huma.API) *huma.Schema {
	t := reflect.TypeFor[T]()
	return api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// answers gives an operation a response, in so many media types; T is what is in each of them, but for text.
func answers[T any](api huma.API, op huma.Operation, status int, says string, types ...string) huma.Operation {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	content := map[string]*huma.MediaType{}
	for _, t := range types {
		content[t] = &huma.MediaType{Schema: schemaOf[T](api)}
	}
	if len(types) == 0 {
		content = nil
	}
	op.Responses[strconv.Itoa(status)] = &huma.Response{Description: says, Content: content}
	if op.DefaultStatus == 0 {
		op.DefaultStatus = status
	}
	return op
}

// describe adds what all operations have.
func describe(api huma.API, op *huma.Operation) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "A problem document.",
		Headers: map[string]*huma.Param{"Retry-After": {
			Description: "With 429 and 503: after how many seconds to ask again.",
			Schema:      &huma.Schema{Type: huma.TypeInteger},
		}},
		Content: map[string]*huma.MediaType{problemType: {Schema: schemaOf[Problem](api)}},
	}
	if open[op.Path] {
		op.Security = []map[string][]string{}
	}
}

const tokenScheme = "token"

// operations says what is answered, and makes the document that says so to others.
func (s *Server) operations() error {
	cfg := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Toolyard", Version: "1",
				Description: "A pool for the tool calls of AI agents: a batch of calls goes in, one result for each " +
					"comes back, in the order of the calls.",
			},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{},
			},
		},
		Formats: huma.DefaultFormats, DefaultFormat: "application/json",
	}
	if s.cfg.asks() {
		cfg.Components.SecuritySchemes[tokenScheme] = &huma.SecurityScheme{Type: "http", Scheme: "bearer",
			Description: "The token names the agent."}
		cfg.Security = []map[string][]string{{tokenScheme: {}}}
	}
	api := humago.New(s.mux, cfg)
	op := func(method, path, id, summary string) huma.Operation {
		return huma.Operation{Method: method, Path: path, OperationID: id, Summary: summary}
	}
	const jsonType = "application/json"
	view := func(o huma.Operation, status int, says string) huma.Operation {
		return answers[toolyard.BatchView](api, o, status, says, jsonType)
	}

	o := view(op(http.MethodPost, "/v1/batches", "submit", "Submit a batch"), http.StatusAccepted,
		"The batch is stored: each call will have one result.")
	o = view(o, http.StatusOK,
		"With wait: the batch is complete. With format, what goes back to that provider instead.")
	register(s, api, withBody[Submission](api, o, true), s.submit)
	register(s, api, answers[Page](api, op(http.MethodGet, "/v1/batches", "list", "List batches"), http.StatusOK,
		"A page.", jsonType), s.list)
	o = view(op(http.MethodGet, "/v1/batches/{id}", "show", "How a batch stands"), http.StatusOK,
		"The batch. With format, what goes back to that provider instead.")
	register(s, api, view(o, http.StatusAccepted, "With wait or format: the batch, which is not complete."), s.show)
	o = answers[Appended](api, op(http.MethodPost, "/v1/batches/{id}/calls", "append", "Append calls to an open batch"),
		http.StatusAccepted, "The calls are stored.", jsonType)
	register(s, api, withBody[MoreCalls](api, o, true), s.appendCalls)
	register(s, api, view(op(http.MethodPost, "/v1/batches/{id}/close", "close", "No calls follow"),
		http.StatusAccepted, "The batch."), s.closeBatch)
	o = op(http.MethodPost, "/v1/stream/{provider}", "stream", "Hand in a model's response while it is being written")
	o.RequestBody = &huma.RequestBody{Required: true, Description: "The provider's raw event stream, as it arrives.",
		Content: map[string]*huma.MediaType{sseType: {Schema: schemaOf[string](api)}}}
	o = answers[string](api, o, http.StatusOK, "Events batch (data: a Began), result and completed as in results, "+
		"cut (data: a Problem) when the stream is not whole, "+
		"note (data: a Noted) of what is not answered here, and reply before completed: exactly what goes back to "+
		"the provider; none when there was no call.", sseType)
	schemaOf[Began](api)
	schemaOf[Noted](api)
	register(s, api, o, s.feed)
	o = answers[json.RawMessage](api, op(http.MethodGet, "/v1/tools", "tools",
		"The tools of the next batch, as a provider takes them"), http.StatusOK, "The array tools of a request.",
		jsonType)
	register(s, api, answers[string](api, o, http.StatusNotModified, "Nothing has changed."), s.tools)
	o = answers[string](api, op(http.MethodGet, "/v1/batches/{id}/results", "results",
		"The results as they come, in the order of the calls"), http.StatusOK,
		"Events result (data: a Result, id: its index), waiting while the batch waits for its turn (no id), with "+
			"progress=true progress (data: a Progress, no id), at last completed (data: a Completed); problem (data: "+
			"a Problem) when the stream cannot go on.", sseType)
	o = answers[string](api, o, http.StatusNoContent, "Last-Event-ID is that of the last event: there is no more.")
	schemaOf[toolyard.Result](api)
	schemaOf[Completed](api)
	schemaOf[client.Progress](api)
	register(s, api, o, s.results)
	o = answers[string](api, op(http.MethodGet, "/v1/batches/{id}/events", "events",
		"What happened to a batch, as CloudEvents"), http.StatusOK,
		"One CloudEvent in JSON a line, or an event cloudevent each, with progress=true progress (data: a Progress, "+
			"no id), with end=true at last end.", ndjsonType, sseType)
	register(s, api, o, s.events)
	o = view(op(http.MethodPost, "/v1/batches/{id}/cancel", "cancel", "Cancel what has no result"), http.StatusAccepted,
		"The wish is stored; this is the batch.")
	register(s, api, withBody[Cancellation](api, o, false), s.cancelBatch)
	o = view(op(http.MethodPost, "/v1/batches/{id}/calls/{index}/cancel", "cancel-call", "Cancel one call"),
		http.StatusAccepted, "The wish is stored; this is the batch.")
	register(s, api, withBody[Reason](api, o, false), s.cancelCall)
	o = answers[string](api, op(http.MethodGet, "/v1/events", "happening", "What happens to all batches, from now on"),
		http.StatusOK,
		"Events cloudevent (data: a Happening).", sseType)
	schemaOf[Happening](api)
	register(s, api, o, s.happening)
	register(s, api, answers[client.Session](api, op(http.MethodGet, "/v1/sessions/{id}", "session",
		"What is kept of a session"), http.StatusOK, "The session.", jsonType), s.session)
	o = answers[client.Session](api, op(http.MethodPost, "/v1/sessions/{id}", "change-session",
		"Change what is kept of a session"), http.StatusOK, "The session, from its next batch on.", jsonType)
	register(s, api, withBody[SessionChange](api, o, true), s.changeSession)
	register(s, api, answers[DeadLetters](api, op(http.MethodGet, "/v1/dead", "dead",
		"Messages that could not be used"), http.StatusOK, "The list.", jsonType), s.dead)
	o = answers[Interrupted](api, op(http.MethodPost, "/v1/sessions/{id}/interrupt", "interrupt",
		"Stop a session's batches where they may be stopped"), http.StatusAccepted, "How many batches were asked.",
		jsonType)
	register(s, api, withBody[Reason](api, o, false), s.interrupt)
	register(s, api, answers[Approvals](api, op(http.MethodGet, "/v1/approvals", "approvals",
		"The calls that wait for a person"), http.StatusOK, "The list.", jsonType), s.approvals)
	o = answers[Decided](api, op(http.MethodPost, "/v1/approvals/{id}", "decide", "Decide about a call that waits"),
		http.StatusOK, "The decision is stored.", jsonType)
	register(s, api, withBody[Decision](api, o, true), s.decide)
	register(s, api, answers[Blob](api, op(http.MethodGet, "/v1/blobs/{ref}", "blob", "Read an offloaded result"),
		http.StatusOK, "A part of it.", jsonType), s.blob)
	register(s, api, answers[Workers](api, op(http.MethodGet, "/v1/workers", "workers", "The live workers"),
		http.StatusOK, "The list.", jsonType), s.workers)
	register(s, api, answers[string](api, op(http.MethodGet, "/healthz", "healthz", "Is the process alive"),
		http.StatusOK, "It is.", "text/plain"), s.healthz)
	register(s, api, answers[string](api, op(http.MethodGet, "/readyz", "readyz", "Can it reach the system"),
		http.StatusOK, "It can.", "text/plain"), s.readyz)
	if s.cfg.Metrics != nil {
		register(s, api, answers[string](api, op(http.MethodGet, "/metrics", "metrics", "Counters for Prometheus"),
			http.StatusOK, "Its text format.", "text/plain"), s.metrics)
	}
	register(s, api, answers[map[string]any](api, op(http.MethodGet, "/openapi.json", "openapi", "This document"),
		http.StatusOK, "It.", jsonType), s.openapi)

	var err error
	if s.document, err = json.Marshal(api.OpenAPI()); err != nil {
		return fmt.Errorf("make the OpenAPI document: %w", err)
	}
	return nil
}
