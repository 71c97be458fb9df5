package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxDepth is how deep a file may nest, maxNodes how many values it may have once its aliases stand for what they mean,
// and maxDigits how long a whole number may be.
const (
	maxDepth  = 100
	maxNodes  = 200_000
	maxDigits = 100
)

// toJSON reads YAML, of which JSON is a part, as JSON.
func toJSON(data []byte) ([]byte, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("the file has %d bytes; at most %d are allowed", len(data), MaxFileBytes)
	}
	if json.Valid(data) {
		data = surrogates.ReplaceAllFunc(data, decoded)
	}
	var doc yaml.Node
	switch err := OnlyDocument(yaml.NewDecoder(bytes.NewReader(data)), &doc); {
	case errors.Is(err, errDocuments):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("it is no YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
	case doc.Kind == 0:
		return nil, fmt.Errorf("the file is empty; it has the keys tools and servers")
	}
	nodes := maxNodes
	var out bytes.Buffer
	if err := value(&out, &doc, 0, &nodes); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// errDocuments is what [OnlyDocument] finds.
var errDocuments = errors.New("the file has more than one document; put all into one")

// OnlyDocument decodes a file of one document, or of none. What a further one says would have no effect, although its
// author thinks otherwise. One that says nothing, as behind a last line of ---, does no harm.
func OnlyDocument(d *yaml.Decoder, to any) error {
	err := d.Decode(to)
	for err == nil {
		var more yaml.Node
		if err = d.Decode(&more); err == nil && !saysNothing(&more) {
			return fmt.Errorf("line %d: %w", more.Line, errDocuments)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if misfits, ok := errors.AsType[*yaml.LoadErrors](err); ok {
		return errors.New(inWords(misfits.Error()))
	}
	return err
}

// The library's sentences about what does not fit the type in Go that a file is read into.
var (
	misfit     = regexp.MustCompile("cannot construct !!([a-z]+)( `[^`]*`)? into ([^;]+)")
	unknownKey = regexp.MustCompile("field (.*?) not found in type [^;]+")
)

// inWords is such an error for the author of the file, who knows nothing of types in Go.
func inWords(text string) string {
	text = strings.TrimPrefix(text, "yaml: construct errors: ")
	text = unknownKey.ReplaceAllString(text, "the key $1 is not known")
	return misfit.ReplaceAllStringFunc(text, func(found string) string {
		part := misfit.FindStringSubmatch(found)
		want, got := "keys with values", "the value"+part[2]
		switch {
		case strings.HasPrefix(part[3], "[]"):
			want = "a list"
		case part[3] == "string":
			want = "a text"
		}
		switch part[1] {
		case "seq":
			got = "a list"
		case "map":
			got = "keys with values"
		}
		return "want " + want + ", got " + got
	})
}

// saysNothing reports whether a document is empty, but for comments.
func saysNothing(doc *yaml.Node) bool {
	return !slices.ContainsFunc(doc.Content, func(n *yaml.Node) bool {
		return n.Kind != yaml.ScalarNode || n.Tag != "!!null"
	})
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

// value writes a node as JSON has it, with the keys in their order: a model fills in fields in that of the schema. What
// JSON has no word for is an error, not a guess.
func value(out *bytes.Buffer, n *yaml.Node, depth int, left *int) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...))
	}
	if *left--; *left < 0 {
		return bad("the file has more than %d values", maxNodes)
	}
	if depth > maxDepth {
		return bad("it nests deeper than %d levels", maxDepth)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) != 1 {
			return bad("the file has no single document")
		}
		return value(out, n.Content[0], depth, left)
	case yaml.AliasNode:
		return value(out, n.Alias, depth+1, left)
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := value(out, item, depth+1, left); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	case yaml.MappingNode:
		return mapping(out, n, depth, left)
	case yaml.ScalarNode:
		v, err := scalar(n, bad)
		if err != nil {
			return err
		}
		return word(out, v)
	}
	return bad("it is no YAML that a manifest can have")
}

func mapping(out *bytes.Buffer, n *yaml.Node, depth int, left *int) error {
	seen := map[string]bool{}
	out.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return fmt.Errorf("line %d: a key is a plain word; write the keys out", key.Line)
		}
		if seen[key.Value] {
			return fmt.Errorf("line %d: the key %q stands there twice", key.Line, key.Value)
		}
		seen[key.Value] = true
		if i > 0 {
			out.WriteByte(',')
		}
		if err := word(out, key.Value); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := value(out, n.Content[i+1], depth+1, left); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// word writes a single value.
func word(out *bytes.Buffer, v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		_, err = out.Write(raw)
	}
	return err
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
	case "!!int", "!!float": // YAML calls a whole number beyond 64 bits a float
		if i, ok := new(big.Int).SetString(n.Value, 0); ok && len(n.Value) <= maxDigits {
			return json.Number(i.String()), nil
		}
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || n.ShortTag() == "!!int" {
			return nil, bad("%q is no number of at most %d digits", n.Value, maxDigits)
		}
		return f, nil
	}
	return nil, bad("a value of the kind %s cannot stand in a manifest", n.ShortTag())
}
