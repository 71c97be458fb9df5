package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/replay"
)

// Rerun says how a batch runs again.
type Rerun struct {
	ID          toolyard.BatchID `json:"id,omitempty" doc:"The id of the new batch. The same one again is the same batch. Default: one that the server makes."`
	AllowWrites bool             `json:"allow_writes,omitempty" doc:"Whether calls run again too that were not READ_ONLY, and may act again."`
}

// rerun hands the recorded calls of a batch in again, as a new batch.
func (s *Server) rerun(ctx context.Context, x *exchange, in *BatchPath) (*batchAnswer, error) {
	ctx, data, err := x.bodyFor(ctx, MaxSmallBodyBytes, true)
	if err != nil {
		return nil, err
	}
	how, err := decodeRerun(data)
	if err != nil {
		return nil, err
	}
	var b toolyard.Batch
	err = s.look(ctx, x, *in, 0, func(fold *replay.Replay, _ []replay.Step) (err error) {
		b, err = fold.Report().Rerun(how.AllowWrites)
		if acts, ok := errors.AsType[*replay.ActsError](err); ok {
			return newProblem(http.StatusConflict, "allow_writes", "%v; allow_writes runs them all the same", acts)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	b.ID = how.ID
	return s.storeMade(ctx, x, b)
}

type compareInput struct {
	BatchPath
	Other string `query:"other" required:"true" doc:"The id of the other batch of the same agent, such as a rerun."`
}

// Comparison is what is different in the results of another batch of the same calls.
type Comparison struct {
	Other       toolyard.BatchID    `json:"other" doc:"The other batch's id."`
	Status      toolyard.Status     `json:"status" doc:"How the other batch stands. Until it is over only calls are compared that have results there."`
	Calls       int                 `json:"calls" doc:"How many calls the batch has."`
	Compared    int                 `json:"compared" doc:"How many calls were compared."`
	Differences []replay.Difference `json:"differences" doc:"What is different, in the order of the calls."`
}

// compare says what is different in the results of another batch of the same calls.
func (s *Server) compare(ctx context.Context, x *exchange, in *compareInput) (*struct{ Body Comparison }, error) {
	other, err := x.key(BatchPath{ID: in.Other, Agent: in.Agent})
	if err != nil {
		return nil, err
	}
	st, err := s.fold(ctx, other)
	if err != nil {
		return nil, err
	}
	view := st.View()
	out := Comparison{Other: other.ID, Status: view.Status}
	err = s.look(ctx, x, in.BatchPath, 0, func(fold *replay.Replay, _ []replay.Step) error {
		shape, _ := fold.Shape(0)
		out.Calls, out.Compared = shape.Calls, shape.Calls
		out.Differences = fold.Report().Differences(view.Results)
		if !st.Completed {
			there := map[int]bool{}
			for i := range view.Results {
				there[view.Results[i].Index] = true
			}
			out.Compared = len(there)
			out.Differences = slices.DeleteFunc(out.Differences,
				func(d replay.Difference) bool { return !there[d.Index] })
		}
		return nil
	})
	return &struct{ Body Comparison }{out}, err
}
