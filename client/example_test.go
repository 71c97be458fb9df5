package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

func ExampleClient_Submit() {
	ctx := context.Background()
	// "dispatcher creds --agent reviewer" makes the file.
	nc, err := nats.Connect("nats://127.0.0.1:4222", nats.UserCredentials("reviewer.creds"))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	c, err := client.Connect(ctx, nc, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	b, err := c.Submit(ctx, toolyard.Batch{Agent: "reviewer", ID: "turn-17", Calls: []toolyard.Call{
		{ID: "toolu_01", Tool: "read_file", Input: json.RawMessage(`{"file_path": "go.mod", "limit": 1}`)},
		{ID: "toolu_02", Tool: "glob", Input: json.RawMessage(`{"pattern": "*.md"}`)},
	}})
	if err != nil {
		log.Fatal(err) // ErrNoAnswer: it may be stored, and the same again is safe
	}
	for r, err := range b.Results(ctx) { // in the order of the calls, each as soon as it is its turn
		if err != nil {
			log.Fatal(err) // the batch goes on; c.Batch(b.Key()).Results(ctx) begins again from the first
		}
		fmt.Println(r.CallID, r.Code, r.Output, r.Error)
	}
}

func ExampleConnectHTTP() {
	ctx := context.Background()
	c, err := client.ConnectHTTP(ctx, "http://127.0.0.1:8080", client.HTTPOptions{Token: os.Getenv("TOOLYARD_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	b, err := c.Submit(ctx, toolyard.Batch{ID: "turn-18", Calls: []toolyard.Call{
		{ID: "toolu_03", Tool: "bash", Input: json.RawMessage(`{"command": "go vet ./..."}`)},
	}})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for p, err := range b.Progress(ctx) { // it ends with the batch
			if err != nil {
				return // the results come all the same
			}
			fmt.Printf("%s: %.0f%% %s\n", p.Tool, 100*p.Fraction, p.Status)
		}
	}()
	for r, err := range b.Results(ctx) { // also when the connection is cut in between
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.CallID, r.Code, r.Output, r.Error)
	}
}

func ExampleClient_Feed() {
	ctx := context.Background()
	c, err := client.ConnectHTTP(ctx, "http://127.0.0.1:8080", client.HTTPOptions{})
	if err != nil {
		log.Fatal(err)
	}
	var response io.Reader // what Anthropic's API answers with "stream": true, as it comes
	feed, err := c.Feed(ctx, client.Anthropic, toolyard.Batch{Agent: "reviewer"}, response)
	if err != nil {
		log.Fatal(err)
	}
	if feed == nil {
		return // the model called no tool
	}
	for r, err := range feed.Results(ctx) { // while the response still arrives
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.CallID, r.Code, r.Output)
	}
	if err := feed.Wait(); err != nil { // the response was cut or broken
		log.Fatal(err)
	}
}

func ExampleClient_Decide() {
	ctx := context.Background()
	c, err := client.ConnectHTTP(ctx, "http://127.0.0.1:8080", client.HTTPOptions{Token: os.Getenv("TOOLYARD_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	waiting, err := c.Approvals(ctx, "reviewer")
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range waiting {
		d := client.Decision{Verdict: client.Deny, By: "ann", Reason: "only reading is allowed today"}
		if a.Class == toolyard.ReadOnly {
			d = client.Decision{Verdict: client.Allow, By: "ann", InputSHA256: a.InputSHA256}
		}
		if err := c.Decide(ctx, a.ID, d); err != nil && !errors.Is(err, client.ErrNoApproval) { // or it was too late
			log.Fatal(err)
		}
	}
}
