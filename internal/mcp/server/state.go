package server

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// pending is what a client carries from a question to its answer: which call the question is about. The answer comes in
// a request of its own, maybe to another server.
type pending struct {
	Agent toolyard.Agent   `json:"a"`
	Batch toolyard.BatchID `json:"b"`
	Tool  string           `json:"t"`
	// Input is the hash of the call's input: an answer comes with the same call.
	Input []byte `json:"i"`
	// Approval is what is answered, Shown the hash of the input that was asked about, and Expires until when, in
	// seconds since 1970.
	Approval string `json:"p"`
	Shown    string `json:"s"`
	Expires  int64  `json:"e"`
	// Asked is when it was asked, in nanoseconds since 1970, and Form says that a tool asks, with a form of its own.
	Asked int64 `json:"q"`
	Form  bool  `json:"f,omitempty"`
}

// pendingOf is the state of a question about a call.
func pendingOf(batch *toolyard.Batch, id toolyard.BatchID, asked client.Approval, expires time.Time) pending {
	sum := sha256.Sum256(batch.Calls[0].Input)
	return pending{Agent: batch.Agent, Batch: id, Tool: batch.Calls[0].Tool, Input: sum[:], Approval: asked.ID,
		Shown: asked.InputSHA256, Expires: expires.Unix(), Asked: asked.AskedAt.UnixNano(), Form: asked.Form != nil}
}

// isOf reports whether it is the state of a question about this call.
func (p *pending) isOf(batch *toolyard.Batch) bool {
	sum := sha256.Sum256(batch.Calls[0].Input)
	return p.Agent == batch.Agent && p.Tool == batch.Calls[0].Tool && bytes.Equal(p.Input, sum[:])
}

// sealer writes states that nobody else can make or change. They hide nothing: they hold names that the client knows.
type sealer struct{ key [sha256.Size]byte }

func newSealer(key []byte) *sealer {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("toolyard mcp request state 1"))
	s := &sealer{}
	mac.Sum(s.key[:0])
	return s
}

func (s *sealer) sum(body []byte) []byte {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write(body)
	return mac.Sum(nil)
}

func (s *sealer) seal(p pending) (string, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode the state of a question: %w", err)
	}
	code := base64.RawURLEncoding.EncodeToString
	return code(body) + "." + code(s.sum(body)), nil
}

var errState = errors.New("the request's state is none that this server gave, or it is too old; make the call again " +
	"without it")

// open reads a state that the same key sealed, and that is still good.
func (s *sealer) open(state string, now time.Time) (p pending, err error) {
	if len(state) > MaxStateBytes {
		return p, errState
	}
	first, second, _ := strings.Cut(state, ".")
	body, err1 := base64.RawURLEncoding.Strict().DecodeString(first)
	sum, err2 := base64.RawURLEncoding.Strict().DecodeString(second)
	if err1 != nil || err2 != nil || !hmac.Equal(sum, s.sum(body)) {
		return p, errState
	}
	if json.Unmarshal(body, &p) != nil || now.Unix() > p.Expires {
		return pending{}, errState
	}
	return p, nil
}
