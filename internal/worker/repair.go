package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/registry"
)

// maxRepairing is how many repairs run at a time, those included that have been given up and do not return.
const maxRepairing = 64

// Malformed is a call whose input does not fit its tool's schema.
type Malformed struct {
	Tool        string
	InputSchema json.RawMessage
	// Input is what the model wrote: a string if that is no JSON. Problem is what is wrong with it.
	Input   json.RawMessage
	Problem string
}

// Repaired is what a repair made of an input. A nil Input: nothing. Note says what was done, for the model and the log.
type Repaired struct {
	Input json.RawMessage
	Note  string
}

// repair answers with the inputs that the program's own repair makes. What it does wrong is said of its own call.
func (w *Worker) repair(ctx context.Context, calls []broker.JudgeCall) []broker.Judged {
	if w.cfg.Repair == nil {
		return nil
	}
	names, asked := map[int]string{}, map[int]func() broker.Judged{}
	for _, c := range calls {
		_, e, ok := w.tools.Lookup(c.Tool)
		if !ok || e.Hash != c.Declaration {
			continue
		}
		m := Malformed{Tool: c.Tool, InputSchema: e.InputSchema, Input: c.Input, Problem: c.Repair}
		names[c.Index], asked[c.Index] = c.Tool, func() broker.Judged { return w.repairOne(ctx, c.Index, m) }
	}
	late := fmt.Sprintf("the repair gave no answer within %s", broker.RepairTimeout)
	out, size := answers(ctx, w.repairing, asked, late), 0
	for i := range out {
		if n := len(out[i].Repaired); size+n > broker.MaxMendedBytes {
			out[i] = broker.Judged{Index: out[i].Index,
				Failed: fmt.Sprintf("the repaired inputs have more than %d bytes together", broker.MaxMendedBytes)}
		} else {
			size += n
		}
		if out[i].Failed != "" {
			w.log.Warn("an input was not repaired", "tool", names[out[i].Index], "error", out[i].Failed)
		}
	}
	return out
}

func (w *Worker) repairOne(ctx context.Context, index int, m Malformed) (j broker.Judged) {
	public := func(text string) string { return registry.Why(w.pipe.Load().Withhold(text)) }
	failed := func(err error) broker.Judged {
		return broker.Judged{Index: index, Failed: public("the repair failed: " + err.Error())}
	}
	defer func() {
		if p := recover(); p != nil {
			j = failed(fmt.Errorf("it panicked: %v", p))
		}
	}()
	r, err := w.cfg.Repair(ctx, m)
	switch {
	case err != nil:
		return failed(err)
	case r.Input == nil:
		return broker.Judged{Index: index}
	case !strictjson.Valid(r.Input, strictjson.MaxInputDepth):
		return failed(errors.New("what it made is no JSON, has a key twice or nests too deep"))
	}
	return broker.Judged{Index: index, Repaired: r.Input, Note: public(r.Note)}
}
