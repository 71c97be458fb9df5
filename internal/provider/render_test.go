package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// resultsOf makes a result for each call: every third one failed.
func resultsOf(calls []toolyard.Call) []toolyard.Result {
	results := make([]toolyard.Result, len(calls))
	for i, c := range calls {
		results[i] = toolyard.Result{Index: i, CallID: c.ID, Tool: c.Tool, Echo: c.Echo, Output: fmt.Sprintf("output %d", i), Phases: []toolyard.Fact{}}
		if i%3 == 2 {
			results[i].IsError, results[i].Code = true, toolyard.SchemaValidationFailed
			results[i].Output, results[i].Error = "", fmt.Sprintf("error %d", i)
		}
	}
	return results
}

type example struct {
	file   string
	format Format
	calls  []string // tool and id
	broken int      // the call whose arguments are wrong, -1 for none
}

// examples are the inputs under examples/, which the readme and the acceptance tests hand to the commands.
var examples = []example{
	{"explore.json", Native, []string{"glob list-commands", "grep find-mains", "read_file read-go-mod", "bash go-version", "bash list-files", "write_file write-notes",
		"read_file read-notes", "grep find-todo", "summarize_repository summarize", "read_file read-architecture"}, -1},
	{"escape.json", Native, []string{"bash read-shadow", "bash reach-network", "bash reach-neighbour", "bash write-hook", "bash write-editor-task", "bash fork-bomb",
		"bash eat-memory", "bash flood-output", "bash outlive-timeout", "bash look-for-it"}, -1},
	{"tools.json", Native, []string{"count_words call_1", "todo_list call_2", "count_words call_3"}, -1},
	{"anthropic-message.json", Anthropic, []string{"read_file toolu_01A7pVbTsq5dKxRnYw3CmJ8e", "glob toolu_01BvN9hXqGz4LwUe6TrS2kPd",
		"grep toolu_01CrM3yEfJ8uQaHt5WzD7nVx", "grep toolu_01DkT6sLcB2mPgXi9FvY4oRj"}, 2},
	{"openai-response.json", OpenAI, []string{"read_file call_7GkQx2LmWnRt5YvBz8HdCsPe", "glob call_Jw4ZpVf9TqKs3NyXb6MgUaRh",
		"read_file call_Dc8RtEo1LiFu6QwHk3SmVxNz", "grep call_Ub5XnGy7PjCv2ZaOd9TrLeKw"}, 2},
	{"openai-chat-completion.json", OpenAIChat, []string{"glob call_v5KdRmXw8ZtHqPyNc3LgSbJa", "grep call_f2TnQeYo6UiVrBkMx9WzDhCl",
		"read_file call_p7GsAjLu4FwEtXdOv1RyKnZm"}, 1},
	{"gemini-response.json", Gemini, []string{"read_file toolyard_call_1", "grep toolyard_call_2", "read_file toolyard_call_3", "glob toolyard_call_4"}, 2},
}

func readExample(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// Other inputs (configuration, say) may come to lie here; what decodes as a batch is to be in the table.
		name := filepath.Base(file)
		listed := slices.ContainsFunc(examples, func(e example) bool { return e.file == name })
		if _, _, err := Decode(readExample(t, name), ""); err == nil && !listed {
			t.Errorf("%s is a batch that no test looks at", name)
		}
	}
	for _, example := range examples {
		t.Run(example.file, func(t *testing.T) {
			data := readExample(t, example.file)
			batch, format, err := Decode(data, "")
			if err != nil || format != example.format {
				t.Fatalf("%q, %v", format, err)
			}
			batch.Normalize("b")
			if err := batch.Validate(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range batch.Calls {
				got = append(got, c.Tool+" "+c.ID)
			}
			if !slices.Equal(got, example.calls) {
				t.Errorf("\n got %q\nwant %q", got, example.calls)
			}
			checkInputs(t, batch.Calls, example.broken)
			if format != Native {
				roundTrip(t, format, data, batch.Calls)
			}
		})
	}
}

// builtins are the fields of the tools that the examples use, as API.md names those of the built-in ones, each with its JSON type.
var builtins = map[string]map[string]string{
	"read_file":            {"file_path": "string", "offset": "float64", "limit": "float64"},
	"glob":                 {"pattern": "string", "path": "string"},
	"grep":                 {"pattern": "string", "path": "string", "glob": "string", "ignore_case": "bool", "context": "float64"},
	"bash":                 {"command": "string", "timeout_ms": "float64", "description": "string"},
	"write_file":           {"file_path": "string", "content": "string"},
	"summarize_repository": {"depth": "float64"}, // no such tool
	"count_words":          {"path": "string"},   // of examples/tools.yaml
	"todo_list":            {"marker": "string"},
}

func checkInputs(t *testing.T, calls []toolyard.Call, broken int) {
	for i, c := range calls {
		var input map[string]any
		wrong := json.Unmarshal(c.Input, &input) != nil
		for name, value := range input {
			wrong = wrong || builtins[c.Tool][name] != fmt.Sprintf("%T", value)
		}
		if wrong != (i == broken) {
			t.Errorf("the input of call %d (%s) is wrong: %t, want %t: %s", i, c.Tool, wrong, i == broken, c.Input)
		}
	}
}

// roundTrip holds our reading of a response equal to its SDK's, and what we send back to what it asked.
func roundTrip(t *testing.T, format Format, data []byte, calls []toolyard.Call) {
	theirs, err := sdkCalls(format, data)
	if err != nil {
		t.Fatal(err)
	}
	results := resultsOf(calls)
	rendered, err := Render(format, calls, results)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := sdkAnswers(format, rendered)
	if err != nil {
		t.Fatal(err)
	}
	if len(theirs) != len(calls) || len(answers) != len(calls) {
		t.Fatalf("%d calls, the SDK reads %d, and %d answers", len(calls), len(theirs), len(answers))
	}
	for i, c := range calls {
		if theirs[i].Tool != c.Tool || theirs[i].ID != c.ID && theirs[i].ID != "" {
			t.Errorf("call %d: the SDK reads %+v, we %s %s", i, theirs[i], c.ID, c.Tool)
		}
		if a := answers[i]; a.ID != theirs[i].ID || a.Tool != "" && a.Tool != c.Tool {
			t.Errorf("answer %d: %+v to call %+v", i, a, theirs[i])
		}
		if want := results[i].Output + results[i].Error; answers[i].Input != want {
			t.Errorf("answer %d: %q, want %q", i, answers[i].Input, want)
		}
		if flag := format == Anthropic || format == Gemini; answers[i].IsError != (flag && results[i].IsError) {
			t.Errorf("answer %d: error flag %t", i, answers[i].IsError)
		}
	}
}

func TestRender(t *testing.T) {
	calls := []toolyard.Call{{ID: "a", Tool: "grep"}, {ID: "b", Tool: "nope"}}
	results := []toolyard.Result{{Index: 0, CallID: "a", Output: "found"}, {Index: 1, CallID: "b", IsError: true, Code: toolyard.UnknownTool, Error: "no such tool"}}
	for format, want := range map[Format]string{
		Anthropic: `{"content":[{"tool_use_id":"a","content":[{"text":"found","type":"text"}],"type":"tool_result"},` +
			`{"tool_use_id":"b","is_error":true,"content":[{"text":"no such tool","type":"text"}],"type":"tool_result"}],"role":"user"}`,
		OpenAI:     `[{"output":"found","call_id":"a","type":"function_call_output"},{"output":"no such tool","call_id":"b","type":"function_call_output"}]`,
		OpenAIChat: `[{"content":"found","tool_call_id":"a","role":"tool"},{"content":"no such tool","tool_call_id":"b","role":"tool"}]`,
		Gemini: `{"role":"user","parts":[{"functionResponse":{"id":"a","name":"grep","response":{"output":"found"}}},` +
			`{"functionResponse":{"id":"b","name":"nope","response":{"error":"no such tool"}}}]}`,
	} {
		if got, err := Render(format, calls, results); err != nil || string(got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", format, err, got, want)
		}
	}
	if got, err := Render(Native, calls, results); err != nil || !strings.HasPrefix(string(got), "[\n  {\n    \"index\": 0,") {
		t.Errorf("native: %s, %v", got, err)
	}
	for _, format := range Formats {
		if _, err := Render(format, calls, results[:1]); err == nil {
			t.Errorf("%s: a missing result was rendered", format)
		}
		if _, err := Render(format, calls, []toolyard.Result{results[1], results[0]}); err == nil {
			t.Errorf("%s: results in the wrong order were rendered", format)
		}
	}
	_, err := Render("yaml", calls, results)
	if _, ok := errors.AsType[*toolyard.InputError](err); !ok {
		t.Errorf("an unknown format: %v", err)
	}
}
