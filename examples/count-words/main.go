// Command count-words is a pool with one tool: the whole program of which the README shows a part. Copy main.go into a
// directory of your own, and there:
//
//	go mod init example.com/count-words && go mod tidy
//	dispatcher creds --pool words --out words.creds
//	TOOLYARD_CREDS=words.creds go run .
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

func main() {
	type in struct {
		Text string `json:"text" jsonschema:"the text whose words are counted"`
	}
	count, err := tool.New(tool.Typed[in, string]{
		Declaration: tool.Declaration{
			Name:        "count_words",
			Description: "Counts the words of a text.",
			Class:       tool.ClassRule{Static: toolyard.ReadOnly}, // may run beside others
			// needs no permission in the workspace, and may run twice
			ReadOnly: true,
		},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) {
			return fmt.Sprint(len(strings.Fields(i.Text)), " words"), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := worker.Connect(ctx, "nats://127.0.0.1:4222", nil, nats.UserCredentials(os.Getenv("TOOLYARD_CREDS")))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	if err := worker.Run(ctx, nc, worker.Options{Pool: "words", Tools: []tool.Tool{count}}); err != nil {
		log.Print(err)
	}
}
