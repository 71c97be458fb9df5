package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

func ExampleClient_Submit() {
	ctx := context.Background()
	nc, err := nats.Connect("nats://127.0.0.1:4222")
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	c, err := client.Connect(ctx, nc)
	if err != nil {
		log.Fatal(err)
	}
	b, err := c.Submit(ctx, toolyard.Batch{Agent: "reviewer", ID: "turn-17", Calls: []toolyard.Call{
		{ID: "toolu_01", Tool: "read_file", Input: json.RawMessage(`{"file_path": "go.mod", "limit": 1}`)},
		{ID: "toolu_02", Tool: "glob", Input: json.RawMessage(`{"pattern": "*.md"}`)},
	}})
	if err != nil {
		log.Fatal(err) // nothing was accepted
	}
	for r, err := range b.Results(ctx) { // in the order of the calls, each as soon as it is its turn
		if err != nil {
			log.Fatal(err) // the batch goes on; c.Batch(b.Key()).Results(ctx) begins again from the first
		}
		fmt.Println(r.CallID, r.Code, r.Output, r.Error)
	}
}
