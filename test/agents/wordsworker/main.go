// Command wordsworker is a pool of one tool whose definition is not in the prompt: a model has to find it first.
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

func main() {
	no := false
	count, err := tool.New(tool.Typed[input, string]{
		Declaration: tool.Declaration{
			Name: "count_words", Description: "Counts the words of a text.", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
			RequiresPermission: &no, UsesWorkspace: &no, ShouldDefer: true,
		},
		Run: func(_ context.Context, _ tool.Env, in input) (string, error) {
			return fmt.Sprint(len(strings.Fields(in.Text)), " words"), nil
		},
	})
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
