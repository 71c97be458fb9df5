package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/toolyard/toolyard"
)

// What people ask and decide, over HTTP.

func (t *overHTTP) approvals(ctx context.Context, agent toolyard.Agent) ([]Approval, error) {
	var list struct {
		Approvals []Approval `json:"approvals"`
	}
	err := t.ask(ctx, request{method: http.MethodGet, path: "/v1/approvals", query: of(agent)}, &list)
	return list.Approvals, err
}

// decide is not repeated: a decision whose answer was lost may be stored, and then a second one is refused.
func (t *overHTTP) decide(ctx context.Context, id string, d Decision) error {
	body := struct {
		Decision Verdict         `json:"decision"`
		Reason   string          `json:"reason,omitempty"`
		Input    json.RawMessage `json:"input,omitempty"`
		SHA256   string          `json:"input_sha256,omitempty"`
		Remember string          `json:"remember,omitempty"`
	}{Decision: d.Verdict, Reason: d.Reason, Input: d.Input, SHA256: d.InputSHA256}
	if d.ForSession {
		body.Remember = "session"
	}
	return t.ask(ctx, request{method: http.MethodPost, path: path("v1", "approvals", id), body: body, once: true}, nil)
}

func (t *overHTTP) session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (v Session, err error) {
	return v, t.ask(ctx, request{method: http.MethodGet, path: path("v1", "sessions", string(s)), query: of(a)}, &v)
}

func (t *overHTTP) changeSession(ctx context.Context, a toolyard.Agent, s toolyard.Session, c sessionChange) (v Session,
	err error) {
	body := struct {
		Unattended *bool    `json:"alone,omitempty"`
		Forget     bool     `json:"forget,omitempty"`
		Load       []string `json:"load,omitempty"`
	}{c.unattended, c.forget, c.load}
	return v, t.ask(ctx, request{method: http.MethodPost, path: path("v1", "sessions", string(s)), query: of(a),
		body: body}, &v)
}

// interrupt is not repeated, as resolve: the second would stop what has begun since the first, whose answer was lost,
// and would not count what that one has stopped.
func (t *overHTTP) interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, reason string) (int, error) {
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	var out struct {
		Batches int `json:"batches"`
	}
	err := t.ask(ctx, request{method: http.MethodPost, path: path("v1", "sessions", string(s), "interrupt"),
		query: of(a), body: body, once: true}, &out)
	return out.Batches, err
}

func (t *overHTTP) resolve(ctx context.Context, a toolyard.Agent, s toolyard.Session, _, reason string) (out Resolved,
	err error) {
	body := struct {
		Reason  string `json:"reason,omitempty"`
		Resolve bool   `json:"resolve"`
	}{reason, true}
	return out, t.ask(ctx, request{method: http.MethodPost, path: path("v1", "sessions", string(s), "interrupt"),
		query: of(a), body: body, once: true}, &out)
}

func (t *overHTTP) workers(ctx context.Context) ([]Worker, error) {
	var list struct {
		Workers []Worker `json:"workers"`
	}
	err := t.ask(ctx, request{method: http.MethodGet, path: "/v1/workers"}, &list)
	return list.Workers, err
}

func (t *overHTTP) deadLetters(ctx context.Context, most int) ([]DeadLetter, error) {
	var list struct {
		DeadLetters []DeadLetter `json:"dead_letters"`
	}
	err := t.ask(ctx, request{method: http.MethodGet, path: "/v1/dead",
		query: map[string][]string{"limit": {strconv.Itoa(most)}}}, &list)
	return list.DeadLetters, err
}
