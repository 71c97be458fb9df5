package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxDepth is how deep a file may nest, maxNodes how many values it may have once its aliases stand for what they mean.
const (
	maxDepth = 100
	maxNodes = 200_000
)

// toJSON reads YAML, of which JSON is a part, as JSON.
func toJSON(data []byte) ([]byte, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("the file has %d bytes; at most %d are allowed", len(data), MaxFileBytes)
	}
	if json.Valid(data) {
		data = surrogates.ReplaceAllFunc(data, decoded)
	}
	var doc, more yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	err := in.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && doc.Kind == 0:
		return nil, fmt.Errorf("the file is empty; it has the keys tools and servers")
	case err == nil:
		if err = in.Decode(&more); err == nil {
			return nil, fmt.Errorf("line %d: the file has more than one document; put all tools and servers into one",
				more.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it is no YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	nodes := maxNodes
	v, err := value(&doc, 0, &nodes)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// surrogates are the escapes of JSON for characters beyond the first 65,536, two for each, which YAML does not have;
// and a backslash that is escaped, so that what follows it is not taken for one.
var surrogates = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)

// decoded is the character of two escapes.
func decoded(escapes []byte) []byte {
	var char string
	if json.Unmarshal([]byte(`"`+string(escapes)+`"`), &char) != nil || char == `\` {
		return escapes
	}
	return []byte(char)
}

// value is a node as JSON has it. What JSON has no word for is an error, not a guess.
func value(n *yaml.Node, depth int, left *int) (any, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...))
	}
	if *left--; *left < 0 {
		return nil, bad("the file has more than %d values", maxNodes)
	}
	if depth > maxDepth {
		return nil, bad("it nests deeper than %d levels", maxDepth)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) != 1 {
			return nil, bad("the file has no single document")
		}
		return value(n.Content[0], depth, left)
	case yaml.AliasNode:
		return value(n.Alias, depth+1, left)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := value(item, depth+1, left)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
				return nil, fmt.Errorf("line %d: a key is a plain word; write the keys out", key.Line)
			}
			if _, ok := out[key.Value]; ok {
				return nil, fmt.Errorf("line %d: the key %q stands there twice", key.Line, key.Value)
			}
			v, err := value(n.Content[i+1], depth+1, left)
			if err != nil {
				return nil, err
			}
			out[key.Value] = v
		}
		return out, nil
	case yaml.ScalarNode:
		return scalar(n, bad)
	}
	return nil, bad("it is no YAML that a manifest can have")
}

func scalar(n *yaml.Node, bad func(string, ...any) error) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!str", "!!timestamp": // a date is what was written
		return n.Value, nil
	case "!!bool":
		b, err := strconv.ParseBool(strings.ToLower(n.Value))
		if err != nil {
			return nil, bad("%q is neither true nor false", n.Value)
		}
		return b, nil
	case "!!int":
		i, err := strconv.ParseInt(n.Value, 0, 64)
		if err != nil {
			return nil, bad("%q is no whole number of 64 bits", n.Value)
		}
		return i, nil
	case "!!float":
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, bad("%q is no number", n.Value)
		}
		return f, nil
	}
	return nil, bad("a value of the kind %s cannot stand in a manifest", n.ShortTag())
}
