package http

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

var update = flag.Bool("update", false, "rewrite the types of the web console")

// typesFile has the types of the API in TypeScript, for the web console.
const typesFile = "../../internal/console/ui/api.ts"

// described is a part of JSON Schema, as far as the document uses it.
type described struct {
	Ref        string               `json:"$ref"`
	Type       any                  `json:"type"`
	Enum       []any                `json:"enum"`
	Items      *described           `json:"items"`
	Properties map[string]described `json:"properties"`
	Required   []string             `json:"required"`
	More       json.RawMessage      `json:"additionalProperties"`
	Doc        string               `json:"description"`
}

// typescript is the schema as a type.
func (d *described) typescript(t *testing.T, indent string) string {
	t.Helper()
	if d.Ref != "" {
		return strings.TrimPrefix(d.Ref, "#/components/schemas/")
	}
	if len(d.Enum) > 0 {
		var all []string
		for _, v := range d.Enum {
			all = append(all, fmt.Sprintf("%q", v))
		}
		return strings.Join(all, " | ")
	}
	kinds, several := d.Type.([]any)
	if !several {
		kinds = []any{d.Type}
	}
	if len(kinds) == 2 && kinds[0] == "array" && kinds[1] == "null" {
		kinds = kinds[:1] // the library allows null; the handlers put empty lists in its place
	}
	var all []string
	for _, kind := range kinds {
		switch kind {
		case nil:
			all = append(all, "unknown")
		case "integer", "number":
			all = append(all, "number")
		case "string", "boolean", "null":
			all = append(all, kind.(string))
		case "array":
			item := d.Items.typescript(t, indent)
			if strings.Contains(item, "|") {
				item = "(" + item + ")"
			}
			all = append(all, item+"[]")
		case "object":
			all = append(all, d.object(t, indent))
		default:
			t.Fatalf("a schema has the type %v", kind)
		}
	}
	return strings.Join(all, " | ")
}

func (d *described) object(t *testing.T, indent string) string {
	t.Helper()
	if len(d.Properties) == 0 {
		var more described
		if err := json.Unmarshal(d.More, &more); err != nil || len(d.More) == 0 {
			return "Record<string, unknown>"
		}
		return "Record<string, " + more.typescript(t, indent) + ">"
	}
	var b strings.Builder
	b.WriteString("{\n")
	for _, name := range slices.Sorted(maps.Keys(d.Properties)) {
		p := d.Properties[name]
		if p.Doc != "" {
			fmt.Fprintf(&b, "%s  /** %s */\n", indent, p.Doc)
		}
		optional := "?"
		if slices.Contains(d.Required, name) {
			optional = ""
		}
		fmt.Fprintf(&b, "%s  %s%s: %s;\n", indent, name, optional, p.typescript(t, indent+"  "))
	}
	b.WriteString(indent + "}")
	return b.String()
}

// TestTypesOfTheConsole: the types that the web console is written with are those of the OpenAPI document.
func TestTypesOfTheConsole(t *testing.T) {
	p := start(t, nil)
	var doc struct {
		Components struct {
			Schemas map[string]described `json:"schemas"`
		} `json:"components"`
	}
	r := p.do(http.MethodGet, "/openapi.json", "")
	must.OK(t, json.Unmarshal(r.body, &doc))
	var b bytes.Buffer
	b.WriteString("// The types of /openapi.json. \"go test ./test/http -run TypesOfTheConsole -update\" makes this file.\n")
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		d := doc.Components.Schemas[name]
		if d.Type == "object" && len(d.Properties) > 0 {
			fmt.Fprintf(&b, "\nexport interface %s %s\n", name, d.object(t, ""))
		} else {
			fmt.Fprintf(&b, "\nexport type %s = %s;\n", name, d.typescript(t, ""))
		}
	}
	if *update {
		must.OK(t, os.WriteFile(typesFile, b.Bytes(), 0o644))
	}
	have := must.Read(t, typesFile)
	if !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is out of date; go test ./test/http -run TypesOfTheConsole -update", typesFile)
	}
}
