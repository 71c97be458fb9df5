package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/tool"
)

// TestHowAServerEndsACallThatAsks: a call that the server has ended ends with its question, and so does one over HTTP
// that it does not end. Over a pipe such a call fails: it could ask in the name of the next one.
func TestHowAServerEndsACallThatAsks(t *testing.T) {
	stopped := errors.New("the call was stopped")
	for name, c := range map[string]struct {
		url    string
		answer *callAnswer
		stop   bool // the call, and with it the request
		cut    bool // the request alone, because the session has ended
		ends   bool
		is     string // question, failure, or stopped
	}{
		"a result":              {answer: &callAnswer{res: &mcp.CallToolResult{}}, ends: true, is: "question"},
		"a refusal":             {answer: &callAnswer{err: &jsonrpc.Error{Code: 7}}, ends: true, is: "question"},
		"the connection breaks": {answer: &callAnswer{err: errCut}, is: "question"},
		"nothing over a pipe":   {is: "failure"},
		"nothing over HTTP":     {url: "http://127.0.0.1:1", is: "question"},
		"the session ends":      {cut: true, is: "question"},
		"the call is stopped":   {stop: true, is: "stopped"},
		"stopped over HTTP":     {url: "http://127.0.0.1:1", stop: true, is: "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &session{t: &Toolset{o: Options{Server: manifest.Server{Name: "s", URL: c.url}}}}
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				asking, cut := context.WithCancel(ctx)
				defer cut()
				answers := make(chan callAnswer, 1)
				if c.answer != nil {
					answers <- *c.answer
				}
				if c.stop {
					stop(stopped)
				}
				if c.cut {
					cut()
				}
				q := &elicit.Question{}
				ended, err := s.endWith(ctx, asking, q, answers)
				is := "something else"
				_, failed := errors.AsType[*tool.Error](err)
				switch {
				case err == q:
					is = "question"
				case errors.Is(err, stopped):
					is = "stopped"
				case failed:
					is = "failure"
				}
				if ended != c.ends || is != c.is {
					t.Errorf("ended: %v, with %v; want %v, a %s", ended, err, c.ends, c.is)
				}
			})
		})
	}
}

// TestNumbersOfAnAnswerAreAsThePersonWroteThem, also those that a float64 does not keep.
func TestNumbersOfAnAnswerAreAsThePersonWroteThem(t *testing.T) {
	t.Parallel()
	res, err := accepted(json.RawMessage(`{"id":9007199254740993}`))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := json.Marshal(res); err != nil || !strings.Contains(string(raw), `{"id":9007199254740993}`) {
		t.Errorf("the server gets %s, %v", raw, err)
	}
}
