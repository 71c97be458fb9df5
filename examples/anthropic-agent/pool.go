package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
)

// maxEvent is how long one event of the pool may be, in bytes.
const maxEvent = 64 << 20

// pool is Toolyard's HTTP API, as far as this agent needs it.
type pool struct{ url, token, session string }

// do makes a request. Whatever is no success is an error that says what the pool says.
func (p *pool) do(ctx context.Context, method, path string, body io.Reader, contentType string) (*http.Response,
	error) {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil || res.StatusCode < 300 {
		return res, err
	}
	defer func() { _ = res.Body.Close() }()
	problem, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, res.Status, problem), err)
}

// tools are those of the next batch, in the form that goes into a request.
func (p *pool) tools(ctx context.Context) (tools []anthropic.ToolUnionParam, err error) {
	res, err := p.do(ctx, http.MethodGet, "/v1/tools?format=anthropic&session="+url.QueryEscape(p.session), nil, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return tools, json.NewDecoder(res.Body).Decode(&tools)
}

// stream hands a response in while it arrives, prints each result when it is there, and returns what goes back to the
// model.
func (p *pool) stream(ctx context.Context, raw io.Reader) (reply json.RawMessage, err error) {
	res, err := p.do(ctx, http.MethodPost, "/v1/stream/anthropic?session="+
		url.QueryEscape(p.session), raw, "text/event-stream")
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	for name := ""; lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "event":
			name = value
		case field == "data" && name == "result":
			var r struct{ Tool, Code string }
			if err := json.Unmarshal([]byte(value), &r); err != nil {
				return nil, err
			}
			fmt.Println("  ", r.Tool, r.Code)
		case field == "data" && name == "reply":
			reply = json.RawMessage(value)
		case field == "data" && name == "completed":
			return reply, nil
		case field == "data" && (name == "problem" || name == "cut"):
			return nil, errors.New("the pool says: " + value)
		}
	}
	return nil, errors.Join(errors.New("the pool's answer ended before its end"), lines.Err())
}
