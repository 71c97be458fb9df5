package dispatchercmd

import (
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// advise says what to do about each kind of error.
func (s *show) advise() {
	if len(s.failed) == 0 {
		return
	}
	calls := map[toolyard.Code][]string{}
	var codes []toolyard.Code
	for _, r := range s.failed {
		if calls[r.Code] == nil {
			codes = append(codes, r.Code)
		}
		calls[r.Code] = append(calls[r.Code], fmt.Sprintf("[%d]", r.Index))
	}
	s.printf("\n%s\n", s.paint.Bold("what to do"))
	for _, code := range codes {
		of := calls[code]
		if more := len(of) - maxAdvised; more > 0 {
			of = append(of[:maxAdvised:maxAdvised], fmt.Sprintf("and %d more", more))
		}
		text := fmt.Sprintf("%s %s: %s", strings.Join(of, " "), code, advice[code])
		for i, line := range cli.Wrap(text, s.columns-4) {
			s.printf("%s%s\n", []string{"  ", "    "}[min(i, 1)], line)
		}
	}
}

// maxAdvised is how many calls are named that ended with one code.
const maxAdvised = 10

// advice is what the person who handed a batch in can do about calls that ended with a code.
var advice = map[toolyard.Code]string{
	toolyard.UnknownTool:            "\"dispatcher tools\" lists the tools that there are; start a worker that has this one",
	toolyard.BlockedTool:            "a rule takes the tool away from this batch: see --deny of the command and of serve",
	toolyard.SchemaNotLoaded:        "the model has to load the tool with tool_search first; tell it so",
	toolyard.SchemaValidationFailed: "give the error to the model: it has to write the input again",
	toolyard.InvalidArguments:       "give the error to the model: it has to write the input again",
	toolyard.SetupRequired: "what the tool needs is missing: the error says what, and \"worker check\" what commands " +
		"need",
	toolyard.SandboxViolation:    "the call would leave its workspace; serve the directory as a workspace if it may",
	toolyard.InputMutationFailed: "the input could not be put into its plain form: have the model write it again",
	toolyard.HookBlocked:         "a hook refused the call: look at the file of --hooks",
	toolyard.HookFailed:          "a hook failed: look at the worker's log and the file of --hooks",
	toolyard.PermissionDenied: "allow it with --allow RULE or --permission-mode where the calls run, or ask a person " +
		"with submit --interactive",
	toolyard.ApprovalRejected: "a person said no; ask that person, or leave the call out",
	toolyard.ApprovalExpired:  "nobody decided in time: hand it in again, or see --approval-wait of serve",
	toolyard.PolicyBlocked: "the session lacks what the tool needs: the error says what, and \"dispatcher session\" " +
		"what it has",
	toolyard.Canceled:        "it was canceled: hand it in again under a new id if it is still wanted",
	toolyard.SiblingCanceled: "a call of its group failed: mend that one, or use --on-error continue",
	toolyard.Skipped:         "an earlier call failed and the batch stopped there: mend that one first",
	toolyard.RateLimited:     "the error says which rate of --quota-file is used up, and when to try again",
	toolyard.BudgetExceeded: "the error says which budget of --quota-file is used up; \"dispatcher session\" shows what " +
		"is left",
	toolyard.ExecutionFailed:  "the tool ran and failed: see its error",
	toolyard.Timeout:          "give it more time with --call-timeout and the tool's own limit, or make it do less",
	toolyard.DeadlineExceeded: "give the batch more time with --timeout",
	toolyard.DependencyUnavailable: "\"dispatcher workers\" says which workers are there and what they found to be " +
		"down; hand it in again when it is back",
	toolyard.OutcomeUnknown:      "look whether its effect is there before you hand it in again: its worker was lost",
	toolyard.ResultMappingFailed: "the tool's output cannot be taken: tell its author",
	toolyard.PostHookFailed:      "the tool ran and a hook behind it failed: look at the file of --hooks",
	toolyard.ResultTooLarge:      "ask for less: a part of the file, fewer matches",
	toolyard.IncompleteCall:      "the model's stream was cut inside the call: ask the model again",
	toolyard.InternalError:       "this is a fault of Toolyard or of the tool: see the worker's log, and \"dispatcher dead\"",
}
