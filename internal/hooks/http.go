package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// endpoint is a hook over HTTP: it posts the event, and the body of the response is the answer.
type endpoint struct {
	url    string
	header http.Header
	client *http.Client
}

// newClient makes the client of all endpoints. It follows no redirects: the event goes only to the operator's URL.
func newClient() *http.Client {
	const idleTime, idlePerHost = time.Minute, 4
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: idleTime,
			MaxIdleConnsPerHost:    idlePerHost,
			MaxResponseHeaderBytes: MaxAnswerBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newEndpoint(c handlerConfig, lookup func(string) (string, bool), client *http.Client) (*endpoint, error) {
	e := &endpoint{url: c.url, header: http.Header{}, client: client}
	for name, value := range c.headers {
		value, err := interpolate(value, c.allowedVars, lookup)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		e.header.Set(name, value)
	}
	e.header.Set("Content-Type", "application/json")
	return e, nil
}

// interpolate replaces $NAME and ${NAME} with variables. Only those listed in allowed may be named.
func interpolate(text string, allowed []string, lookup func(string) (string, bool)) (string, error) {
	var err error
	out := os.Expand(text, func(name string) string {
		for _, a := range allowed {
			if a != name {
				continue
			}
			value, ok := lookup(name)
			if !ok && err == nil {
				err = fmt.Errorf("the environment has no variable %q", name)
			}
			return strings.TrimSpace(value)
		}
		if err == nil {
			err = fmt.Errorf("it names the variable %.100q, which is not in allowedEnvVars", name)
		}
		return ""
	})
	if err == nil && strings.ContainsAny(out, "\r\n\x00") {
		err = errors.New("it has more than one line")
	}
	return out, err
}

// run implements runner.
func (e *endpoint) run(ctx context.Context, o *occasion) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(o.body))
	if err != nil {
		return answer{}, withoutURL(err)
	}
	req.Header = e.header.Clone()
	resp, err := e.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		return answer{}, withoutURL(err)
	}
	defer resp.Body.Close() // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswerBytes+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case err != nil:
		return answer{}, fmt.Errorf("read the response: %w", err)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return answer{}, fmt.Errorf("HTTP status %d; an answer has a status from 200 to 299", resp.StatusCode)
	case len(body) > MaxAnswerBytes:
		return answer{}, fmt.Errorf("the response has more than %d bytes", MaxAnswerBytes)
	}
	text := strings.TrimSpace(string(body))
	switch {
	case text == "":
		return answer{}, nil
	case !isObject(text):
		return answer{}, errors.New("the response is no JSON object")
	}
	return fromJSON(o.event, []byte(text))
}

// withoutURL removes the URL from an error, because its query may be a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("the request failed: %w", u.Err)
	}
	return errors.New("the request could not be made")
}
