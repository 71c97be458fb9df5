package tool_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

type (
	base struct {
		ID int `json:"id" jsonschema:"which one"`
	}
	// Base and the others are exported, as types that are embedded under a name must be.
	Base struct {
		ID int `json:"id"`
	}
	One   struct{ ID int }
	Other struct{ ID bool }
	Word  string
	// Gone has what no schema can be derived from.
	Gone struct{ C chan int }
	// Loop embeds a type that holds it again.
	Loop  struct{ Round }
	Round struct {
		Next []Loop `json:"next"`
	}
)

// fieldsOf are the fields of the schema that is derived from a type, a "?" behind those that may be left out. It makes
// sure that a value of the type, once it is JSON, fits the schema and is read again as it was.
func fieldsOf[In any](t *testing.T, in In) []string {
	t.Helper()
	var got In
	made, err := tool.New(tool.Typed[In, string]{
		Declaration: tool.Declaration{Name: "t", Description: "Does it.",
			Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true},
		Run: func(_ context.Context, _ tool.Env, in In) (string, error) { got = in; return "", nil },
	})
	if err != nil {
		t.Errorf("%T: %v", in, err)
		return nil
	}
	var s jsonschema.Schema
	must.OK(t, json.Unmarshal(made.InputSchema, &s))
	input := must.JSON(t, in)
	whole, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%T: %v", in, err)
	}
	var value any
	must.OK(t, json.Unmarshal(input, &value))
	if err := whole.Validate(value); err != nil {
		t.Errorf("%T: its schema %s refuses %s: %v", in, made.InputSchema, input, err)
	}
	if _, err := made.Run(t.Context(), tool.Env{}, input); err != nil || !reflect.DeepEqual(got, in) {
		t.Errorf("%T: %s was read as %+v, want %+v (%v)", in, input, got, in, err)
	}
	var out []string
	for name := range s.Properties {
		if !slices.Contains(s.Required, name) {
			name += "?"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	if slices.Sort(s.Required); len(slices.Compact(s.Required)) != len(s.Required) {
		t.Errorf("%T: its schema requires a field twice: %q", in, s.Required)
	}
	return out
}

// TestTheFieldsOfASchemaAreThoseThatAreRead: where a struct embeds types, its schema has the fields that encoding/json
// reads. A field that only the schema has would be filled in by the model and lost.
func TestTheFieldsOfASchemaAreThoseThatAreRead(t *testing.T) {
	t.Parallel()
	type named struct {
		Base `json:"base"`
		N    int `json:"n,omitempty"`
	}
	for what, tt := range map[string]struct{ got, want []string }{
		"embedded": {fieldsOf(t, struct {
			base
			N int
		}{base{1}, 2}), []string{"N", "id"}},
		"embedded under a name": {fieldsOf(t, named{Base{1}, 2}), []string{"base", "n?"}},
		"embedded and left out": {fieldsOf(t, struct {
			Base `json:"-"`
			N    int
		}{N: 2}), []string{"N"}},
		"a pointer": {fieldsOf(t, struct{ *Base }{&Base{1}}), []string{"id"}},
		"no struct": {fieldsOf(t, struct {
			Word
			N int `json:",omitempty"`
		}{"w", 2}), []string{"N?", "Word"}},
		"an outer field of the name": {fieldsOf(t, struct {
			Name string `json:"id"`
			Base
		}{Name: "a"}), []string{"id"}},
		"two inner fields of one name": {fieldsOf(t, struct {
			One
			Other
			N int
		}{N: 2}), []string{"N"}},
		"inside others": {fieldsOf(t, struct{ All map[string][]*named }{map[string][]*named{"a": {{Base{1}, 2}}}}),
			[]string{"All"}},
		"what is not read": {fieldsOf(t, struct {
			base
			Left Gone `json:"-"`
		}{base: base{1}}), []string{"id"}},
		"a name that none can have": {fieldsOf(t, struct {
			//lint:ignore SA5008 it is what is tested
			N int `json:"user's"`
		}{1}), []string{"N"}},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s: the fields of the schema are %q, want %q", what, tt.got, tt.want)
		}
	}
}

// TestEmbeddedTypesKeepWhatTheirTagsSay: a field of an embedded type is described to the model as its tag says.
func TestEmbeddedTypesKeepWhatTheirTagsSay(t *testing.T) {
	t.Parallel()
	made, err := tool.New(tool.Typed[struct{ base }, string]{
		Declaration: tool.Declaration{Name: "t", Description: "Does it."},
		Run:         func(context.Context, tool.Env, struct{ base }) (string, error) { return "", nil },
	})
	if err != nil || !strings.Contains(string(made.InputSchema), "which one") {
		t.Errorf("the schema is %s (%v)", made.InputSchema, err)
	}
}

type (
	// Whole reads its JSON itself, and Text is read from a text.
	Whole struct{ A string }
	Text  struct{ A string }
	// Part and Deep have the method of a type that they embed.
	Part struct {
		Whole
		N int
	}
	Deep struct {
		Part
		M int
	}
	// Own has a method of its own, and Same nothing beside the type whose method it has.
	Own struct {
		Whole
		N int
	}
	Same struct{ Whole }
	// Lines is read from a text by itself.
	Lines  struct{ N int }
	Shapes interface{ Area() float64 }
)

func (w *Whole) UnmarshalJSON(text []byte) error {
	var in struct{ A string }
	err := json.Unmarshal(text, &in)
	w.A = in.A
	return err
}

func (o *Own) UnmarshalJSON(text []byte) error {
	var in struct {
		A string
		N int
	}
	err := json.Unmarshal(text, &in)
	o.A, o.N = in.A, in.N
	return err
}

func (x *Text) UnmarshalText(text []byte) error {
	x.A = string(text)
	return nil
}

func (x *Lines) UnmarshalText([]byte) error { return nil }

// TestTypesThatCannotBeRead: the author of a type is told that calls would lose a field of it, or be refused.
func TestTypesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		err  error
		says string
	}{
		"the method of an embedded type": {newErr[Part](), "embeds tool_test.Whole"},
		"of one that embeds another":     {newErr[Deep](), "embeds tool_test.Part"},
		"of one beside a field": {newErr[struct {
			Whole
			N int
		}](), "embeds tool_test.Whole"},
		"of one that is nil": {newErr[struct{ *Whole }](), "embeds *tool_test.Whole"},
		"an embedded text":   {newErr[struct{ Text }](), "read from a text"},
		"a text":             {newErr[Lines](), "read from a text"},
		"an interface":       {newErr[struct{ S Shapes }](), "tool_test.Shapes is an interface"},
		"a list of them":     {newErr[struct{ In struct{ S []*Shapes } }](), "tool_test.Shapes is an interface"},
		"a map of them":      {newErr[struct{ S map[string]Shapes }](), "tool_test.Shapes is an interface"},
		"a pointer to base":  {newErr[struct{ *base }](), "embeds *tool_test.base"},
		"one inside another": {newErr[struct{ In []struct{ *base } }](), "embeds *tool_test.base"},
		"one that is deep":   {newErr[struct{ Base2 }](), "embeds *tool_test.base"},
		"fine: its own":      {newErr[Own](), ""},
		"fine: nothing else": {newErr[Same](), ""},
		"fine: fields":       {newErr[struct{ P Part }](), ""},
		"fine: any value":    {newErr[struct{ V any }](), ""},
		"fine: not read": {newErr[struct {
			base
			S Shapes `json:"-"`
		}](), ""},
	} {
		if (tt.err == nil) != (tt.says == "") || tt.err != nil && !strings.Contains(tt.err.Error(), tt.says) {
			t.Errorf("%s: %v, want an error with %q", what, tt.err, tt.says)
		}
	}
}

// Base2 embeds what cannot be read.
type Base2 struct{ *base }

// TestTypesWithoutASchema: the author of a type that no schema can be derived from is told so.
func TestTypesWithoutASchema(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		err  error
		says string
	}{
		"a type inside itself":        {newErr[Loop](), "cycle"},
		"one that reads all the JSON": {newErr[struct{ time.Time }](), "embeds time.Time"},
		"a channel": {newErr[struct {
			Base
			Gone Gone
		}](), "chan"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.says) || strings.Contains(tt.err.Error(), "F0") {
			t.Errorf("%s: %v, want an error with %q", what, tt.err, tt.says)
		}
	}
}

func newErr[In any]() error {
	_, err := tool.New(tool.Typed[In, string]{Declaration: tool.Declaration{Name: "t", Description: "Does it."},
		Run: func(context.Context, tool.Env, In) (string, error) { return "", nil }})
	return err
}
