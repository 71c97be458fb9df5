// Command openai-agent is an agent on OpenAI's Responses API whose tools run on a Toolyard pool.
//
//	dispatcher serve --with-worker --workspace default=.
//	OPENAI_API_KEY=... go run ./examples/openai-agent "What is in this directory?"
//
// The SDK reads its key and OPENAI_BASE_URL from the environment. OPENAI_MODEL names a model; TOOLYARD_URL and
// TOOLYARD_TOKEN say where the pool is.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

const maxTurns = 50

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) < 2 {
		log.Fatal(`give the agent something to do: openai-agent "What is in this directory?"`)
	}
	if err := run(ctx, strings.Join(os.Args[1:], " ")); err != nil {
		log.Fatal(err)
	}
}

// run asks the model, runs what it calls and tells it the results, until it calls nothing more.
func run(ctx context.Context, task string) error {
	model := openai.NewClient()
	p := pool{
		url: cmp.Or(os.Getenv("TOOLYARD_URL"), "http://127.0.0.1:8080"), token: os.Getenv("TOOLYARD_TOKEN"),
		session: fmt.Sprintf("openai-agent-%d", time.Now().UnixNano()),
	}
	input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(task,
		responses.EasyInputMessageRoleUser)}
	for range maxTurns {
		tools, err := p.tools(ctx) // again each time: workers come and go, with their tools
		if err != nil {
			return err
		}
		said, err := model.Responses.New(ctx, responses.ResponseNewParams{
			Model: cmp.Or(os.Getenv("OPENAI_MODEL"), openai.ChatModelGPT5_5),
			Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input}, Tools: tools,
		})
		if err != nil {
			return err
		}
		if text := said.OutputText(); text != "" {
			fmt.Println(text)
		}
		calls := false
		for _, item := range said.Output { // all of it goes back: the model's reasoning, its words, its calls
			input = append(input, as(item.RawJSON()))
			calls = calls || item.CallID != "" && strings.HasSuffix(item.Type, "_call")
		}
		if !calls {
			return nil
		}
		results, err := p.execute(ctx, said.ID, json.RawMessage(said.RawJSON()))
		if err != nil {
			return err
		}
		for _, r := range results {
			input = append(input, as(string(r)))
		}
	}
	return fmt.Errorf("the model has not finished after %d turns", maxTurns)
}

// as is an item of a request as somebody has written it.
func as(item string) responses.ResponseInputItemUnionParam {
	return param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(item))
}
