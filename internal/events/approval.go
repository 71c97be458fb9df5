package events

import (
	"encoding/json"

	"github.com/toolyard/toolyard"
)

// Waiting says that a call needs a person's decision, and the worker's work on the call is over. The attempt was not
// started, unless Form says what its tool asks for.
type Waiting struct {
	Call   int    `json:"call,omitempty"`
	Worker string `json:"worker"`
	// Attempt is the number of attempts that are over, whether they were started or not.
	Attempt int `json:"attempt,omitempty"`
	// Reason says why a person is asked, Source what requires it: a rule, the mode, a hook.
	Reason      string         `json:"reason,omitempty"`
	Source      string         `json:"source,omitempty"`
	Destructive bool           `json:"destructive,omitempty"`
	Class       toolyard.Class `json:"concurrency_class"`
	// Input is what may be shown of the input; InputSHA256 is the hash of the input that would run.
	Input       json.RawMessage `json:"input"`
	InputSHA256 string          `json:"input_sha256"`
	// Changed is the reference of that input if a hook has changed it. Empty: it is the call's own.
	Changed string `json:"changed,omitempty"`
	// Diff says what the call would have changed at that time, without secrets; empty if the tool does not say.
	Diff string `json:"diff,omitempty"`
	// Remember is the rule that an approval for the session would add; empty if it cannot be remembered.
	Remember string `json:"remember,omitempty"`
	// Facts are those of the phases so far, and Context what hooks add for the model.
	Facts   []toolyard.Fact `json:"facts,omitempty"`
	Context []string        `json:"context,omitempty"`
	// Form is what the call's tool asks for. Then Input is the answer as far as the form fills it in, and InputSHA256
	// the hash of the question with it. Nil: a person is asked whether the call may run.
	Form *Form `json:"form,omitempty"`
}

// Form is a form of a running call, with what is needed to go on with the answer.
type Form struct {
	toolyard.Form
	// CallSHA256 is the hash of the call's own input: no other may go on with the answer.
	CallSHA256 string `json:"call_sha256"`
	// Key names the question among those of its server, and State is what the server wants back with the answer.
	Key   string `json:"key"`
	State string `json:"state,omitempty"`
}

// Decision is what a person decided.
type Decision string

// The decisions.
const (
	Approve Decision = "allow"
	Reject  Decision = "deny"
	// Supersede is not a person's decision: the session went on without one, with another batch or because somebody has
	// interrupted it so.
	Supersede Decision = "superseded"
)

// Decided is a person's decision about a waiting call.
type Decided struct {
	Call     int      `json:"call,omitempty"`
	Decision Decision `json:"decision"`
	By       string   `json:"by"`
	// Reason is for the model.
	Reason string `json:"reason,omitempty"`
	// InputSHA256 is the hash of the approved input, the only one that may run. Edited is the reference of an input
	// that the person has changed; empty if it is the one that was shown.
	InputSHA256 string `json:"input_sha256,omitempty"`
	Edited      string `json:"edited,omitempty"`
	// Remember is "session" if the session keeps the approval.
	Remember string `json:"remember,omitempty"`
	// Answers says that Edited is the reference of a form's answer, and InputSHA256 the answer's hash.
	Answers bool `json:"answers,omitempty"`
	// Signature is that of [Decided.Statement] by the credentials of the process that stored the decision, in base64,
	// and Key their public key. Behind is the end of the chain that the decision follows. Empty: it has no key.
	Behind    uint64 `json:"behind,omitempty"`
	Key       string `json:"key,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// Statement is what the signature of a decision about a call of a batch is of: the decision, and what it is about.
func (d Decided) Statement(agent toolyard.Agent, id toolyard.BatchID) ([]byte, error) {
	d.Signature = ""
	return json.Marshal(struct {
		Type  Type             `json:"type"`
		Agent toolyard.Agent   `json:"agent"`
		Batch toolyard.BatchID `json:"batch"`
		Of    Decided          `json:"decided"`
	}{CallDecided, agent, id, d})
}

// MinReader is as that of [Started]; an older reader would take a form's answer for the call's input.
func (w Waiting) MinReader() int {
	if w.Form != nil {
		return forms
	}
	return itemReader(w.Call > 0)
}

// MinReader is as that of [Waiting].
func (d Decided) MinReader() int {
	if d.Answers {
		return forms
	}
	return itemReader(d.Call > 0)
}

// Approved is what a worker must know about an approval.
type Approved struct {
	By          string `json:"by"`
	InputSHA256 string `json:"input_sha256"`
	// Input is the reference of the input that runs, if it is not the call's own.
	Input string `json:"input,omitempty"`
	// WaitedMS is how long the call waited, in milliseconds; Context is what hooks added for the model.
	WaitedMS int64    `json:"waited_ms"`
	Context  []string `json:"context,omitempty"`
	// Answer is a person's answer to what the call's tool has asked; nil if it has asked nothing.
	Answer *Answered `json:"answer,omitempty"`
}

// Answered is an answer that a call goes on with.
type Answered struct {
	// Ref is the answer's reference. Key and State are those of the [Form].
	Ref   string `json:"ref"`
	Key   string `json:"key"`
	State string `json:"state,omitempty"`
}

// goesOn reports whether the call goes on with an answer to what its tool has asked.
func (c RequestedCall) goesOn() bool { return c.Approved != nil && c.Approved.Answer != nil }
