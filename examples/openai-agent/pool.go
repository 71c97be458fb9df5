package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/openai/openai-go/v3/responses"
)

// pool is Toolyard's HTTP API, as far as this agent needs it.
type pool struct{ url, token, session string }

// ask makes a request and reads its answer into out. Whatever is no success is an error that says what the pool says.
func (p *pool) ask(ctx context.Context, method, path string, body, out any) (status int, err error) {
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	answer, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return res.StatusCode, err
	}
	if res.StatusCode >= 300 {
		return res.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	return res.StatusCode, json.Unmarshal(answer, out)
}

// tools are those of the next batch, in the form that goes into a request.
func (p *pool) tools(ctx context.Context) (tools []responses.ToolUnionParam, err error) {
	_, err = p.ask(ctx, http.MethodGet, "/v1/tools?format=openai&session="+url.QueryEscape(p.session), nil, &tools)
	return tools, err
}

// execute hands a response in and waits for what goes back to the model. The response's id is the batch's: asking again
// after a lost answer runs nothing twice.
func (p *pool) execute(ctx context.Context, id string, response json.RawMessage) (results []json.RawMessage,
	err error) {
	var answer json.RawMessage
	status, err := p.ask(ctx, http.MethodPost, "/v1/batches?wait=60&format=openai",
		map[string]any{"id": id, "session": p.session, "openai": response}, &answer)
	for status == http.StatusAccepted && err == nil { // it is not complete: a call takes longer, or waits for a person
		status, err = p.ask(ctx, http.MethodGet, "/v1/batches/"+url.PathEscape(id)+
			"?wait=60&format=openai", nil, &answer)
	}
	if err != nil {
		return nil, err
	}
	return results, json.Unmarshal(answer, &results)
}
