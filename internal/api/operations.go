package api

import (
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/report"
)

// The groups of operations in the document.
const (
	tagBatches   = "Batches"
	tagStreams   = "Streams"
	tagApprovals = "Approvals"
	tagSessions  = "Sessions"
	tagTools     = "Tools"
	tagSystem    = "System"
	tagConsole   = "Console"
)

var tags = []*huma.Tag{
	{Name: tagBatches, Description: "Submit batches, look at them and stop them."},
	{Name: tagStreams, Description: "Results and events while they come."},
	{Name: tagApprovals, Description: "Calls that wait for a person."},
	{Name: tagSessions, Description: "What is stored of conversations."},
	{Name: tagTools, Description: "The tools of the next batch, and long results."},
	{Name: tagSystem, Description: "For operators and supervisors."},
	{Name: tagConsole, Description: "Looks at batches, for people in front of a browser."},
}

// The ids of operations that others name.
const (
	submitID  = "submitBatch"
	healthID  = "checkHealth"
	readyID   = "checkReadiness"
	metricsID = "getMetrics"
	openapiID = "getOpenAPI"
	signInID  = "signInConsole"
	signOutID = "signOutConsole"
	callerID  = "getCaller"
	loginID   = "getLogin"
)

// aside are the operations that need no NATS.
var aside = map[string]bool{healthID: true, readyID: true, openapiID: true, metricsID: true, signInID: true,
	signOutID: true, callerID: true, loginID: true}

// actionKey is where an operation says what the audit log calls it.
const actionKey = "action"

// operation begins the description of one.
func operation(method, path, id, action, tag, summary, says string) huma.Operation {
	return huma.Operation{Method: method, Path: path, OperationID: id, Summary: summary, Description: says,
		Tags: []string{tag}, Metadata: map[string]any{actionKey: action}}
}

// humaConfig is the document without its operations.
func (s *Server) humaConfig() huma.Config {
	server := &huma.Server{URL: "/", Description: "The server that this document is from."}
	if s.cfg.PublicURL != "" {
		server = &huma.Server{URL: s.cfg.PublicURL, Description: "This system."}
	}
	who := []map[string][]string{{tokenScheme: {}}}
	if !s.cfg.asks() {
		who = append(who, map[string][]string{})
	}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Toolyard", Version: "1",
				Description: "A pool for the tool calls of AI agents: a batch of calls goes in, one result for each " +
					"comes back, in the order of the calls.",
				Contact: &huma.Contact{Name: "Toolyard", URL: "https://github.com/toolyard/toolyard"},
				License: &huma.License{Name: "All rights reserved", Identifier: "LicenseRef-All-Rights-Reserved"},
			},
			Servers: []*huma.Server{server},
			Tags:    tags,
			Components: &huma.Components{
				Schemas: newRegistry(),
				SecuritySchemes: map[string]*huma.SecurityScheme{tokenScheme: {Type: "http", Scheme: "bearer",
					Description: "A token of the server's token file, or a JWT of its issuer. It names the agent. A " +
						"server on a loopback address may ask for none."}},
			},
			Security: who,
		},
		Formats: huma.DefaultFormats, DefaultFormat: jsonType,
	}
}

// operations says what is answered, and in the document to others. The document is written when it is asked for first:
// that takes more time than the rest of a start.
func (s *Server) operations() {
	api := humago.New(s.mux, s.humaConfig())
	reply := replies(api)
	s.batchOperations(api, reply)
	s.streamOperations(api, reply)
	s.personOperations(api)
	s.toolOperations(api)
	s.systemOperations(api)
	s.consoleOperations(api)
	finish(api.OpenAPI())
	s.document = sync.OnceValues(func() ([]byte, error) { return documentOf(api.OpenAPI()) })
}

func (s *Server) batchOperations(api huma.API, reply *huma.Schema) {
	view := schemaOf[toolyard.BatchView](api)
	answer := &huma.Schema{AnyOf: []*huma.Schema{view, reply}}

	o := operation(http.MethodPost, "/v1/batches", submitID, "submit", tagBatches, "Submit a batch",
		"Stores a batch of calls, in the native form or in a provider's. The same id with the same content is the "+
			"same batch: a request whose answer was lost can be sent again. With wait, the answer comes when the batch "+
			"is complete or the time is over.")
	o = answers(o, http.StatusAccepted, "The batch is stored: each call will have one result.", view, jsonType)
	o = answers(o, http.StatusOK, "The batch was complete within wait. With format, what goes back to that provider.",
		answer, jsonType)
	o = withBody[Submission](api, o, true, "The batch.")
	o.RequestBody.Content[jsonType].Example = map[string]any{"id": "turn-17", "session": "s-1", "calls": []any{
		map[string]any{"id": "toolu_01", "tool": "read_file", "input": map[string]any{"file_path": "README.md"}}}}
	o.Errors = append(o.Errors, http.StatusConflict)
	register(s, api, o, s.submit)

	o = operation(http.MethodGet, "/v1/batches", "listBatches", "list", tagBatches, "List batches",
		"Returns one page of batches, the newest first. next is the after of the next page.")
	register(s, api, answers(o, http.StatusOK, "A page.", schemaOf[Page](api), jsonType), s.list)

	o = operation(http.MethodGet, "/v1/batches/{id}", "getBatch", "show", tagBatches, "Get a batch",
		"Returns the state of a batch with the results that are there. With wait, the answer comes when the batch is "+
			"complete or the time is over.")
	o = answers(o, http.StatusOK, "The batch. With format, what goes back to that provider.", answer, jsonType)
	o = answers(o, http.StatusAccepted, "With wait or format: the batch, which is not complete.", view, jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, o, s.show)

	o = operation(http.MethodPost, "/v1/batches/{id}/calls", "appendCalls", "append", tagBatches,
		"Append calls to an open batch",
		"Stores more calls of a batch that was submitted with open. Calls are recognised by their ids: the same calls "+
			"again append nothing.")
	o = answers(o, http.StatusAccepted, "The calls are stored.", schemaOf[Appended](api), jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, withBody[MoreCalls](api, o, true, "The calls."), s.appendCalls)

	o = operation(http.MethodPost, "/v1/batches/{id}/close", "closeBatch", "close", tagBatches, "Close an open batch",
		"Says that no more calls follow. The batch completes when all its calls have results.")
	o = answers(o, http.StatusAccepted, "The batch.", view, jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, o, s.closeBatch)

	o = operation(http.MethodPost, "/v1/batches/{id}/cancel", "cancelBatch", "cancel", tagBatches, "Cancel a batch",
		"Asks for the calls of a batch that have no result to end, or for some of them.")
	o = answers(o, http.StatusAccepted, "The wish is stored; this is the batch.", view, jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, withBody[Cancellation](api, o, false, "Why, and which calls."), s.cancelBatch)

	o = operation(http.MethodPost, "/v1/batches/{id}/undo", "undoBatch", "undo", tagBatches, "Undo a batch",
		"Hands in a batch of the same agent that sets the workspace back to what it was before the batch, or before a "+
			"group of it. The batch must be over, and have been handed in with the option snapshot. The new batch is one "+
			"like others: it waits for the workspace, needs permission, and its result says what came of it.")
	o = answers(o, http.StatusAccepted, "The batch that undoes it.", view, jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, withBody[Undoing](api, o, false, "How it is undone."), s.undoBatch)

	o = operation(http.MethodPost, "/v1/batches/{id}/overlay", "useOverlay", "overlay", tagBatches, "Use an overlay",
		"Hands in a batch of the same agent that says what the overlay of the batch changes, makes its changes in the "+
			"workspace, or removes it. The batch must be over, and have been handed in with the option overlay. The new "+
			"batch is one like others: it waits for the workspace, needs permission, and its result says what came of it.")
	o = answers(o, http.StatusAccepted, "The batch that does it.", view, jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, withBody[OverlayUse](api, o, true, "What is done."), s.useOverlay)

	o = operation(http.MethodPost, "/v1/batches/{id}/rerun", "rerunBatch", "rerun", tagBatches, "Run a batch again",
		"Hands the recorded calls of a batch in again, as a new batch of the same agent, session and workspace.")
	o = answers(o, http.StatusAccepted, "The new batch is stored.", view, jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, withBody[Rerun](api, o, false, "How it runs again."), s.rerun)

	o = operation(http.MethodGet, "/v1/batches/{id}/compare", "compareBatches", "compare", tagBatches,
		"Compare two batches", "Says what is different in the results of another batch of the same calls.")
	o = answers(o, http.StatusOK, "What is different.", schemaOf[Comparison](api), jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, o, s.compare)

	o = operation(http.MethodPost, "/v1/batches/{id}/calls/{index}/cancel", "cancelCall", "cancel-call", tagBatches,
		"Cancel a call", "Asks for one call to end.")
	o = answers(o, http.StatusAccepted, "The wish is stored; this is the batch.", view, jsonType)
	o.Errors = append(o.Errors, http.StatusConflict, http.StatusGone)
	register(s, api, withBody[Reason](api, o, false, "Why."), s.cancelCall)
}

func (s *Server) streamOperations(api huma.API, reply *huma.Schema) {
	result, completed := event{"result", schemaOf[toolyard.Result](api)}, event{"completed", schemaOf[Completed](api)}
	waiting := event{waitingEvent, schemaOf[client.Waiting](api)}
	progress := event{progressEvent, schemaOf[client.Progress](api)}
	behind, problem := event{behindEvent, schemaOf[Behind](api)}, event{"problem", schemaOf[Problem](api)}
	cloudEvent := schemaOf[CloudEvent](api)

	o := operation(http.MethodPost, "/v1/stream/{provider}", "submitStream", "stream", tagStreams,
		"Submit a model's response while it is written",
		"Takes the raw event stream of a provider, and starts each call as soon as its input is complete. The answer "+
			"is sent while the request is still read. If the connection is lost, the results stay at the address in "+
			"the first event.")
	o.RequestBody = &huma.RequestBody{Required: true, Description: "The provider's raw event stream, as it arrives.",
		Content: map[string]*huma.MediaType{sseType: {Schema: &huma.Schema{Type: huma.TypeString}}}}
	o.Errors = []int{http.StatusConflict, http.StatusUnsupportedMediaType}
	o = answers(o, http.StatusOK, "Server-sent events: batch first, result for each call with its index as the id, "+
		"cut if the stream is not whole, note if it has items that are not executed here, reply unless there was no "+
		"call, completed last.",
		streamOf(api, "AnswerEventData", "The data of the events that answer a model's stream.",
			event{"batch", schemaOf[Began](api)}, result, event{"cut", problem.data},
			event{"note", schemaOf[Noted](api)}, event{"reply", component(api, "Reply", &huma.Schema{
				Description: "What goes back to the provider, or the batch with format=native.",
				AnyOf:       []*huma.Schema{reply, schemaOf[toolyard.BatchView](api)}})},
			completed, behind, problem), sseType)
	register(s, api, o, s.feed)

	o = operation(http.MethodGet, "/v1/batches/{id}/results", "streamResults", "results", tagStreams,
		"Stream the results of a batch",
		"Sends the results as they come, in the order of the calls. With Last-Event-ID the stream continues after "+
			"that event.")
	o = answers(o, http.StatusOK, "Server-sent events: result with its index as the id, waiting while the batch waits "+
		"for its turn, progress if it is asked for, completed last. problem if the stream cannot continue, behind if "+
		"it was read too slowly.",
		streamOf(api, "ResultEventData", "The data of the events of a stream of results.", result, waiting, progress,
			completed, behind, problem), sseType)
	o = answers(o, http.StatusNoContent, "Last-Event-ID is that of the last event: there is no more.", nil)
	o.Errors = []int{http.StatusConflict, http.StatusGone}
	register(s, api, o, s.results)

	o = operation(http.MethodGet, "/v1/batches/{id}/events", "streamEvents", "events", tagStreams,
		"Stream the events of a batch",
		"Sends what is stored about a batch as CloudEvents, and then each event as it is stored.")
	o = answers(o, http.StatusOK, "A CloudEvent in each line, or server-sent events: cloudevent, waiting and progress "+
		"if they are asked for, end if it is asked for, problem, behind.",
		streamOf(api, "BatchEventData", "The data of the events of a batch's event stream.",
			event{"cloudevent", cloudEvent}, waiting, progress, behind, problem,
			event{endEvent, component(api, "End", &huma.Schema{Type: huma.TypeObject,
				Description: "The data of the event end: all events were sent. It has no fields."})}), sseType)
	o.Responses["200"].Content[ndjsonType] = &huma.MediaType{Schema: cloudEvent}
	o.Errors = []int{http.StatusNotAcceptable, http.StatusGone}
	register(s, api, o, s.events)

	o = operation(http.MethodGet, "/v1/events", "watchEvents", "happening", tagStreams, "Watch all batches",
		"Sends the events of all batches from now on. A gap marks where some are missing.")
	o = answers(o, http.StatusOK, "Server-sent events: cloudevent, problem.",
		streamOf(api, "WatchEventData", "The data of the events of all batches.",
			event{"cloudevent", schemaOf[Happening](api)}, problem), sseType)
	register(s, api, o, s.happening)
}

func (s *Server) personOperations(api huma.API) {
	o := operation(http.MethodGet, "/v1/approvals", "listApprovals", "approvals", tagApprovals, "List approvals",
		"Returns the calls that wait for a person, the newest first.")
	register(s, api, answers(o, http.StatusOK, "The list.", schemaOf[Approvals](api), jsonType), s.approvals)

	o = operation(http.MethodPost, "/v1/approvals/{id}", "decideApproval", "decide", tagApprovals,
		"Decide about a call", "Stores what a person decides about a call that waits. An agent's token may deny; "+
			"allowing takes an operator's.")
	o = answers(o, http.StatusOK, "The decision is stored.", schemaOf[Decided](api), jsonType)
	o.Errors = []int{http.StatusConflict, http.StatusGone}
	register(s, api, withBody[Decision](api, o, true, "The decision."), s.decide)

	session := schemaOf[client.Session](api)
	o = operation(http.MethodGet, "/v1/sessions/{id}", "getSession", "session", tagSessions, "Get a session",
		"Returns what is stored of a session. A session of which nothing is stored is new.")
	register(s, api, answers(o, http.StatusOK, "The session.", session, jsonType), s.session)

	o = operation(http.MethodPost, "/v1/sessions/{id}", "updateSession", "change-session", tagSessions,
		"Change a session", "Changes what is stored of a session, for its next batches.")
	o = answers(o, http.StatusOK, "The session.", session, jsonType)
	register(s, api, withBody[SessionChange](api, o, true, "The change."), s.changeSession)

	o = operation(http.MethodPost, "/v1/sessions/{id}/interrupt", "interruptSession", "interrupt", tagSessions,
		"Interrupt a session", "Stops the session's batches where their tools may be stopped, or only ends what waits "+
			"for a person.")
	o = answers(o, http.StatusAccepted, "What was interrupted.", schemaOf[Interrupted](api), jsonType)
	register(s, api, withBody[Interruption](api, o, false, "How, and why."), s.interrupt)
}

func (s *Server) toolOperations(api huma.API) {
	object := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	o := operation(http.MethodGet, "/v1/tools", "listTools", "tools", tagTools, "List tools",
		"Returns the tools of the next batch as a provider takes them in a request. Ask before each request: workers "+
			"come and go with their tools.")
	o = answers(o, http.StatusOK, "The array tools of a request, or with format=native the surface.",
		component(api, "Tools", &huma.Schema{
			Description: "The array tools of a provider's request, or with format=native the surface as an object.",
			AnyOf:       []*huma.Schema{{Type: huma.TypeArray, Items: object}, object}}), jsonType)
	register(s, api, answers(o, http.StatusNotModified, "Nothing has changed.", nil), s.tools)

	o = operation(http.MethodGet, "/v1/blobs/{ref}", "getBlob", "blob", tagTools, "Get an offloaded result",
		"Returns a part of a result that is too long to be in the batch.")
	register(s, api, answers(o, http.StatusOK, "A part of it.", schemaOf[Blob](api), jsonType), s.blob)
}

func (s *Server) systemOperations(api huma.API) {
	plain := &huma.Schema{Type: huma.TypeString}
	text := func(path, id, action, summary, says, content string) huma.Operation {
		return answers(operation(http.MethodGet, path, id, action, tagSystem, summary, says), http.StatusOK, content,
			plain, "text/plain")
	}
	o := operation(http.MethodGet, "/v1/workers", "listWorkers", "workers", tagSystem, "List workers",
		"Returns the live workers.")
	register(s, api, answers(o, http.StatusOK, "The list.", schemaOf[Workers](api), jsonType), s.workers)

	o = operation(http.MethodGet, "/v1/dead", "listDeadLetters", "dead", tagSystem, "List dead letters",
		"Returns messages that could not be used and batches that were given up. It takes an operator's token.")
	register(s, api, answers(o, http.StatusOK, "The list.", schemaOf[DeadLetters](api), jsonType), s.dead)

	o = operation(http.MethodGet, "/v1/report", "getReport", "report", tagSystem, "Get a report",
		"Adds up the batches of a period: tools, error codes, times, waits, denials and questions. Where there are too "+
			"many it has the newest, and cut says so.")
	register(s, api, answers(o, http.StatusOK, "The report.", schemaOf[report.Report](api), jsonType), s.report)

	register(s, api, text("/healthz", healthID, "healthz", "Check that the process is alive",
		"Answers while the process runs.", "It is alive."), s.healthz)
	register(s, api, text("/readyz", readyID, "readyz", "Check that the system is reachable",
		"Answers 200 while the server reaches its system, and 503 otherwise.", "It is reachable."), s.readyz)
	if s.cfg.Metrics != nil {
		register(s, api, text("/metrics", metricsID, "metrics", "Get metrics",
			"Returns this dispatcher's counters. It takes an operator's token.", "Prometheus's text format."),
			s.metrics)
	}
	o = operation(http.MethodGet, "/openapi.json", openapiID, "openapi", tagSystem, "Get this document",
		"Returns the OpenAPI document of this server.")
	register(s, api, answers(o, http.StatusOK, "The document.",
		&huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}, jsonType), s.openapi)
}

// CloudEvent is an event as the streams of events have it.
type CloudEvent struct {
	SpecVersion string `json:"specversion" doc:"The version of CloudEvents." enum:"1.0"`
	ID          string `json:"id" doc:"The event's id."`
	Source      string `json:"source" doc:"Which process wrote the event."`
	Type        string `json:"type" doc:"What happened."`
	Subject     string `json:"subject,omitempty" doc:"The batch that it is about, as agent/batch."`
	Time        string `json:"time,omitempty" format:"date-time" doc:"When it was written."`
	ContentType string `json:"datacontenttype,omitempty" doc:"The media type of data."`
	Data        any    `json:"data,omitempty" doc:"The event's own fields."`
}
