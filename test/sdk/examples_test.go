package sdk

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// The least documents of each form.
const (
	nativeDoc    = `{"calls":[{"tool":"grep"}]}`
	anthropicDoc = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"grep","input":{}}]}`
	openaiDoc    = `[{"type":"function_call","call_id":"a","name":"grep","arguments":"{}"}]`
	chatDoc      = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"grep","arguments":"{}"}}]}`
	geminiDoc    = `{"role":"model","parts":[{"functionCall":{"name":"grep","args":{}}}]}`
)

// resultsOf makes a result for each call: every third one failed.
func resultsOf(calls []toolyard.Call) []toolyard.Result {
	results := make([]toolyard.Result, len(calls))
	for i, c := range calls {
		results[i] = toolyard.Result{Index: i, CallID: c.ID, Tool: c.Tool, Echo: c.Echo,
			Output: fmt.Sprintf("output %d", i), Phases: []toolyard.Fact{}}
		if i%3 == 2 {
			results[i].IsError, results[i].Code = true, toolyard.SchemaValidationFailed
			results[i].Output, results[i].Error = "", fmt.Sprintf("error %d", i)
		}
	}
	return results
}

type example struct {
	file   string
	format provider.Format
	calls  []string // tool and id
	broken int      // the call whose arguments are wrong, -1 for none
}

// examples are the inputs under examples/, which the readme and the acceptance tests hand to the commands.
var examples = []example{
	{"explore.json", provider.Native, []string{"glob list-commands", "grep find-mains", "read_file read-go-mod",
		"bash go-version", "bash list-files", "write_file write-notes",
		"read_file read-notes", "grep find-todo", "summarize_repository summarize", "read_file read-architecture"}, -1},
	{"escape.json", provider.Native, []string{"bash read-shadow", "bash reach-network", "bash reach-neighbour",
		"bash write-hook", "bash write-editor-task", "bash fork-bomb",
		"bash eat-memory", "bash flood-output", "bash outlive-timeout", "bash look-for-it"}, -1},
	{"script.json", provider.Native, []string{"run_code call_1"}, -1},
	{"tools.json", provider.Native, []string{"count_words call_1", "todo_list call_2", "count_words call_3"}, -1},
	{"anthropic-message.json", provider.Anthropic, []string{"read_file toolu_01A7pVbTsq5dKxRnYw3CmJ8e",
		"glob toolu_01BvN9hXqGz4LwUe6TrS2kPd",
		"grep toolu_01CrM3yEfJ8uQaHt5WzD7nVx", "grep toolu_01DkT6sLcB2mPgXi9FvY4oRj"}, 2},
	{"openai-response.json", provider.OpenAI, []string{"read_file call_7GkQx2LmWnRt5YvBz8HdCsPe",
		"glob call_Jw4ZpVf9TqKs3NyXb6MgUaRh",
		"read_file call_Dc8RtEo1LiFu6QwHk3SmVxNz", "grep call_Ub5XnGy7PjCv2ZaOd9TrLeKw"}, 2},
	{"openai-chat-completion.json", provider.OpenAIChat,
		[]string{"glob call_v5KdRmXw8ZtHqPyNc3LgSbJa", "grep call_f2TnQeYo6UiVrBkMx9WzDhCl",
			"read_file call_p7GsAjLu4FwEtXdOv1RyKnZm"}, 1},
	{"gemini-response.json", provider.Gemini, []string{"read_file toolyard_call_1", "grep toolyard_call_2",
		"read_file toolyard_call_3", "glob toolyard_call_4"}, 2},
}

func readExample(t testing.TB, file string) []byte {
	t.Helper()
	data := must.Read(t, filepath.Join("..", "..", "examples", file))
	return data
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "*.json"))
	must.OK(t, err)
	for _, file := range files {
		// Other inputs (configuration, say) may come to lie here; what decodes as a batch is to be in the table.
		name := filepath.Base(file)
		listed := slices.ContainsFunc(examples, func(e example) bool { return e.file == name })
		if _, _, err := provider.Decode(readExample(t, name), ""); err == nil && !listed {
			t.Errorf("%s is a batch that no test looks at", name)
		}
	}
	for _, example := range examples {
		t.Run(example.file, func(t *testing.T) {
			data := readExample(t, example.file)
			batch, format, err := provider.Decode(data, "")
			if err != nil || format != example.format {
				t.Fatalf("%q, %v", format, err)
			}
			batch.Normalize("b")
			must.OK(t, batch.Validate())
			var got []string
			for _, c := range batch.Calls {
				got = append(got, c.Tool+" "+c.ID)
			}
			if !slices.Equal(got, example.calls) {
				t.Errorf("\n got %q\nwant %q", got, example.calls)
			}
			checkInputs(t, batch.Calls, example.broken)
			if format != provider.Native {
				roundTrip(t, format, data, batch.Calls)
			}
		})
	}
}

// builtins are the fields of the tools that the examples use, as API.md names those of the built-in ones, each with its
// JSON type.
var builtins = map[string]map[string]string{
	"read_file": {"file_path": "string", "offset": "float64", "limit": "float64"},
	"glob":      {"pattern": "string", "path": "string"},
	"grep": {"pattern": "string", "path": "string", "glob": "string", "ignore_case": "bool",
		"context": "float64"},
	"bash":                 {"command": "string", "timeout_ms": "float64", "description": "string"},
	"write_file":           {"file_path": "string", "content": "string"},
	"summarize_repository": {"depth": "float64"}, // no such tool
	"count_words":          {"path": "string"},   // of examples/tools.yaml
	"todo_list":            {"marker": "string"},
	"run_code":             {"code": "string", "language": "string", "timeout_ms": "float64"},
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
func roundTrip(t *testing.T, format provider.Format, data []byte, calls []toolyard.Call) {
	theirs, err := sdkCalls(format, data)
	must.OK(t, err)
	results := resultsOf(calls)
	rendered, err := provider.Render(format, calls, results, nil)
	must.OK(t, err)
	answers, err := sdkAnswers(format, rendered)
	must.OK(t, err)
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
		if flag := format == provider.Anthropic || format == provider.Gemini; answers[i].IsError != (flag &&
			results[i].IsError) {
			t.Errorf("answer %d: error flag %t", i, answers[i].IsError)
		}
	}
}
