package api

import (
	"encoding/json"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// Bodies are read by the decoders that the other ways in have too, not by the library: these types describe them.

// Submission is a batch as it is handed in. Its calls stand in one of the five forms.
type Submission struct {
	ID          string          `json:"id,omitempty" doc:"The same id is the same batch: submitting it again runs nothing. One is made when it is left out." maxLength:"128"`
	Agent       string          `json:"agent,omitempty" doc:"Whose batch it is, when no token says so." maxLength:"128"`
	Session     string          `json:"session,omitempty" doc:"The conversation. Default: default." maxLength:"128"`
	Workspace   string          `json:"workspace,omitempty" doc:"Where the calls act. Default: default." maxLength:"128"`
	Interactive bool            `json:"interactive,omitempty" doc:"A person can be asked: calls that need one wait."`
	Open        bool            `json:"open,omitempty" doc:"Calls may be appended until the batch is closed."`
	Calls       []Call          `json:"calls,omitempty" doc:"The calls in the native form." maxItems:"10000"`
	Anthropic   json.RawMessage `json:"anthropic,omitempty" doc:"The calls in an Anthropic assistant message, or a whole Messages response."`
	OpenAI      json.RawMessage `json:"openai,omitempty" doc:"The calls in an OpenAI Responses output, or a whole response."`
	OpenAIChat  json.RawMessage `json:"openai_chat,omitempty" doc:"The calls in an OpenAI Chat Completions assistant message, or a whole completion."`
	Gemini      json.RawMessage `json:"gemini,omitempty" doc:"The calls in a Gemini content, or a whole response."`
	Options     BatchOptions    `json:"options,omitempty" doc:"The batch's own settings."`
}

// Call is one call in the native form.
type Call struct {
	ID    string          `json:"id,omitempty" doc:"The provider's id, which the result has too." maxLength:"128"`
	Tool  string          `json:"tool" doc:"The tool's name as the model wrote it."`
	Input json.RawMessage `json:"input,omitempty" doc:"The tool's input, an object. Default: an empty object."`
	Echo  json.RawMessage `json:"echo,omitempty" doc:"What the provider wants to have back with the result, as an object of its own fields."`
	// Incomplete is for agents that read a model's stream themselves.
	Incomplete bool `json:"incomplete,omitempty" doc:"The model's stream was cut inside the call: it does not run, and ends as incomplete_call."`
}

// BatchOptions are a batch's own settings. Each can only tighten what the operator allows.
type BatchOptions struct {
	Partition      toolyard.Strategy `json:"partition,omitempty" doc:"How calls become groups. Default: consecutive."`
	MaxConcurrency int               `json:"max_concurrency,omitempty" minimum:"1" maximum:"1000" doc:"How many calls are in flight."`
	OnError        toolyard.OnError  `json:"on_error,omitempty" doc:"What a call that fails while executing does to its group. Default: cancel_group."`
	TimeoutMS      int64             `json:"timeout_ms,omitempty" minimum:"1" doc:"Bounds the batch: calls not answered by then end as deadline_exceeded."`
	CallTimeoutMS  int64             `json:"call_timeout_ms,omitempty" minimum:"1" doc:"Caps each call under its tool's own timeout."`
	Deny           []string          `json:"deny,omitempty" doc:"Rules for what must not run."`
	Ask            []string          `json:"ask,omitempty" doc:"Rules for what a person is asked about."`
	Supersede      bool              `json:"supersede,omitempty" doc:"End the calls of the session's other batches that wait for a person."`
	Repair         bool              `json:"repair,omitempty" doc:"Mend inputs that are no valid JSON, where there is one way to read them, and what a worker's own repair mends."`
	DryRun         bool              `json:"dry_run,omitempty" doc:"Answer each call with what would happen, and run none."`
	Snapshot       bool              `json:"snapshot,omitempty" doc:"Keep the workspace as it is before each exclusive group, so that the batch can be undone."`
	Overlay        bool              `json:"overlay,omitempty" doc:"Run the calls on a copy of the workspace, whose changes a person then commits or drops."`
	Undo           bool              `json:"undo,omitempty" doc:"The batch is one call of undo_workspace or overlay_workspace, which no other batch sees."`
	// BackgroundAfterMS has the limit of background_wait.
	BackgroundAfterMS int64             `json:"background_after_ms,omitempty" minimum:"1" maximum:"300000" doc:"A command that may change something and is not over after so many milliseconds goes on as a background call, and its call ends with the handle."`
	Tags              []string          `json:"tags,omitempty" maxItems:"16" doc:"What the workers must have that run the calls: each of these tags."`
	Priority          toolyard.Priority `json:"priority,omitempty" doc:"Interactive batches go before bulk ones, which take one turn in five. Default: interactive."`
	NamedLocks        bool              `json:"named_locks,omitempty" doc:"Have calls whose tools declare locks take those names in place of the whole workspace."`
	Fence             bool              `json:"fence,omitempty" doc:"Put outputs that come from outside between delimiters that no output can forge."`

	ProgramTimeoutMS int64 `json:"program_timeout_ms,omitempty" minimum:"1" doc:"Bounds a batch with a call that a provider's program made, from its submission on and with waits for people: the provider waits no longer. Default: 240000."`

	Parent *BatchParent `json:"parent,omitempty" doc:"The running call of run_code for which the batch was made. Workers set it; any other such batch is refused."`
}

// BatchParent is the running call for which a batch was made.
type BatchParent struct {
	Batch   toolyard.BatchID `json:"batch" doc:"The batch of that call."`
	Call    int              `json:"call" minimum:"0" doc:"The call's index."`
	Attempt int              `json:"attempt" minimum:"1" doc:"The attempt of that call."`
	N       int              `json:"n" minimum:"1" doc:"Counts the batches that were made for that attempt."`
}

// MoreCalls are appended to an open batch, in one of the five forms.
type MoreCalls struct {
	Calls      []Call          `json:"calls,omitempty" doc:"Give each an id: then sending them again, when no answer came, appends nothing."`
	Anthropic  json.RawMessage `json:"anthropic,omitempty" doc:"The calls in an Anthropic assistant message, or a whole Messages response."`
	OpenAI     json.RawMessage `json:"openai,omitempty" doc:"The calls in an OpenAI Responses output, or a whole response."`
	OpenAIChat json.RawMessage `json:"openai_chat,omitempty" doc:"The calls in an OpenAI Chat Completions assistant message, or a whole completion."`
	Gemini     json.RawMessage `json:"gemini,omitempty" doc:"The calls in a Gemini content, or a whole response."`
}

// Undoing says how a batch is undone.
type Undoing struct {
	Group       *int `json:"group,omitempty" minimum:"0" doc:"The group before which the workspace is set back: its index in groups. Default: the first that could change it."`
	Force       bool `json:"force,omitempty" doc:"Set it back although others have changed it since: that is lost."`
	Interactive bool `json:"interactive,omitempty" doc:"A person can be asked whether it may be set back."`
	Final       bool `json:"final,omitempty" doc:"Keep no snapshot of what the workspace is now. Without it, the undoing can be undone."`
}

// OverlayUse says what is done with an overlay.
type OverlayUse struct {
	Action      string `json:"action" enum:"diff,commit,drop" doc:"Say what it changes, make its changes in the workspace, or remove it."`
	Force       bool   `json:"force,omitempty" doc:"Commit although others have changed the same names since: that is lost."`
	Interactive bool   `json:"interactive,omitempty" doc:"A person can be asked whether that may be done."`
	Final       bool   `json:"final,omitempty" doc:"Keep no snapshot of what the workspace is now. Without it, a commit can be undone."`
}

// Reason says why something is stopped.
type Reason struct {
	Reason string `json:"reason,omitempty" doc:"The model reads it." maxLength:"1000"`
}

// Interruption says how a session is interrupted, and why.
type Interruption struct {
	Reason  string `json:"reason,omitempty" doc:"The model reads it." maxLength:"1000"`
	Resolve bool   `json:"resolve,omitempty" doc:"Stop nothing, and only end the calls that wait for a person, as the option supersede of a new batch does."`
}

// Cancellation says what of a batch is stopped, and why.
type Cancellation struct {
	Reason string `json:"reason,omitempty" doc:"The model reads it." maxLength:"1000"`
	Calls  []int  `json:"calls,omitempty" doc:"The indices of the calls to stop; left out, all." minItems:"1" maxItems:"10000"`
}

// Decision is what a person decides about a call.
type Decision struct {
	Decision client.Verdict  `json:"decision" doc:"Whether the call may run."`
	Reason   string          `json:"reason,omitempty" doc:"The model reads it." maxLength:"1000"`
	Input    json.RawMessage `json:"input,omitempty" doc:"Run this instead of the call's own input; it is checked again first. Null or left out: run what was shown."`
	SHA256   string          `json:"input_sha256,omitempty" doc:"The hash of the input that was seen, as the list has it. A call that waits with another one is not allowed."`
	Remember string          `json:"remember,omitempty" enum:"session" doc:"Allow the like for the rest of the session."`
}
