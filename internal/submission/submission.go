// Package submission is what makes the calls of a batch right, for whoever hands them in or takes them: clients, HTTP
// and the broker refuse the same with the same words. It is pure.
package submission

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
)

// Input is what calls that are appended to an open batch must fit: the ids, the number and the bytes of those before.
// The zero Input is that of a batch without calls.
type Input struct {
	ids   map[string]int
	calls int
	bytes int
}

// Add takes in calls that the batch has behind the others, normalized.
func (in *Input) Add(calls []toolyard.Call) {
	if in.ids == nil {
		in.ids = make(map[string]int, len(calls))
	}
	for i, c := range calls {
		in.ids[c.ID] = in.calls + i
	}
	in.calls += len(calls)
	in.bytes += toolyard.CallBytes(calls)
}

// Repeats is a [*toolyard.InputError] about a field when a call that was added has the id, and nil otherwise.
func (in *Input) Repeats(field, id string) error {
	first, ok := in.ids[id]
	if !ok {
		return nil
	}
	return &toolyard.InputError{Field: field,
		Problem: fmt.Sprintf("%q is also the id of call %d; results are paired by id, so each needs its own", id, first)}
}

// Fit returns calls as they are to be appended, normalized and checked. What is wrong is a [*toolyard.InputError].
func (in *Input) Fit(calls []toolyard.Call) ([]toolyard.Call, error) {
	if n := in.calls + len(calls); n > toolyard.MaxCallsPerBatch {
		return nil, &toolyard.InputError{Field: "calls", TooLarge: true,
			Problem: fmt.Sprintf("would be %d; at most %d are allowed in a batch", n, toolyard.MaxCallsPerBatch)}
	}
	calls = slices.Clone(calls) // which are the caller's
	toolyard.NameCalls(calls, in.calls, func(id string) bool {
		_, before := in.ids[id]
		return before
	})
	toolyard.NormalizeCalls(calls, in.calls)
	check := toolyard.Batch{Calls: calls}
	check.Normalize("appended")
	if err := check.Validate(); err != nil {
		return nil, err
	}
	for i, c := range calls {
		if err := in.Repeats(fmt.Sprintf("calls[%d].id", i), c.ID); err != nil {
			return nil, err
		}
	}
	if size := in.bytes + toolyard.CallBytes(calls); size > toolyard.MaxBatchBytes {
		return nil, &toolyard.InputError{Field: "calls", TooLarge: true,
			Problem: fmt.Sprintf("would have %d bytes of input; at most %d are allowed in a batch", size,
				toolyard.MaxBatchBytes)}
	}
	return calls, nil
}

// Canonical is a JSON value whatever its white space and the order of its keys. Numbers stay as they are written.
func Canonical(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// canonical is a batch in its canonical form.
func canonical(batch *toolyard.Batch) ([]byte, error) {
	text, err := json.Marshal(batch)
	if err == nil {
		text, err = Canonical(text)
	}
	if err != nil {
		return nil, fmt.Errorf("batch %s: %w", batch.Key(), err)
	}
	return text, nil
}

// Same reports whether two batches have the same content.
func Same(a, b *toolyard.Batch) (bool, error) {
	ca, err := canonical(a)
	if err != nil {
		return false, err
	}
	cb, err := canonical(b)
	return err == nil && bytes.Equal(ca, cb), err
}

// Sum is the SHA-256 sum of a batch's content, in hexadecimal digits: batches with the same content have the same.
func Sum(b *toolyard.Batch) (string, error) {
	text, err := canonical(b)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// SameInput reports whether the inputs of two calls are the same. One that was left out is {}.
func SameInput(a, b json.RawMessage) bool {
	canonical := func(input json.RawMessage) ([]byte, error) {
		call := []toolyard.Call{{Input: input}}
		toolyard.NormalizeCalls(call, 0)
		return Canonical(call[0].Input)
	}
	ca, errA := canonical(a)
	cb, errB := canonical(b)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}
