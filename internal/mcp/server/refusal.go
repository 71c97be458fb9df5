package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// codeCanceled is the code of what stands for the answer to a canceled request: that of the Language Server Protocol,
// as MCP has none.
const codeCanceled = -32800

// errCanceled stands for the answer to a request that its client has canceled, or whose session it has ended. MCP wants
// none: a pipe and a session keep it back.
var errCanceled = &jsonrpc.Error{Code: codeCanceled, Message: "the client has canceled the request"}

// coded gives each error a code of JSON-RPC. The library sends an error that has none with the code 0. A server that
// stops ends requests whose clients have not canceled them.
func (s *Server) coded(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		ended := errors.Is(context.Cause(ctx), context.Canceled)
		switch {
		case errors.Is(err, errSessionOver), ended && s.stopping.Err() == nil:
			return nil, errCanceled
		case ended && errors.Is(err, context.Canceled):
			return nil, busy("the server stops")
		}
		if _, has := errors.AsType[*jsonrpc.Error](err); err == nil || has {
			return res, err
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
}

// answersCanceled reports whether an event is errCanceled.
func answersCanceled(event []byte) bool {
	_, data, ok := bytes.Cut(event, []byte("data: "))
	if !ok || !bytes.Contains(data, []byte(errCanceled.Message)) {
		return false
	}
	var answer struct {
		Error *jsonrpc.Error `json:"error"`
	}
	return json.Unmarshal(data, &answer) == nil && answer.Error != nil && answer.Error.Code == codeCanceled
}

// refusing is the response to a message over HTTP. The library answers what is no JSON, and in the older revisions a
// method that it does not know, with a text of its own; clients look for an error of JSON-RPC, as over a pipe.
type refusing struct {
	http.ResponseWriter
	body []byte
	// held says that the status 400 waits for the text behind it.
	held bool
}

// Unwrap is for [http.ResponseController].
func (r *refusing) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (r *refusing) WriteHeader(status int) {
	if status == http.StatusBadRequest && strings.HasPrefix(r.Header().Get("Content-Type"), "text/plain") {
		r.held = true
		return
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter]. A refusal comes in one piece.
func (r *refusing) Write(p []byte) (int, error) {
	if !r.held {
		return r.ResponseWriter.Write(p)
	}
	r.held = false
	status, answer := refusalOf(string(bytes.TrimSpace(p)), r.body)
	if answer == nil {
		r.ResponseWriter.WriteHeader(http.StatusBadRequest)
		return r.ResponseWriter.Write(p)
	}
	r.Header().Set("Content-Type", "application/json")
	r.ResponseWriter.WriteHeader(status)
	_, err := r.ResponseWriter.Write(answer)
	return len(p), err
}

// end sends the status of a refusal without a text.
func (r *refusing) end() {
	if r.held {
		r.held = false
		r.ResponseWriter.WriteHeader(http.StatusBadRequest)
	}
}

// The beginnings of the library's texts.
const (
	saysMalformed = "malformed payload: "
	saysUnhandled = "JSON RPC not handled: "
)

// refusalOf is the error of JSON-RPC in the place of the library's text, and the status that goes with it. Nil: the
// text stays. A request for a method that is not there is one like any other, so that its answer is 200; the statuses
// of transports mean other things to clients.
func refusalOf(text string, body []byte) (status int, answer []byte) {
	var err error
	switch {
	case strings.HasPrefix(text, saysMalformed) && !json.Valid(body):
		status = http.StatusBadRequest
		answer, err = errorAnswer(nil, jsonrpc.CodeParseError, text)
	case strings.HasPrefix(text, saysUnhandled):
		id := idOf(body)
		if id == nil { // a notification, or a batch: nobody waits for the answer, or it has no one id
			return 0, nil
		}
		status = http.StatusOK
		answer, err = errorAnswer(id, jsonrpc.CodeMethodNotFound, text)
	}
	if err != nil {
		return 0, nil
	}
	return status, answer
}
