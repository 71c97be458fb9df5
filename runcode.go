package toolyard

import "fmt"

// RunCodeTool is the tool that runs a script which calls other tools. Workers have it only if their operator says so.
const RunCodeTool = "run_code"

// Parent is the running call for which a batch was made: a call of [RunCodeTool], whose script calls a tool. Workers
// set it. A dispatcher runs such a batch only while that call runs, and refuses any other.
type Parent struct {
	// Batch is the batch of that call, of the same agent, and Call the call's index.
	Batch BatchID `json:"batch"`
	Call  int     `json:"call"`
	// Attempt is the attempt of that call, from 1.
	Attempt int `json:"attempt"`
	// N counts the batches that were made for that attempt, from 1.
	N int `json:"n"`
}

// validate says what is wrong with a parent.
func (p *Parent) validate() error {
	if err := CheckName("options.parent.batch", string(p.Batch)); err != nil {
		return err
	}
	if p.Call < 0 || p.Call >= MaxCallsPerBatch || p.Attempt < 1 || p.N < 1 {
		return &InputError{Field: "options.parent",
			Problem: fmt.Sprintf("names call %d, attempt %d and number %d; calls count from 0, the others from 1",
				p.Call, p.Attempt, p.N)}
	}
	return nil
}
