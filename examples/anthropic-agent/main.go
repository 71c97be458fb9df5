// Command anthropic-agent is an agent on Anthropic's API whose tools run on a Toolyard pool. Each response goes to the
// pool while the model is still writing it, so a call starts before the next one is written.
//
//	dispatcher serve --with-worker --workspace default=.
//	ANTHROPIC_API_KEY=... go run ./examples/anthropic-agent "What is in this directory?"
//
// The SDK reads its key and ANTHROPIC_BASE_URL from the environment. ANTHROPIC_MODEL names a model; TOOLYARD_URL and
// TOOLYARD_TOKEN say where the pool is.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

const (
	maxTurns  = 50
	maxTokens = 8_192
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) < 2 {
		log.Fatal(`give the agent something to do: anthropic-agent "What is in this directory?"`)
	}
	if err := run(ctx, strings.Join(os.Args[1:], " ")); err != nil {
		log.Fatal(err)
	}
}

// run asks the model, runs what it calls and tells it the results, until it calls nothing more.
func run(ctx context.Context, task string) error {
	model := anthropic.NewClient()
	p := pool{
		url: cmp.Or(os.Getenv("TOOLYARD_URL"), "http://127.0.0.1:8080"), token: os.Getenv("TOOLYARD_TOKEN"),
		session: fmt.Sprintf("anthropic-agent-%d", time.Now().UnixNano()),
	}
	messages := []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(task))}
	for range maxTurns {
		tools, err := p.tools(ctx) // again each time: workers come and go, with their tools
		if err != nil {
			return err
		}
		said, reply, err := turn(ctx, &model, &p, anthropic.MessageNewParams{
			Model:     anthropic.Model(cmp.Or(os.Getenv("ANTHROPIC_MODEL"), string(anthropic.ModelClaudeSonnet5_5))),
			MaxTokens: maxTokens, Messages: messages, Tools: tools,
		})
		if err != nil {
			return err
		}
		for _, block := range said.Content {
			if block.Type == "text" {
				fmt.Println(block.Text)
			}
		}
		if reply == nil { // it called nothing
			return nil
		}
		messages = append(messages, said.ToParam(), *reply)
	}
	return fmt.Errorf("the model has not finished after %d turns", maxTurns)
}

// turn is one request to the model. Its response goes to the pool and to the SDK at the same time. It returns what the
// model said, and what the pool answers to that: nil when there was no call.
func turn(ctx context.Context, model *anthropic.Client, p *pool,
	params anthropic.MessageNewParams) (said anthropic.Message, reply *anthropic.MessageParam, err error) {
	raw, feed := io.Pipe()
	type answer struct {
		reply json.RawMessage
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		reply, err := p.stream(ctx, raw)
		// a pool that fails does not hold up the model's stream
		_ = raw.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		answered <- answer{reply, err}
	}()
	stream := model.Messages.NewStreaming(ctx, params, option.WithMiddleware(func(r *http.Request,
		next option.MiddlewareNext) (*http.Response, error) {
		res, err := next(r)
		if err == nil && res.StatusCode == http.StatusOK {
			res.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(res.Body, feed), res.Body}
		}
		return res, err
	}))
	for stream.Next() && err == nil {
		err = said.Accumulate(stream.Current())
	}
	err = errors.Join(err, stream.Err(), stream.Close())
	_ = feed.CloseWithError(err) // always nil; without an error the pool reads the end of the stream
	got := <-answered
	if err = cmp.Or(err, got.err); err != nil || got.reply == nil {
		return said, nil, err
	}
	reply = new(anthropic.MessageParam)
	return said, reply, json.Unmarshal(got.reply, reply)
}
