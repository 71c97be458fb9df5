package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/tool"
)

// toolPort answers the calls of a script. A connection has one call:
//
//	read_file 21\n{"file_path": "a.go"}     the tool's name, the bytes of its input, and the input
//	ok 120\n...                             "ok" or the code of the failure, the bytes of the text, and the text
type toolPort struct {
	ctx context.Context // the script's
	env tool.Env
}

// The limits of a call's first line.
const (
	maxHeadBytes = toolyard.MaxNameBytes + 16
	headWithin   = 10 * time.Second
)

// maxTextBytes is how many bytes of an output a script gets; a longer one is cut, and says so.
const maxTextBytes = 16 << 20

// answer serves one connection.
func (p *toolPort) answer(conn net.Conn) {
	if conn.SetReadDeadline(time.Now().Add(headWithin)) != nil {
		return
	}
	head := newHead(conn)
	name, input, err := readCall(head)
	if refused, ok := errors.AsType[*refusedCall](err); ok {
		refused.pass(head, conn)
	}
	if err != nil {
		say(conn, string(toolyard.InvalidArguments), "the call cannot be read: "+err.Error())
		return
	}
	if conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	go func() { // until the script, or the sandbox, closes the connection
		var more [1]byte
		_, _ = conn.Read(more[:]) // whatever comes, or does not: nothing may follow
		cancel()
	}()
	code, text := p.call(ctx, name, input)
	say(conn, code, text)
}

// call makes the call. The code is "ok" for a success.
func (p *toolPort) call(ctx context.Context, name string, input json.RawMessage) (code, text string) {
	if p.env.CommitPoint != nil {
		if err := p.env.CommitPoint(); err != nil {
			return string(toolyard.Canceled), "the script is over"
		}
	}
	res, err := p.env.Call(ctx, name, input)
	if err != nil {
		wrong, bad := errors.AsType[*toolyard.InputError](err)
		e, own := errors.AsType[*tool.Error](err)
		switch {
		case ctx.Err() != nil:
			return string(toolyard.Canceled), "the script is over"
		case bad:
			return string(toolyard.InvalidArguments), wrong.Error()
		case own:
			return string(e.Code), e.Message
		}
		return string(toolyard.DependencyUnavailable), "the call could not be made, or its result could not be read: it " +
			"is not known whether it has run"
	}
	return answerOf(&res)
}

// answerOf is what a script gets of a result: the texts of it alone.
func answerOf(r *toolyard.Result) (code, text string) {
	if text = r.Output; text == "" {
		text = toolyard.TextOf(r.Content)
	}
	if len(text) > maxTextBytes {
		text = strings.ToValidUTF8(text[:maxTextBytes], "") + "\n[cut: the output is longer]"
	}
	if !r.IsError {
		return "ok", text
	}
	failed := *r
	failed.Output = text
	return string(r.Code), failed.Text()
}

// newHead reads what a connection may send, and no more.
func newHead(conn io.Reader) *bufio.Reader {
	return bufio.NewReaderSize(io.LimitReader(conn, maxHeadBytes+submission.MaxChildInput), maxHeadBytes)
}

// refusedCall is why a call is refused whose input was not read.
type refusedCall struct {
	error
	left uint64 // bytes of the input
}

// pass reads the input: a script sends all of it before it reads an answer, and would get an error of the connection if
// that ended before. It takes no longer than the first line may.
func (r *refusedCall) pass(head, conn io.Reader) {
	left := int64(r.left)
	begun, _ := io.CopyN(io.Discard, head, left) // which has no more than a call may have
	_, _ = io.CopyN(io.Discard, conn, left-begun)
}

// readCall reads a call: its first line, and the input. A [*refusedCall] has an input that was not read.
func readCall(from *bufio.Reader) (name string, input json.RawMessage, err error) {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return "", nil, fmt.Errorf("its first line has no end within %d bytes", maxHeadBytes)
	}
	head := string(line[:len(line)-1])
	at := strings.LastIndexByte(head, ' ') // a tool's name may have blanks
	n, err := strconv.ParseUint(head[at+1:], 10, 32)
	switch {
	case at < 0 || err != nil:
		return "", nil, errors.New("its first line is not the tool's name and the number of the input's bytes")
	case n > submission.MaxChildInput:
		return "", nil, &refusedCall{fmt.Errorf("its input has %d bytes; at most %d are allowed", n,
			submission.MaxChildInput), n}
	}
	name = head[:at]
	if err := toolyard.CheckName("the tool", name); err != nil {
		return "", nil, &refusedCall{err, n}
	}
	input = make([]byte, n)
	if _, err := io.ReadFull(from, input); err != nil {
		return "", nil, fmt.Errorf("its input has less than the %d bytes that its first line says", n)
	}
	if err := strictjson.Check(input); err != nil {
		return "", nil, err
	}
	return name, input, nil
}

// say sends an answer. A script that is gone needs none.
func say(conn net.Conn, code, text string) {
	_, _ = fmt.Fprintf(conn, "%s %d\n%s", code, len(text), text)
}
