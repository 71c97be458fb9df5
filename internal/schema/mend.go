package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxMends bounds the keywords of one schema that are removed because they mean nothing.
const maxMends = 100

// Mend turns the schema of a foreign tool into one of 2020-12 that compiles, and returns a line for each change.
// Keywords of older drafts and of OpenAPI are translated. A keyword that means nothing is removed, so that more is
// accepted there. input says that it is the schema of a tool's input, which is an object. A schema that needs no change
// is returned unchanged.
func Mend(raw json.RawMessage, input bool) (json.RawMessage, []string, error) {
	v, err := Parse(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("the schema is not usable JSON: %w", err)
	}
	m := &mender{}
	root, ok := v.doc.(map[string]any)
	switch {
	case ok:
	case input && (v.doc == nil || v.doc == true):
		m.record(nil, "there is no input schema; any fields are taken")
		root = map[string]any{"type": "object", "additionalProperties": true}
	case v.doc == true:
		root = map[string]any{}
	default:
		return nil, nil, fmt.Errorf("the schema is not an object: got %s", describe(v.doc))
	}
	m.root = root
	m.dialect()
	m.node(root, nil)
	m.references(root, nil)
	if input {
		if err := m.object(); err != nil {
			return nil, nil, err
		}
	}
	if err := m.finish(); err != nil {
		return nil, nil, err
	}
	if len(m.lines) == 0 {
		return raw, nil, nil
	}
	out, err := encode(root)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the schema: %w", err)
	}
	return out, m.lines, nil
}

// mender changes one schema.
type mender struct {
	root  map[string]any
	draft int // 4, 6, 7, 2019, 2020
	lines []string
}

// record records a change and its place.
func (m *mender) record(at []string, format string, args ...any) {
	where := ""
	if len(at) > 0 {
		where = shorten("/"+strings.Join(at, "/")) + ": "
	}
	m.lines = append(m.lines, where+fmt.Sprintf(format, args...))
}

// drafts are the known drafts, by their addresses.
var drafts = map[string]int{
	"json-schema.org/draft-04/schema": 4, "json-schema.org/draft-06/schema": 6, "json-schema.org/draft-07/schema": 7,
	"json-schema.org/draft/2019-09/schema": 2019, "json-schema.org/draft/2020-12/schema": 2020,
}

// dialect finds the draft of the schema, and removes the name of an unknown one.
func (m *mender) dialect() {
	m.draft = 2020
	said, ok := m.root["$schema"]
	name, _ := said.(string)
	address := strings.TrimSuffix(name, "#")
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	if draft, ok := drafts[address]; ok {
		m.draft = draft
		return
	}
	if ok {
		delete(m.root, "$schema")
		m.record([]string{"$schema"}, "%s is no draft that is known; it is read as 2020-12", shorten(name))
	}
}

// object sets the root's type to object.
func (m *mender) object() error {
	switch t := m.root["type"].(type) {
	case nil:
		m.record(nil, "the root does not say that it is an object; it is read as one")
	case string:
		if t != "object" {
			return fmt.Errorf("its type is %s; the input of a tool is an object", shorten(t))
		}
		return nil
	case []any:
		if !slices.Contains(t, any("object")) {
			return errors.New("its types are all other than object; the input of a tool is an object")
		}
		m.record(nil, "the root may be other than an object; it is read as one")
	}
	m.root["type"] = "object"
	return nil
}

// node translates one schema and those below it.
func (m *mender) node(node map[string]any, at []string) {
	for _, k := range slices.Sorted(maps.Keys(node)) {
		if node[k] == nil && !slices.Contains([]string{"const", "default", "example", "examples"}, k) {
			delete(node, k)
			m.record(append(slices.Clip(at), k), "null says nothing and is taken out")
		}
	}
	m.types(node, at)
	m.tuple(node, at)
	m.limits(node, at)
	m.required(node, at)
	subschemas(node, func(_ string, path []string, child any) {
		if c, ok := child.(map[string]any); ok {
			m.node(c, append(slices.Clip(at), path...))
		}
	})
}

// typeNames are those of JSON Schema, and other names that authors use.
var typeNames = map[string]string{
	"array": "array", "boolean": "boolean", "integer": "integer", "null": "null", "number": "number",
	"object": "object",
	"string": "string",
	"bool":   "boolean", "dict": "object", "double": "number", "float": "number", "int": "integer", "list": "array",
	"map": "object", "none": "null", "str": "string",
}

func (m *mender) types(node map[string]any, at []string) {
	said, ok := node["type"]
	if !ok {
		return
	}
	list, isList := said.([]any)
	if !isList {
		list = []any{said}
	}
	var names []any
	unknown := false
	for _, t := range list {
		word, _ := t.(string)
		name, known := typeNames[strings.ToLower(word)]
		switch {
		case !known:
			unknown = true
			m.record(append(slices.Clip(at), "type"), "%s is no type; any value is taken", literal(t))
			continue
		case name != word:
			m.record(append(slices.Clip(at), "type"), "%s is read as %q", quote(word), name)
		}
		if !slices.Contains(names, any(name)) {
			names = append(names, name)
		}
	}
	if nullable, _ := node["nullable"].(bool); nullable && !unknown && !slices.Contains(names, any("null")) {
		names = append(names, "null")
		if values, ok := node["enum"].([]any); ok && !slices.Contains(values, nil) {
			node["enum"] = append(values, nil)
		}
		m.record(append(slices.Clip(at), "nullable"), "null is taken too, as OpenAPI means it")
	}
	switch {
	case unknown || len(names) == 0:
		delete(node, "type")
	case len(names) == 1:
		node["type"] = names[0]
	default:
		node["type"] = names
	}
}

// tuple translates the items of older drafts.
func (m *mender) tuple(node map[string]any, at []string) {
	list, ok := node["items"].([]any)
	if !ok || m.draft < 2020 {
		return
	}
	delete(node, "items")
	if rest, ok := node["additionalItems"]; ok {
		node["items"] = rest
		delete(node, "additionalItems")
	}
	if len(list) > 0 {
		node["prefixItems"] = list
	}
	m.record(append(slices.Clip(at), "items"), "a list is read as prefixItems, which 2020-12 calls it")
}

// limits translates the booleans of draft 4.
func (m *mender) limits(node map[string]any, at []string) {
	for _, k := range []struct{ exclusive, bound string }{
		{"exclusiveMaximum", "maximum"}, {"exclusiveMinimum", "minimum"},
	} {
		on, ok := node[k.exclusive].(bool)
		if !ok || m.draft == 4 {
			continue
		}
		delete(node, k.exclusive)
		if limit, ok := node[k.bound]; ok && on {
			node[k.exclusive] = limit
			delete(node, k.bound)
		}
		m.record(append(slices.Clip(at), k.exclusive), "%t is read as draft 4 has it", on)
	}
}

// required translates the booleans of draft 3, which are in the field itself, and removes repeats.
func (m *mender) required(node map[string]any, at []string) {
	list, isList := node["required"].([]any)
	if _, ok := node["required"].(bool); ok { // the parent node has read it
		delete(node, "required")
	}
	fields, _ := node["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field, _ := fields[name].(map[string]any)
		if need, ok := field["required"].(bool); ok {
			if need {
				list, isList = append(list, name), true
			}
			m.record(append(slices.Clip(at), "properties", name, "required"), "%t is read as draft 3 has it", need)
		}
	}
	if !isList {
		return
	}
	var unique []any
	seen := map[string]bool{}
	for _, name := range list {
		if s, ok := name.(string); ok && !seen[s] {
			seen[s] = true
			unique = append(unique, name)
		}
	}
	if unique == nil {
		unique = []any{}
	}
	if len(unique) < len(list) {
		m.record(append(slices.Clip(at), "required"), "names that stand there twice, and what is no name, are taken out")
	}
	node["required"] = unique
}

// references removes references that lead to nothing in the schema: nothing is ever loaded.
func (m *mender) references(node map[string]any, at []string) {
	if ref, ok := node["$ref"].(string); ok {
		fragment, local := strings.CutPrefix(ref, "#")
		switch {
		case local && strings.HasPrefix(fragment, "/"):
			if _, ok := lookup(m.root, fragment); !ok {
				delete(node, "$ref")
				m.record(append(slices.Clip(at), "$ref"), "%s is not in the schema; any value is taken", shorten(ref))
			}
		case !local && !named(m.root, true):
			delete(node, "$ref")
			m.record(append(slices.Clip(at), "$ref"),
				"%s leads out of the schema, and nothing is loaded; any value is taken",
				shorten(ref))
		}
	}
	subschemas(node, func(_ string, path []string, child any) {
		if n, ok := child.(map[string]any); ok {
			m.references(n, append(slices.Clip(at), path...))
		}
	})
}

// named reports whether a schema has an address that a reference may use.
func named(node map[string]any, top bool) (found bool) {
	_, a := node["$id"].(string)
	_, b := node["id"].(string)
	if a || b && !top {
		return true
	}
	subschemas(node, func(_ string, _ []string, child any) {
		if n, ok := child.(map[string]any); ok && !found {
			found = named(n, false)
		}
	})
	return found
}

// finish removes what keeps the schema from compiling: the deepest keywords first, and then what still means nothing.
func (m *mender) finish() error {
	for left := maxMends; ; {
		raw, err := encode(m.root)
		if err != nil {
			return fmt.Errorf("encode the schema: %w", err)
		}
		if _, err = CompileInput(raw); err == nil {
			return nil
		}
		invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err)
		if !ok {
			return err
		}
		why, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err)
		if !ok {
			return err
		}
		taken := false
		for _, place := range deepest(why) {
			if !m.takeOut(place) { // it stood in a list that was taken out
				continue
			}
			if left--; left < 0 {
				return fmt.Errorf("more than %d keywords of it mean nothing", maxMends)
			}
			taken = true
		}
		if !taken {
			return err
		}
	}
}

// deepest are the places of the deepest errors, by name.
func deepest(err *jsonschema.ValidationError) (found [][]string) {
	depth := -1
	var look func(*jsonschema.ValidationError)
	look = func(err *jsonschema.ValidationError) {
		for _, cause := range err.Causes {
			look(cause)
		}
		if at := err.InstanceLocation; len(err.Causes) == 0 && len(at) >= depth {
			if len(at) > depth {
				depth, found = len(at), nil
			}
			found = append(found, at)
		}
	}
	look(err)
	slices.SortFunc(found, slices.Compare)
	return slices.CompactFunc(found, slices.Equal)
}

// takeOut removes the keyword at a place from the schema, or the list above it that contains it. A whole subschema
// becomes one that accepts any value, so that its field is still known. It returns false if there is nothing to remove.
func (m *mender) takeOut(path []string) bool {
	for len(path) > 0 {
		last := path[len(path)-1]
		above, _ := at(m.root, path[:len(path)-1])
		parent, ok := above.(map[string]any)
		if !ok { // in a list
			path = path[:len(path)-1]
			continue
		}
		if _, there := parent[last]; !there {
			return false
		}
		m.record(path, "it means nothing there and is taken out")
		value, isObject := parent[last].(map[string]any)
		if len(path) > 1 && slices.Contains(holdNamed, path[len(path)-2]) && !(isObject && len(value) == 0) {
			parent[last] = map[string]any{}
			return true
		}
		delete(parent, last)
		return true
	}
	return false
}
