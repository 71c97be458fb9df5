package hooks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// answer is what one hook answered. The zero answer says nothing.
type answer struct {
	// objects says that the answer itself objects, not only the exit status.
	block, stop, objects bool

	reason  string // of a block, a stop or an opinion
	opinion pipeline.Behavior
	input   json.RawMessage // replaces the whole input
	output  *string         // replaces the output
	context string          // for the model
	note    string          // for the operator
}

// The fields of hookSpecificOutput, by event.
var specificFields = map[Event][]string{
	PreToolUse:         {"permissionDecision", "permissionDecisionReason", "updatedInput", "additionalContext"},
	PostToolUse:        {"additionalContext", "updatedToolOutput", "updatedMCPToolOutput"},
	PostToolUseFailure: {"additionalContext"},
	PostToolBatch:      {"additionalContext"},
}

// topFields are the fields beside hookSpecificOutput, for every event.
var topFields = []string{"continue", "stopReason", "suppressOutput", "systemMessage", "terminalSequence", "decision",
	"reason"}

// isObject reports whether a hook's text is intended as JSON.
func isObject(text string) bool { return strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") }

// fromExit reads a command's answer from its exit status and output. It is pure.
func fromExit(event Event, status int, stdout, stderr string) (answer, error) {
	stdout, stderr = strings.TrimSpace(stdout), strings.TrimSpace(stderr)
	const blocks = 2
	switch {
	case status == blocks:
		a, err := answer{}, error(nil)
		if isObject(stdout) {
			a, err = fromJSON(event, []byte(stdout))
		}
		if err != nil { // it blocks anyway
			a = answer{note: "its output on stdout was not read: " + err.Error()}
		}
		if !a.objects && !a.stop {
			if a.opinion != pipeline.Deny || a.reason == "" {
				a.reason = stderr
			}
			a = objection(event, a)
		}
		a.opinion = ""
		return a, nil
	case isObject(stdout):
		return fromJSON(event, []byte(stdout))
	case status == 0:
		return answer{}, nil
	}
	first, _, _ := strings.Cut(stderr, "\n")
	if first == "" {
		return answer{}, fmt.Errorf("exit status %d, and nothing on stderr", status)
	}
	return answer{}, fmt.Errorf("exit status %d: %s", status, clip(first, MaxNoteChars))
}

// objection turns an answer into a block, as far as there is something to block: a tool that has run has run, and the
// model reads the reason beside the output.
func objection(event Event, a answer) answer {
	if a.reason == "" {
		a.reason = "no reason was given"
	}
	a.reason = clip(a.reason, MaxReasonChars)
	switch event {
	case PreToolUse:
		a.block = true
	case PostToolBatch:
		a.stop = true
	default:
		if !a.stop {
			a.context = paragraphs(a.reason, a.context)
			a.reason = ""
		}
	}
	return a
}

// fromJSON reads an answer in JSON. A known field in the wrong place is an error, since the hook relies on it. An
// unknown field is ignored.
func fromJSON(event Event, data []byte) (answer, error) {
	var a answer
	if err := strictjson.Check(data); err != nil {
		return a, err
	}
	top, err := strictjson.ReadObject("", data)
	if err != nil {
		return a, err
	}
	for _, fields := range specificFields {
		for _, f := range fields {
			if top.Given(f) {
				return a, strictjson.Errorf(f, "belongs into hookSpecificOutput")
			}
		}
	}
	stopReason, err := top.OptionalString("stopReason")
	if err != nil {
		return a, err
	}
	if a.note, err = top.OptionalString("systemMessage"); err != nil {
		return a, err
	}
	if _, err := top.OptionalBool("suppressOutput"); err != nil { // ignored: there is no transcript
		return a, err
	}
	if err := a.readDecision(event, top); err != nil {
		return a, err
	}
	if top.Given("hookSpecificOutput") {
		specific, err := top.Object("hookSpecificOutput")
		if err != nil {
			return a, err
		}
		if err := a.readSpecific(event, specific); err != nil {
			return a, err
		}
	}
	if a.objects {
		a = objection(event, a)
	}
	if top.Given("continue") {
		goOn, err := top.OptionalBool("continue")
		if err != nil {
			return a, err
		}
		if !goOn {
			a.stop = true
			if stopReason != "" {
				a.reason = stopReason
			}
		}
	}
	a.reason, a.note = clip(a.reason, MaxReasonChars), clip(a.note, MaxNoteChars)
	return a, nil
}

// readDecision reads the fields decision and reason, the oldest form in Claude Code.
func (a *answer) readDecision(event Event, top strictjson.Object) error {
	decision, err := top.OptionalString("decision")
	if err != nil {
		return err
	}
	if a.reason, err = top.OptionalString("reason"); err != nil {
		return err
	}
	switch decision {
	case "block":
		a.objects = true
	case "":
	case "approve":
		if event == PreToolUse {
			a.opinion = pipeline.Allow
		}
	default:
		return strictjson.Errorf("decision", "%s is not known; there are block and approve", strictjson.Quote(decision))
	}
	return nil
}

func (a *answer) readSpecific(event Event, o strictjson.Object) error {
	if err := o.Expect("hookEventName", string(event)); err != nil {
		return err
	}
	for _, name := range o.Names() {
		switch {
		case !o.Given(name), slices.Contains(specificFields[event], name):
		case slices.Contains(topFields, name):
			return strictjson.Errorf(o.At(name), "belongs beside hookSpecificOutput, not into it")
		default:
			for _, other := range events {
				if slices.Contains(specificFields[other], name) {
					return strictjson.Errorf(o.At(name), "is not for a hook on %s: it was not given that to change",
						event)
				}
			}
		}
	}
	decision, err := o.OptionalString("permissionDecision")
	if err != nil {
		return err
	}
	switch decision {
	case "":
	case "allow", "deny", "ask":
		a.opinion = pipeline.Behavior(decision)
	case "defer": // nothing here can be put off to another run: a person is asked
		a.opinion = pipeline.Ask
	default:
		return strictjson.Errorf(o.At("permissionDecision"), "%s is not known; there are allow, deny and ask",
			strictjson.Quote(decision))
	}
	reason, err := o.OptionalString("permissionDecisionReason")
	if err != nil {
		return err
	}
	if reason != "" {
		a.reason = reason
	}
	if a.context, err = o.OptionalString("additionalContext"); err != nil {
		return err
	}
	if o.Given("updatedInput") {
		if _, err := o.Object("updatedInput"); err != nil {
			return err
		}
		a.input = o.Value("updatedInput")
	}
	for _, field := range []string{"updatedMCPToolOutput", "updatedToolOutput"} { // the second overrides the first
		if o.Given(field) {
			text, err := outputText(o.At(field), o.Value(field))
			if err != nil {
				return err
			}
			a.output = &text
		}
	}
	return nil
}

// outputText reads an output that replaces the tool's: a text; an object like the one that the hook got, with stdout
// and stderr or with output; or content blocks, as MCP tools have them.
func outputText(at string, raw json.RawMessage) (string, error) {
	switch strictjson.Kind(raw) {
	case "string":
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", strictjson.Errorf(at, "is not JSON: %v", err)
		}
		return text, nil
	case "array":
		blocks, err := strictjson.ReadArray(at, raw)
		if err != nil {
			return "", err
		}
		var texts []string
		for i, b := range blocks {
			block, err := strictjson.ReadObject(strictjson.Item(at, i), b)
			if err != nil {
				return "", err
			}
			if kind := block.Text("type"); kind != "text" {
				return "", strictjson.Errorf(block.At("type"), "want \"text\", got %s: results here are text",
					strictjson.Quote(kind))
			}
			text, err := block.String("text")
			if err != nil {
				return "", err
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, "\n"), nil
	case "object":
		o, err := strictjson.ReadObject(at, raw)
		if err != nil {
			return "", err
		}
		switch {
		case o.Has("stdout"):
			out, err := o.String("stdout")
			if err != nil {
				return "", err
			}
			errs, err := o.OptionalString("stderr")
			if err != nil {
				return "", err
			}
			if out != "" && errs != "" && !strings.HasSuffix(out, "\n") {
				out += "\n"
			}
			return out + errs, nil
		case o.Has("output"):
			return o.String("output")
		case o.Has("content"):
			return outputText(o.At("content"), o.Value("content"))
		}
	}
	return "", strictjson.Errorf(at, "want a text, an object with stdout or output, or blocks of text")
}

// clip cuts a text to limit characters.
func clip(text string, limit int) string {
	n := 0
	for i := range text {
		if n == limit {
			return text[:i] + "…"
		}
		n++
	}
	return text
}

func paragraphs(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n\n")
}
