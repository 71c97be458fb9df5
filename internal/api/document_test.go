package api

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/metrics"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

var update = flag.Bool("update", false, "write clients/openapi.json again")

// committed is where the document stands that the clients are generated from.
const committed = "../../clients/openapi.json"

// document is that of a server that asks nobody for a token.
func document(t *testing.T) []byte {
	t.Helper()
	m := metrics.New(func() bool { return true })
	s := &Server{cfg: Config{Loopback: true, Metrics: m}, mux: http.NewServeMux()}
	s.operations()
	doc, err := s.document()
	must.OK(t, err)
	return doc
}

// TestCommittedDocument: the document that the clients are generated from is what a server answers with.
func TestCommittedDocument(t *testing.T) {
	var v any
	must.OK(t, json.Unmarshal(document(t), &v))
	now, err := json.MarshalIndent(v, "", "  ")
	must.OK(t, err)
	now = append(now, '\n')
	if *update {
		must.OK(t, os.WriteFile(committed, now, 0o644))
	}
	then := must.Read(t, committed)
	if string(then) != string(now) {
		t.Errorf("%s is not what a server answers with; run go test ./internal/api -run TestCommittedDocument -update, "+
			"and then make openapi-types", committed)
	}
}

// TestModesOfTickets: the document names each mode that a ticket can have.
func TestModesOfTickets(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas struct {
				WorkspaceTicket struct {
					Properties struct {
						Mode struct{ Enum []ticket.Mode }
					}
				}
			}
		}
	}
	must.OK(t, json.Unmarshal(document(t), &doc))
	if modes := doc.Components.Schemas.WorkspaceTicket.Properties.Mode.Enum; !slices.Equal(modes, ticket.Modes) {
		t.Errorf("the modes are %q, and tickets have %q", modes, ticket.Modes)
	}
}

type schemaDoc struct {
	Ref         string               `json:"$ref"`
	Type        any                  `json:"type"`
	Description string               `json:"description"`
	Default     json.RawMessage      `json:"default"`
	Properties  map[string]schemaDoc `json:"properties"`
	Items       *schemaDoc           `json:"items"`
}

// TestDocumentReadsWell: everything in the document is described, arrays are arrays, no field that may be left out has
// a default, which generators take for always there, and operations are named by what they do to what.
func TestDocumentReadsWell(t *testing.T) {
	var doc struct {
		Servers []struct{ URL string }
		Tags    []struct{ Name string }
		Paths   map[string]map[string]struct {
			OperationID          string `json:"operationId"`
			Summary, Description string
			Tags                 []string
			Parameters           []struct{ Name, Description string }
			RequestBody          *struct{ Description string }
			Responses            map[string]struct {
				Description string
				Headers     map[string]struct{ Description string }
			}
		}
		Components struct {
			Schemas         map[string]schemaDoc
			SecuritySchemes map[string]any
		}
	}
	must.OK(t, json.Unmarshal(document(t), &doc))
	if len(doc.Servers) != 1 || doc.Components.SecuritySchemes[tokenScheme] == nil {
		t.Errorf("it has the servers %v and the security schemes %v", doc.Servers, doc.Components.SecuritySchemes)
	}
	named := regexp.MustCompile(`^[a-z]+(OpenAPI|[A-Z][a-z]+)+$`)
	verbs := strings.Fields("append cancel check close compare count decide get interrupt list rerun search sign stream " +
		"submit undo update use watch")
	for path, ops := range doc.Paths {
		for method, op := range ops {
			verb, _, _ := strings.Cut(strings.Map(func(r rune) rune {
				if r >= 'A' && r <= 'Z' {
					return ' '
				}
				return r
			}, op.OperationID), " ")
			if !named.MatchString(op.OperationID) || !slices.Contains(verbs, verb) {
				t.Errorf("%s %s is named %q, which is no verb with an object", method, path, op.OperationID)
			}
			if op.Summary == "" || op.Description == "" || len(op.Tags) != 1 {
				t.Errorf("%s: summary %q, description %q, tags %q", op.OperationID, op.Summary, op.Description, op.Tags)
			}
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s does not describe its parameter %s", op.OperationID, p.Name)
				}
			}
			if op.RequestBody != nil && op.RequestBody.Description == "" {
				t.Errorf("%s does not describe its body", op.OperationID)
			}
			for status, r := range op.Responses {
				if r.Description == "" {
					t.Errorf("%s does not describe its answer %s", op.OperationID, status)
				}
				for name, h := range r.Headers {
					if h.Description == "" && name != "Content-Type" {
						t.Errorf("%s does not describe its header %s", op.OperationID, name)
					}
				}
			}
		}
	}
	for name, s := range doc.Components.Schemas {
		if s.Description == "" {
			t.Errorf("%s is not described", name)
		}
		for field, f := range s.Properties {
			if f.Description == "" {
				t.Errorf("%s.%s is not described", name, field)
			}
			if f.Default != nil {
				t.Errorf("%s.%s has a default; say it in the description", name, field)
			}
			if _, several := f.Type.([]any); several {
				t.Errorf("%s.%s has the types %v", name, field, f.Type)
			}
		}
	}
	for name, fields := range described {
		for field := range fields {
			s, ok := doc.Components.Schemas[name]
			if _, has := s.Properties[field]; !ok || field != "" && !has {
				t.Errorf("%s.%s is described, and is not there", name, field)
			}
		}
	}
	for _, name := range bodies {
		if _, ok := doc.Components.Schemas[name]; !ok {
			t.Errorf("there is no body %s", name)
		}
	}
}
