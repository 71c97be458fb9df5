package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/report"
)

// How the OpenAPI document is made from the types. Generators of clients read it, so each set of values that is closed
// is a component of its own, each event stream says what its events carry, and no field that may be left out has a
// default that makes a generator call it required.

const (
	jsonType    = "application/json"
	tokenScheme = "token"
	schemasAt   = "#/components/schemas/"
)

// closed stands for a type whose values are a closed set. The schema of each such type is a component.
type closed[T ~string] struct{}

// Schema refers to the component.
func (closed[T]) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Ref: schemasAt + reflect.TypeFor[T]().Name()}
}

func set[T ~string](r huma.Registry, says string, values ...T) {
	enum := make([]any, len(values))
	for i, v := range values {
		enum[i] = string(v)
	}
	name := reflect.TypeFor[T]().Name()
	r.Map()[name] = &huma.Schema{Type: huma.TypeString, Description: says, Enum: enum}
	r.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[closed[T]]())
}

// schemaName is the name of a type's component. The parts of a report have names there that say so.
func schemaName(t reflect.Type, hint string) string {
	name, whole := huma.DefaultSchemaNamer(t, hint), reflect.TypeFor[report.Report]()
	if t.PkgPath() == whole.PkgPath() && t != whole {
		name = whole.Name() + name
	}
	return name
}

// newRegistry makes the registry of schemas. It has the closed sets.
func newRegistry() huma.Registry {
	r := huma.NewMapRegistry(schemasAt, schemaName)
	set(r, "The state of a batch.", toolyard.Statuses...)
	set(r, "A concurrency class: what may run beside a call.", toolyard.Classes...)
	set(r, "Why a call failed. Empty on success.", append([]toolyard.Code{toolyard.OK}, toolyard.Codes...)...)
	set(r, "A step of a call.", toolyard.Phases...)
	set(r, "What a phase found.", toolyard.OutcomeOK, toolyard.OutcomeFailed, toolyard.OutcomeNoted)
	set(r, "What a part of an output is.", toolyard.ContentText, toolyard.ContentImage, toolyard.ContentAudio,
		toolyard.ContentResource, toolyard.ContentLink, toolyard.ContentTool)
	set(r, "How a call used its tool's cache.", toolyard.CacheUses...)
	set(r, "How calls become groups.", toolyard.Strategies...)
	set(r, "What a call that fails while executing does to its group.", toolyard.CancelGroup, toolyard.Continue)
	set(r, "What a scanner does with what it finds.", toolyard.ScanActions...)
	set(r, "What becomes of a name.", toolyard.OverlayAdded, toolyard.OverlayChanged, toolyard.OverlayRemoved)
	set(r, "Which batches go first.", toolyard.Interactive, toolyard.Bulk)
	set(r, "Whether a call that waits for a person may run.", client.Allow, client.Deny)
	return r
}

// bodies are the components that only requests have. They are closed: a field that the server does not know is an
// error. What comes from the server may have more fields one day.
var bodies = []string{"BatchOptions", "Call", "Cancellation", "Decision", "MoreCalls", "OverlayUse", "Reason",
	"Rerun", "SessionChange", "SignIn", "Submission", "Undoing"}

// finish completes what the operations have left out.
func finish(doc *huma.OpenAPI) {
	finishSchemas(doc.Components.Schemas.Map())
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Delete} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				p.Description = cmp.Or(p.Description, p.Schema.Description)
			}
			for _, r := range op.Responses {
				for _, h := range r.Headers {
					h.Description = cmp.Or(h.Description, h.Schema.Description)
				}
			}
		}
	}
}

// finishSchemas completes the schemas of the components.
func finishSchemas(schemas map[string]*huma.Schema) {
	for name, s := range schemas {
		s.Description = cmp.Or(s.Description, described[name][""])
		if s.Type == huma.TypeObject && !slices.Contains(bodies, name) {
			s.AdditionalProperties = nil
		}
		for field, f := range s.Properties {
			f.Description = cmp.Or(f.Description, described[name][field], described[embedded[name]][field])
		}
	}
	delete(schemas["Progress"].Properties, "waiting") // an event of its own has it
	schemas["DeadLetter"].Properties["kind"].Enum = []any{"submission", "call", "batch"}
	kinds := []any{}
	for _, k := range client.ProblemTypes() {
		kinds = append(kinds, k)
	}
	schemas["Problem"].Properties["type"].Enum = kinds
}

// withBody says what the body of an operation is.
func withBody[T any](api huma.API, op huma.Operation, required bool, says string) huma.Operation {
	op.RequestBody = &huma.RequestBody{Required: required, Description: says, Content: map[string]*huma.MediaType{
		jsonType: {Schema: schemaOf[T](api)},
	}}
	op.Errors = append(op.Errors, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	return op
}

func schemaOf[T any](api huma.API) *huma.Schema {
	t := reflect.TypeFor[T]()
	return api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// component adds a schema that no Go type has.
func component(api huma.API, name string, s *huma.Schema) *huma.Schema {
	api.OpenAPI().Components.Schemas.Map()[name] = s
	return &huma.Schema{Ref: schemasAt + name}
}

// event is one kind of event of a stream: its name, and what its data is.
type event struct {
	name string
	data *huma.Schema
}

// streamOf adds the schema of what the events of a stream carry. OpenAPI 3.1 has no word for the names of events, so
// the extension x-events has them.
func streamOf(api huma.API, name, says string, events ...event) *huma.Schema {
	s := &huma.Schema{Description: says, Extensions: map[string]any{}}
	named := map[string]*huma.Schema{}
	for _, e := range events {
		named[e.name] = e.data
		if !slices.ContainsFunc(s.AnyOf, func(have *huma.Schema) bool { return have.Ref == e.data.Ref }) {
			s.AnyOf = append(s.AnyOf, e.data)
		}
	}
	s.Extensions["x-events"] = named
	return component(api, name, s)
}

// answers gives an operation a response, in so many media types that all have the schema; nil: it has no content.
func answers(op huma.Operation, status int, says string, schema *huma.Schema, types ...string) huma.Operation {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	var content map[string]*huma.MediaType
	if schema != nil {
		content = map[string]*huma.MediaType{}
	}
	for _, t := range types {
		content[t] = &huma.MediaType{Schema: schema}
	}
	op.Responses[strconv.Itoa(status)] = &huma.Response{Description: says, Content: content}
	if op.DefaultStatus == 0 {
		op.DefaultStatus = status
	}
	return op
}

// failures says what a status of a problem means.
var failures = map[int]string{
	http.StatusBadRequest:    "The request is wrong. field says where, detail how to fix it.",
	http.StatusUnauthorized:  "The token is missing or unknown.",
	http.StatusForbidden:     "The token may not do this, or the request is from a page of another site.",
	http.StatusNotFound:      "It does not exist, or belongs to another agent.",
	http.StatusNotAcceptable: "The answer does not come in a form that Accept has.",
	http.StatusConflict: "The id has other content, the batch takes no more calls or was refused, or somebody else " +
		"has decided. type says which.",
	http.StatusGone:                  "It is over, and no longer stored.",
	http.StatusRequestEntityTooLarge: "The body is longer than it may be.",
	http.StatusUnsupportedMediaType:  "The body has another media type.",
	http.StatusTooManyRequests: "The server is full, or the token's limit is reached. Send the same again, under the " +
		"same id, after Retry-After seconds.",
}

// describe adds what all operations have.
func describe(api huma.API, op *huma.Operation) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	problem := func(says string) *huma.Response {
		return &huma.Response{Description: says,
			Content: map[string]*huma.MediaType{problemType: {Schema: schemaOf[Problem](api)}}}
	}
	again := map[string]*huma.Param{"Retry-After": {
		Description: "After how many seconds to ask again.", Schema: &huma.Schema{Type: huma.TypeInteger},
	}}
	fails := append([]int{http.StatusBadRequest, http.StatusForbidden}, op.Errors...)
	op.Errors = nil // or the library describes them
	if !open[op.Path] {
		fails = append(fails, http.StatusUnauthorized, http.StatusTooManyRequests)
	} else {
		op.Security = []map[string][]string{}
	}
	if strings.Contains(op.Path, "{id}") || strings.Contains(op.Path, "{ref}") {
		fails = append(fails, http.StatusNotFound)
	}
	for _, status := range fails {
		r := problem(failures[status])
		if status == http.StatusTooManyRequests {
			r.Headers = again
		}
		op.Responses[strconv.Itoa(status)] = r
	}
	rest := problem("Any other problem. With 503, the system behind the server does not answer.")
	rest.Headers = again
	op.Responses["default"] = rest
}

// documentOf writes the document. The fields of a generated document have their order from it, so that the same server
// writes the same bytes.
func documentOf(doc *huma.OpenAPI) ([]byte, error) {
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("make the OpenAPI document: %w", err)
	}
	return out, nil
}

// The replies to providers: what goes back to each of them as it is. They are described here; package provider writes
// them.

// AnthropicReply is the next message to Anthropic.
type AnthropicReply struct {
	Role    string           `json:"role" enum:"user" doc:"The role of the message."`
	Content []map[string]any `json:"content" doc:"A tool_result for each call."`
}

// OpenAIChatReply is a message to OpenAI Chat Completions.
type OpenAIChatReply struct {
	Role    string `json:"role" enum:"tool" doc:"The role of the message."`
	CallID  string `json:"tool_call_id" doc:"The id of the call."`
	Content string `json:"content" doc:"What the model reads."`
}

// OpenAIReply is an item of the next input of OpenAI Responses.
type OpenAIReply struct {
	Type   string `json:"type" enum:"function_call_output,custom_tool_call_output,tool_search_output" doc:"The type of the item."`
	CallID string `json:"call_id" doc:"The id of the call."`
}

// GeminiReply is the next content for Gemini.
type GeminiReply struct {
	Role  string           `json:"role" doc:"The role of the content."`
	Parts []map[string]any `json:"parts" doc:"A functionResponse for each call."`
}

// replies adds the schema of what goes back to a provider.
func replies(api huma.API) *huma.Schema {
	list := func(item *huma.Schema) *huma.Schema { return &huma.Schema{Type: huma.TypeArray, Items: item} }
	return component(api, "ProviderReply", &huma.Schema{
		Description: "What goes back to a provider as it is: the next message of Anthropic, items of OpenAI " +
			"Responses, messages of Chat Completions, or a content of Gemini.",
		AnyOf: []*huma.Schema{schemaOf[AnthropicReply](api), list(schemaOf[OpenAIReply](api)),
			list(schemaOf[OpenAIChatReply](api)), schemaOf[GeminiReply](api)},
	})
}
