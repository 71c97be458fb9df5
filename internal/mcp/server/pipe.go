package server

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	wire "github.com/toolyard/toolyard/internal/mcp"
)

// pipe stands between the library and the two ends of a pipe. The library ends the connection at the first line that it
// cannot read, and drops what it has not answered when the client closes its end. pipe gives it only messages that it
// can read, answers the others itself, and tells it of the end when all requests are answered, or pipeGrace has passed.
// It also keeps back the answer to a request that its client has canceled: MCP wants none.
type pipe struct {
	in  io.ReadCloser
	out io.WriteCloser
	log *slog.Logger

	// what only the reader uses
	from *bufio.Reader
	left []byte // of the message that is being read
	err  error

	closing sync.Once
	closed  chan struct{}
	writing sync.Mutex // one message at a time

	mu       sync.Mutex
	waiting  map[jsonrpc.ID]string // the methods of the requests that are not answered
	canceled map[jsonrpc.ID]bool   // those of them that get no answer
	first    jsonrpc.ID            // the request that begins the session
	batches  bool                  // the session's revision has batches
	idle     chan struct{}         // closed when nothing is waited for any more; nil before the client's end
}

func newPipe(in io.ReadCloser, out io.WriteCloser, log *slog.Logger) *pipe {
	return &pipe{
		in: in, out: out, log: log, from: bufio.NewReader(in), closed: make(chan struct{}),
		waiting: map[jsonrpc.ID]string{}, canceled: map[jsonrpc.ID]bool{},
	}
}

// reader and writer are the ends that the library has.
func (p *pipe) reader() io.ReadCloser  { return pipeReader{p} }
func (p *pipe) writer() io.WriteCloser { return pipeWriter{p} }

type pipeReader struct{ *pipe }

type pipeWriter struct{ *pipe }

// Close implements [io.Closer].
func (r pipeReader) Close() error {
	r.closing.Do(func() { close(r.closed) })
	return r.in.Close()
}

// Close implements [io.Closer].
func (w pipeWriter) Close() error { return w.out.Close() }

// Read implements [io.Reader].
func (r pipeReader) Read(b []byte) (int, error) {
	for len(r.left) == 0 {
		if errors.Is(r.err, io.EOF) {
			r.await()
		}
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Write implements [io.Writer]: the library writes each message in one piece.
func (w pipeWriter) Write(b []byte) (int, error) {
	answered, secret := w.answers(b)
	defer w.over(answered) // when it is written
	if secret {
		return len(b), nil
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	return len(b), write(w.out, b)
}

// fill reads the next line, and keeps the message in it that the library gets.
func (p *pipe) fill() {
	line, long, err := p.line()
	switch {
	case err != nil && !errors.Is(err, io.EOF): // what came of the line is not all of it
		p.err = err
		return
	case long != nil:
		err = cmp.Or(p.refuse(long.request(), jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("the message is longer than %d bytes", MaxRequestBytes)), err)
	case len(bytes.TrimSpace(line)) > 0:
		err = cmp.Or(p.take(bytes.TrimSpace(line)), err)
	}
	p.err = err
}

// line reads a line. Of one that is too long it reads all, and returns its outline.
func (p *pipe) line() (line []byte, long *outline, err error) {
	for {
		piece, err := p.from.ReadSlice('\n')
		if long == nil && len(line)+len(piece) > MaxRequestBytes {
			long = &outline{}
			long.add(line)
			line = nil
		}
		if long != nil {
			long.add(piece)
		} else {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// take judges a message: the library gets it, or it is answered here. Its error is that of the answer.
func (p *pipe) take(line []byte) error {
	if !json.Valid(line) {
		return p.refuse(nil, jsonrpc.CodeParseError, "the line is no JSON; a message is one line of it")
	}
	line = wire.LiftRequest(line)
	var wrong *badMessage
	if line[0] == '[' {
		wrong = p.takeBatch(line)
	} else {
		wrong = p.takeOne(line)
	}
	if wrong != nil {
		return p.refuse(wrong.id, jsonrpc.CodeInvalidRequest, wrong.text)
	}
	p.left = append(line, '\n')
	return nil
}

// badMessage is a message that is JSON, and none of JSON-RPC.
type badMessage struct {
	id   any // nil: unknown
	text string
}

// takeOne notes what a message is about.
func (p *pipe) takeOne(data []byte) *badMessage {
	message, wrong := messageOf(data)
	if wrong != nil {
		return wrong
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(message)
	return nil
}

// takeBatch is takeOne for a batch, which the revision of 2025-03-26 has, and no later one.
func (p *pipe) takeBatch(data []byte) *badMessage {
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || len(all) == 0 {
		return &badMessage{text: "the batch is empty"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.batches {
		return &badMessage{text: "this revision of MCP has no batches: send each message on a line of its own"}
	}
	var messages []jsonrpc.Message
	ids := map[jsonrpc.ID]bool{}
	for _, one := range all {
		message, wrong := messageOf(one)
		if wrong != nil {
			return &badMessage{text: "in a batch: " + wrong.text}
		}
		if r, ok := message.(*jsonrpc.Request); ok && r.IsCall() {
			if _, taken := p.waiting[r.ID]; taken || ids[r.ID] {
				return &badMessage{text: fmt.Sprintf("in a batch: the id %v is in use", r.ID.Raw())}
			}
			ids[r.ID] = true
		}
		messages = append(messages, message)
	}
	for _, message := range messages {
		p.note(message)
	}
	return nil
}

// messageOf reads a message as the library does.
func messageOf(data []byte) (jsonrpc.Message, *badMessage) {
	message, err := jsonrpc.DecodeMessage(data)
	if err != nil {
		return nil, &badMessage{idOf(data), err.Error()}
	}
	if r, ok := message.(*jsonrpc.Response); ok && r.Result == nil && r.Error == nil {
		return nil, &badMessage{r.ID.Raw(), "the message has no method, and no result or error"}
	}
	return message, nil
}

// idOf is the id of a message that cannot be read; nil if it has none.
func idOf(data []byte) any {
	var message struct {
		ID any `json:"id"`
	}
	if json.Unmarshal(data, &message) != nil {
		return nil
	}
	switch message.ID.(type) {
	case string, float64:
		return message.ID
	}
	return nil
}

// note keeps which requests wait for an answer, and which of them are canceled.
func (p *pipe) note(message jsonrpc.Message) {
	r, ok := message.(*jsonrpc.Request)
	switch {
	case !ok:
	case r.IsCall():
		p.waiting[r.ID] = r.Method
		if r.Method == "initialize" {
			p.first = r.ID
		}
	case r.Method == "notifications/cancelled":
		var params struct {
			RequestID any `json:"requestId"`
		}
		if json.Unmarshal(r.Params, &params) != nil {
			return
		}
		id, err := jsonrpc.MakeID(params.RequestID)
		if method, waits := p.waiting[id]; err == nil && waits && method != "initialize" {
			p.canceled[id] = true
		}
	}
}

// answers are the requests that a piece of the library answers; secret says that nobody is to see it.
func (p *pipe) answers(piece []byte) (ids []jsonrpc.ID, secret bool) {
	var all []json.RawMessage
	if bytes.HasPrefix(piece, []byte("[")) {
		if json.Unmarshal(piece, &all) != nil {
			return nil, false
		}
	} else {
		all = []json.RawMessage{piece}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range all {
		id, ok := answered(one)
		if !ok {
			continue
		}
		ids = append(ids, id)
		if id == p.first && len(all) == 1 {
			p.batches = revisionOf(one) == batching
		}
	}
	return ids, len(all) == 1 && len(ids) == 1 && p.canceled[ids[0]]
}

// batching is the one revision that has batches.
const batching = "2025-03-26"

// revisionOf is the revision that an answer to initialize names.
func revisionOf(answer []byte) string {
	var message struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &message) != nil {
		return ""
	}
	return message.Result.ProtocolVersion
}

// answered is the id of an answer; false for a request. It reads no further than it must: results are long.
func answered(message []byte) (id jsonrpc.ID, ok bool) {
	d := json.NewDecoder(bytes.NewReader(message))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return id, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return id, false
		}
		switch name {
		case "id":
			var raw any
			if d.Decode(&raw) != nil {
				return id, false
			}
			if id, err = jsonrpc.MakeID(raw); err != nil {
				return id, false
			}
		case "method":
			return id, false
		default:
			if name != "jsonrpc" && id.IsValid() {
				return id, true
			}
			var skipped json.RawMessage
			if d.Decode(&skipped) != nil {
				return id, false
			}
		}
	}
	return id, id.IsValid()
}

// over takes requests out of those that wait.
func (p *pipe) over(ids []jsonrpc.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		delete(p.waiting, id)
		delete(p.canceled, id)
	}
	if p.idle != nil && p.unanswered() == 0 {
		close(p.idle)
		p.idle = nil
	}
}

// unanswered counts the requests that will be answered: not those that are canceled, and no listener, which is answered
// when the connection ends.
func (p *pipe) unanswered() (n int) {
	for id, method := range p.waiting {
		if method != "subscriptions/listen" && !p.canceled[id] {
			n++
		}
	}
	return n
}

// await returns when all is answered that the client has asked for before it closed its end, or cannot be any more.
func (p *pipe) await() {
	idle := make(chan struct{})
	p.mu.Lock()
	if p.unanswered() == 0 {
		p.mu.Unlock()
		return
	}
	p.idle = idle
	p.mu.Unlock()
	late := time.NewTimer(pipeGrace)
	defer late.Stop()
	select {
	case <-idle:
	case <-p.closed:
	case <-late.C:
		p.mu.Lock()
		n := p.unanswered()
		p.mu.Unlock()
		p.log.Warn("the client has closed its end, and requests of it are given up", "requests", n, "after", pipeGrace)
	}
}

// refuse answers a message that the library does not get.
func (p *pipe) refuse(id any, code int64, text string) error {
	answer, err := errorAnswer(id, code, text)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err = p.out.Write(append(answer, '\n'))
	return err
}

// errorAnswer is an error of JSON-RPC for a request; id is null where it is not known.
func errorAnswer(id any, code int64, text string) ([]byte, error) {
	return json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": code, "message": text}})
}
