package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

type greeting struct {
	Name  string `json:"name" jsonschema:"whom to greet"`
	Times int    `json:"times,omitempty" jsonschema:"how often"`
}

func TestATypedToolDerivesItsSchema(t *testing.T) {
	greet, err := tool.New(tool.Typed[greeting, string]{
		Declaration: tool.Declaration{Name: "greet", Description: "Greets."},
		Run: func(_ context.Context, _ tool.Env, in greeting) (string, error) {
			return "Hello, " +
				in.Name, nil
		},
	})
	must.OK(t, err)
	var schema struct {
		Type       string
		Properties map[string]struct{ Type, Description string }
		Required   []string
	}
	must.OK(t, json.Unmarshal(greet.InputSchema, &schema))
	if schema.Type != "object" || schema.Properties["name"].Description != "whom to greet" ||
		schema.Properties["times"].Type != "integer" ||
		len(schema.Required) != 1 || schema.Required[0] != "name" {
		t.Errorf("the schema is %s", greet.InputSchema)
	}
	out, err := greet.Run(t.Context(), tool.Env{}, json.RawMessage(`{"name":"Ada"}`))
	if err != nil || out.Text != "Hello, Ada" || out.Structured != nil {
		t.Errorf("it gave %+v, %v", out, err)
	}
	if _, err := greet.Run(t.Context(), tool.Env{},
		json.RawMessage(`{"name":5}`)); tool.AsError(err).Code != toolyard.InvalidArguments {
		t.Errorf("input of the wrong type: %v", err)
	}
}

func TestOutputOfOtherTypesIsJSON(t *testing.T) {
	sum, err := tool.New(tool.Typed[struct{}, map[string]int]{
		Declaration: tool.Declaration{Name: "sum", Description: "Sums."},
		Run: func(context.Context, tool.Env, struct{}) (map[string]int, error) {
			return map[string]int{"sum": 3}, nil
		},
	})
	must.OK(t, err)
	out, err := sum.Run(t.Context(), tool.Env{}, json.RawMessage(`{}`))
	if err != nil || out.Text != `{"sum":3}` || string(out.Structured) != out.Text {
		t.Errorf("it gave %+v, %v", out, err)
	}
}

// TestFieldsThatThereAreNot: a declaration that names a field by its name in Go, say, is refused.
func TestFieldsThatThereAreNot(t *testing.T) {
	for want, d := range map[string]tool.Declaration{
		`Specifier.Path names "Name", which is no field of the input; its fields are ["name" "times"]`: {
			Specifier: tool.Specifier{Path: "Name"}},
		`Specifier.URL names "url"`:     {Specifier: tool.Specifier{URL: "url"}},
		`Specifier.Command names "cmd"`: {Specifier: tool.Specifier{Command: "cmd"}},
		`Class.Shell names "cmd"`:       {Class: tool.ClassRule{Shell: "cmd"}},
		"":                              {Specifier: tool.Specifier{Path: "name"}},
	} {
		d.Name, d.Description = "t", "d"
		_, err := tool.New(tool.Typed[greeting, string]{Declaration: d,
			Run: func(context.Context, tool.Env, greeting) (string, error) { return "", nil }})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		_, err = tool.New(tool.Typed[map[string]any, string]{Declaration: d,
			Run: func(context.Context, tool.Env, map[string]any) (string, error) { return "", nil }})
		if err != nil {
			t.Errorf("a map: %v", err)
		}
		for schema, closed := range map[string]bool{
			`{"type":"object","properties":{"name":{}},"additionalProperties":false}`:                             true,
			`{"type":"object","properties":{"name":{}}}`:                                                          false,
			`{"type":"object","properties":{"name":{}},"patternProperties":{"":{}},"additionalProperties":false}`: false,
		} {
			d.InputSchema = json.RawMessage(schema)
			_, err := tool.Raw(tool.Tool{Declaration: d,
				Run: func(context.Context, tool.Env, json.RawMessage) (out tool.Output, err error) { return }})
			if (err == nil) != (want == "" || !closed) {
				t.Errorf("%s: %v, want %q", schema, err, want)
			}
		}
	}
}

// TestBytesAreBase64: a field of bytes is a string for the model, as encoding/json reads it.
func TestBytesAreBase64(t *testing.T) {
	type image struct {
		Data []byte `json:"data"`
	}
	save, err := tool.New(tool.Typed[image, string]{Declaration: tool.Declaration{Name: "save", Description: "Saves."},
		Run: func(_ context.Context, _ tool.Env, in image) (string, error) { return string(in.Data), nil }})
	must.OK(t, err)
	if !strings.Contains(string(save.InputSchema), `"contentEncoding":"base64"`) {
		t.Errorf("the schema is %s", save.InputSchema)
	}
	if out, err := save.Run(t.Context(), tool.Env{}, json.RawMessage(`{"data":"aGk="}`)); err != nil || out.Text != "hi" {
		t.Errorf("it gave %+v, %v", out, err)
	}
}

// TestNumbersOfOtherTypes: a field accepts the numbers that encoding/json reads into it.
func TestNumbersOfOtherTypes(t *testing.T) {
	type in struct {
		Number json.Number `json:"number"`
		Big    big.Int     `json:"big"`
	}
	var got in
	made, err := tool.New(tool.Typed[in, string]{Declaration: tool.Declaration{Name: "t", Description: "d"},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) { got = i; return "", nil }})
	must.OK(t, err)
	for _, want := range []string{`"number":{"type":"number"}`, `"big":{"type":"integer"}`} {
		if !strings.Contains(string(made.InputSchema), want) {
			t.Errorf("%s is not in %s", want, made.InputSchema)
		}
	}
	const many = "123456789012345678901234567890"
	_, err = made.Run(t.Context(), tool.Env{}, json.RawMessage(`{"number":1.50,"big":`+many+`}`))
	if err != nil || got.Number != "1.50" || got.Big.String() != many {
		t.Errorf("%v %s, %v", got.Number, got.Big.String(), err)
	}
	for written, want := range map[string]string{"3.0": "3", "-1e3": "-1000"} { // integers to the schema
		if _, err := made.Run(t.Context(), tool.Env{},
			json.RawMessage(`{"number":1,"big":`+written+`}`)); err != nil || got.Big.String() != want {
			t.Errorf("%s was read as %s (%v)", written, got.Big.String(), err)
		}
	}
	type inner struct {
		Count int `json:"count,omitempty,string"`
	}
	for _, err := range []error{refused[inner](), refused[struct{ inner }](), refused[struct{ List []inner }]()} {
		if err == nil || !strings.Contains(err.Error(), "the field Count of tool_test.inner has the option string") {
			t.Errorf("a field that is read from a string: %v", err)
		}
	}
}

// A level is a number in Go and a word in JSON, and an amount has nothing in it that JSON could show.
type (
	level  int
	amount struct {
		cents int
		Euros int `json:",string"` // nobody reads this tag
	}
	price struct{ amount } // it has the methods of what is embedded
)

func (l *level) UnmarshalJSON(data []byte) error {
	*l = level(slices.Index([]string{`"low"`, `"high"`}, string(data)))
	return nil
}

func (a *amount) UnmarshalJSON(data []byte) (err error) {
	a.cents, err = strconv.Atoi(string(data))
	return err
}

// UnmarshalText is not called by encoding/json beside UnmarshalJSON.
func (*amount) UnmarshalText([]byte) error { return errors.New("called") }

// TestTypesThatReadJSONThemselves: nothing but such a type says what it takes, so that its schema takes anything. What
// the tag says of the field stays.
func TestTypesThatReadJSONThemselves(t *testing.T) {
	type in struct {
		Level level            `json:"level" jsonschema:"low or high"`
		Most  *level           `json:"most,omitempty"`
		Each  []amount         `json:"each"`
		By    map[string]level `json:"by,omitempty"`
		Price price            `json:"price"`
		Time  time.Time        `json:"time"`
	}
	var got in
	made, err := tool.New(tool.Typed[in, string]{Declaration: tool.Declaration{Name: "t", Description: "d"},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) { got = i; return "", nil }})
	must.OK(t, err)
	input := json.RawMessage(`{"level":"high","most":"high","each":[7],"by":{"a":"high"},"price":8,` +
		`"time":"2026-01-02T03:04:05Z"}`)
	if _, err := made.Run(t.Context(), tool.Env{}, input); err != nil || got.Level != 1 || *got.Most != 1 ||
		got.Each[0].cents != 7 || got.By["a"] != 1 || got.Price.cents != 8 || got.Time.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	const anything = `{"type":["null","boolean","object","array","number","string"]`
	for _, want := range []string{
		`"level":` + anything + `,"description":"low or high"}`, `"most":` + anything + `}`,
		`"each":{"type":["null","array"],"items":` + anything + `}}`,
		`"by":{"type":"object","additionalProperties":` + anything + `}}`, `"price":` + anything + `}`,
		`"time":{"type":"string"}`,
	} {
		if !strings.Contains(string(made.InputSchema), want) {
			t.Errorf("%s is not in %s", want, made.InputSchema)
		}
	}
}

// refused is why there is no tool with inputs of a type.
func refused[In any]() error {
	_, err := tool.New(tool.Typed[In, string]{Declaration: tool.Declaration{Name: "t", Description: "d"},
		Run: func(context.Context, tool.Env, In) (string, error) { return "", nil }})
	return err
}

// TestAPointerToAnOutputIsAnOutput, and nil is an empty one.
func TestAPointerToAnOutputIsAnOutput(t *testing.T) {
	for want, out := range map[string]*tool.Output{"text": {Text: "text"}, "": nil} {
		made, err := tool.New(tool.Typed[struct{}, *tool.Output]{
			Declaration: tool.Declaration{Name: "t", Description: "d"},
			Run:         func(context.Context, tool.Env, struct{}) (*tool.Output, error) { return out, nil },
		})
		must.OK(t, err)
		if got, err := made.Run(t.Context(), tool.Env{}, json.RawMessage("{}")); err != nil || got.Text != want ||
			got.Structured != nil {
			t.Errorf("%+v, %v, want %q", got, err, want)
		}
	}
}

// TestWhatIsLeftOutIsStrict: the zero declaration claims nothing.
func TestWhatIsLeftOutIsStrict(t *testing.T) {
	var d tool.Declaration
	j, ok := d.StaticJudgement()
	if !ok || j.Class != toolyard.Unsafe || j.ReadOnly || !j.Destructive || j.Idempotent {
		t.Errorf("the zero declaration is judged %+v", j)
	}
	if !d.NeedsPermission() || !d.NeedsWorkspace() || !d.FailureAbortsSiblings() || d.Timeout() != 2*time.Minute ||
		d.MaxResultChars() != 50_000 {
		t.Error("the zero declaration is not the strictest")
	}
	d = tool.Declaration{Class: tool.ClassRule{Static: "READ-ONLY"}, ReadOnly: true}
	if j, _ := d.StaticJudgement(); j.Class != toolyard.Unsafe {
		t.Errorf("an unknown class is judged %+v", j)
	}
	d = tool.Declaration{Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true}
	if j, _ := d.StaticJudgement(); j.Class != toolyard.ReadOnly || !j.ReadOnly || j.Destructive || !j.Idempotent {
		t.Errorf("a read-only declaration is judged %+v", j)
	}
	for _, rule := range []tool.ClassRule{{Shell: "command"}, {Ask: true}} {
		d = tool.Declaration{Class: rule, ReadOnly: true}
		if j, ok := d.StaticJudgement(); ok {
			t.Errorf("a rule that needs the input was judged without: %+v", j)
		}
	}
}

func TestDeclarationsThatAreNotWhole(t *testing.T) {
	run := func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) { return tool.Output{}, nil }
	good := tool.Tool{Declaration: tool.Declaration{Name: "x", Description: "d",
		InputSchema: json.RawMessage(`{"type":"object"}`)}, Run: run}
	if _, err := tool.Raw(good); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*tool.Tool){
		"Run is nil":        func(t *tool.Tool) { t.Run = nil },
		"name":              func(t *tool.Tool) { t.Name = "" },
		"control character": func(t *tool.Tool) { t.Name = "a\x00" },
		"Description":       func(t *tool.Tool) { t.Description = "" },
		"Class.Static":      func(t *tool.Tool) { t.Class.Static = "SAFE" },
		"beside another": func(t *tool.Tool) {
			t.Class = tool.ClassRule{Shell: "c",
				Static: toolyard.ReadOnly}
		},
		"Judge is nil":       func(t *tool.Tool) { t.Class.Ask = true },
		"MaxResultSizeChars": func(t *tool.Tool) { t.MaxResultSizeChars = -2 },
		"TimeoutMS":          func(t *tool.Tool) { t.TimeoutMS = -1 },
		"IdleTimeoutMS":      func(t *tool.Tool) { t.IdleTimeoutMS = -1 },
		"TimeoutMS is 9223372036854775807; use 0 to": func(t *tool.Tool) { t.TimeoutMS = math.MaxInt64 },
		"IdleTimeoutMS is 4611686018427387904;":      func(t *tool.Tool) { t.IdleTimeoutMS = 1 << 62 },
		"MaxInFlight":                                func(t *tool.Tool) { t.MaxInFlight = -1 },
		"JSON Schema of an obje":                     func(t *tool.Tool) { t.InputSchema = json.RawMessage(`{"type":"string"}`) },
	} {
		bad := good
		spoil(&bad)
		if _, err := tool.Raw(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}

func TestErrorsKeepTheirCauseFromTheModel(t *testing.T) {
	cause := errors.New("password=1")
	err := tool.AsError(tool.Failed(cause, "the query failed"))
	if err.Code != toolyard.ExecutionFailed || err.Message != "the query failed" || !errors.Is(err, cause) {
		t.Errorf("%+v", err)
	}
	if e := tool.AsError(nil); e != nil {
		t.Errorf("no error: %+v", e)
	}
	if e := tool.AsError(cause); e.Code != toolyard.ExecutionFailed || e.Message != "password=1" {
		t.Errorf("%+v", e)
	}
}

// TestCutAmongManySecrets: what a cut shows has as many characters as it may have, and no half of a secret, however
// much shorter the text becomes without its secrets.
func TestCutAmongManySecrets(t *testing.T) {
	secrets := regexp.MustCompile(`<7{30,}>`)
	env := tool.Env{Redact: func(text string) string { return secrets.ReplaceAllString(text, "[redacted]") }}
	for _, digits := range []int{30, 300, 1_500} {
		for _, between := range []string{",", ", é", strings.Repeat("word ", 5)} {
			text := strings.Repeat("<"+strings.Repeat("7", digits)+">"+between, 60_000/digits)
			whole := env.Redact(text)
			for _, n := range []int{1, 100, 1_000, 5_000} {
				shown, more := env.Cut(text, n)
				if strings.Contains(shown, "7") || !more {
					t.Errorf("secrets of %d digits with %q between them, %d characters: %q, %t", digits, between, n, shown,
						more)
				}
				if got := utf8.RuneCountInString(shown); got != min(n, utf8.RuneCountInString(whole)) ||
					!strings.HasPrefix(whole, shown) {
					t.Errorf("secrets of %d digits with %q between them, %d characters: %d are shown", digits, between, n,
						got)
				}
			}
		}
	}
}

// TestPartialOutput: what a tool returns beside an error is what it had so far, and nothing is nothing.
func TestPartialOutput(t *testing.T) {
	for want, out := range map[string]string{"half of it": "half of it", "": ""} {
		made, err := tool.New(tool.Typed[struct{}, string]{
			Declaration: tool.Declaration{Name: "t", Description: "d"},
			Run: func(context.Context, tool.Env, struct{}) (string, error) {
				return out,
					errors.New("stopped")
			},
		})
		must.OK(t, err)
		got, err := made.Run(t.Context(), tool.Env{}, json.RawMessage("{}"))
		if err == nil || got.Text != want {
			t.Errorf("%q, %v", got.Text, err)
		}
	}
}

// TestWholeNumbers: what JSON Schema calls an integer is one, however it is written.
func TestWholeNumbers(t *testing.T) {
	type in struct {
		N    int            `json:"n"`
		List []uint8        `json:"list"`
		Map  map[string]int `json:"map"`
		F    float64        `json:"f"`
		Text string         `json:"text"`
		Any  any            `json:"any"`
	}
	var got in
	made, err := tool.New(tool.Typed[in, string]{
		Declaration: tool.Declaration{Name: "t", Description: "d"},
		Check:       func(_ context.Context, _ tool.Env, i in) error { return nil },
		Run:         func(_ context.Context, _ tool.Env, i in) (string, error) { got = i; return "", nil },
	})
	must.OK(t, err)
	const input = `{"n":1.0,"list":[2e1,3.00],"map":{"1.0":-4.0},"f":1.5,"text":"1.0 \\\" 2.0","any":5.0}`
	if err := made.Check(t.Context(), tool.Env{}, json.RawMessage(input)); err != nil {
		t.Error(err)
	}
	if _, err := made.Run(t.Context(), tool.Env{}, json.RawMessage(input)); err != nil {
		t.Fatal(err)
	}
	if want := (in{1, []uint8{20, 3}, map[string]int{"1.0": -4}, 1.5, `1.0 \" 2.0`, 5.0}); !reflect.DeepEqual(got,
		want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, bad := range []string{`{"n":1.5}`, `{"list":[300.0]}`, `{"n":1e400}`, `{"n":1e999999999}`, `{"n":"1.0"}`,
		`{"n":1.0`} {
		if _, err := made.Run(t.Context(), tool.Env{},
			json.RawMessage(bad)); tool.AsError(err).Code != toolyard.InvalidArguments {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
