// Command wordsworker is a pool of one tool whose definition is not in the prompt: a model has to find it first. Its
// test calls the tool as a worker would.
//
//	dispatcher creds --pool words --out words.creds
//	go run ./examples/wordsworker nats://127.0.0.1:4222 words.creds
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
	"github.com/toolyard/toolyard/worker"
)

type input struct {
	Text string `json:"text" jsonschema:"the text whose words are counted"`
}

// countWords makes the tool.
func countWords() (tool.Tool, error) {
	no := false
	return tool.New(tool.Typed[input, string]{
		Declaration: tool.Declaration{
			Name: "count_words", Description: "Counts the words of a text.",
			Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true, // may run beside others
			RequiresPermission: &no, UsesWorkspace: &no, ShouldDefer: true,
		},
		Run: func(_ context.Context, _ tool.Env, in input) (string, error) {
			return fmt.Sprint(len(strings.Fields(in.Text)), " words"), nil
		},
	})
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: wordsworker URL CREDS")
	}
	count, err := countWords()
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := worker.Connect(ctx, os.Args[1], nil, nats.UserCredentials(os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	if err := worker.Run(ctx, nc, worker.Options{Pool: "words", Tools: []tool.Tool{count}}); err != nil {
		log.Print(err)
	}
}
