package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/toolyard/toolyard"
)

// ReportFilter says what a report is of. The zero value means all that is kept.
type ReportFilter struct {
	// Agent is whose batches are added up. Empty: everybody's, or the token's agent's.
	Agent toolyard.Agent
	// Since and Until are when the batches were submitted: from the one on, and before the other. Zero sets no bound.
	Since, Until time.Time
}

// ErrNoReport says that a client speaks NATS, where nobody adds up what was run.
var ErrNoReport = errors.New("only a dispatcher's HTTP API makes reports; connect with ConnectHTTP")

// Report adds up what was run: tools, error codes, times, waits, denials and questions. It returns the JSON document of
// GET /v1/report. A server adds up the newest batches, and says in cut that there are others. Over NATS it fails with
// [ErrNoReport].
func (c *Client) Report(ctx context.Context, f ReportFilter) (json.RawMessage, error) {
	return c.t.report(ctx, f)
}

func (overNATS) report(context.Context, ReportFilter) (json.RawMessage, error) {
	return nil, ErrNoReport
}

func (t *overHTTP) report(ctx context.Context, f ReportFilter) (json.RawMessage, error) {
	query := of(f.Agent)
	if f.Since.IsZero() { // a server that is told nothing goes back a day
		f.Since = time.Unix(0, 0)
	}
	query.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	if !f.Until.IsZero() {
		query.Set("until", f.Until.UTC().Format(time.RFC3339Nano))
	}
	var out json.RawMessage
	err := t.ask(ctx, request{method: http.MethodGet, path: "/v1/report", query: query}, &out)
	return out, err
}
