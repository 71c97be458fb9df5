package worker

import (
	"context"
	"encoding/json"

	"github.com/toolyard/toolyard/internal/worker"
)

// Malformed is a call whose input does not fit its tool's schema.
type Malformed struct {
	Tool        string
	InputSchema json.RawMessage
	// Input is what the model wrote, with its secrets. What is no JSON is a JSON string of the model's text.
	Input json.RawMessage
	// Problem is what the model would be told, up to 2,000 bytes.
	Problem string
}

// Repaired is what a repair made of an input. The zero value is: nothing, and the call ends as it would have.
type Repaired struct {
	// Input is the whole input that the call runs with. It must be a JSON object that fits the tool's schema; else it
	// is not used. The inputs of a batch that were mended may have 256 KiB together.
	Input json.RawMessage
	// Note says what was done, up to 300 bytes. The model reads it with the result, and the log has it.
	Note string
}

// repairOf adapts a repair.
func repairOf(repair func(context.Context, Malformed) (Repaired, error)) func(context.Context,
	worker.Malformed) (worker.Repaired, error) {
	if repair == nil {
		return nil
	}
	return func(ctx context.Context, m worker.Malformed) (worker.Repaired, error) {
		r, err := repair(ctx, Malformed(m))
		return worker.Repaired(r), err
	}
}
