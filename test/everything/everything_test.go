//go:build everything

// Package everything calls each tool of the reference server that has one of every kind, through a pool.
//
// It needs the server's program, an npm package: "make mcp-everything" installs it and runs the tests.
package everything

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/mcp/toolset"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
)

// programVariable names the environment variable with the server's program, a file for node.
const programVariable = "TOOLYARD_EVERYTHING"

// patience is how long a test waits for what must come.
const patience = time.Minute

// calls is one of each tool that the server lists to a client without capabilities, and what must come of it.
var calls = []struct {
	tool, input string
	code        toolyard.Code
	output      string // is in it
	kinds       []toolyard.ContentType
}{
	{"echo", `{"message":"hello"}`, "", "hello", nil},
	{"get-annotated-message", `{"messageType":"success","includeImage":true}`, "", "success",
		[]toolyard.ContentType{toolyard.ContentText, toolyard.ContentImage}},
	{"get-env", `{}`, "", "PATH", nil},
	{"get-resource-links", `{"count":2}`, "", "", []toolyard.ContentType{toolyard.ContentText, toolyard.ContentLink,
		toolyard.ContentLink}},
	{"get-resource-reference", `{"resourceType":"Text","resourceId":1}`, "", "",
		[]toolyard.ContentType{toolyard.ContentText, toolyard.ContentResource, toolyard.ContentText}},
	{"get-structured-content", `{"location":"Chicago"}`, "", "temperature", nil},
	{"get-sum", `{"a":2,"b":3}`, "", "5", nil},
	{"get-tiny-image", `{}`, "", "", []toolyard.ContentType{toolyard.ContentText, toolyard.ContentImage,
		toolyard.ContentText}},
	{"gzip-file-as-resource", `{"name":"x.gz","data":"data:text/plain,hello","outputType":"resource"}`, "", "",
		[]toolyard.ContentType{toolyard.ContentResource}},
	{"toggle-simulated-logging", `{}`, "", "logging", nil},
	{"toggle-subscriber-updates", `{}`, "", "", nil},
	{"trigger-long-running-operation", `{"duration":0.8,"steps":4}`, "", "completed", nil},
	// It runs only as a task of the revision 2025-11-25.
	{"simulate-research-query", `{"topic":"sandboxes"}`, "", "Research Report: sandboxes", nil},
}

// TestEverythingOverStdio starts the server as workers do.
func TestEverythingOverStdio(t *testing.T) {
	testEverything(t, manifest.Server{Command: []string{"node", program(t), "stdio"},
		Env: map[string]string{"GIVEN": "to the server"}})
}

// TestEverythingOverHTTP finds the server where somebody else has started it.
func TestEverythingOverHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	server, err := sandbox.LaunchUnisolated(ctx, sandbox.Program{
		Argv: []string{"node", program(t), "streamableHttp"}, Env: []string{"PATH=" +
			os.Getenv("PATH"), fmt.Sprintf("PORT=%d", at.Port)},
		Stdout: t.Output(), Stderr: t.Output(),
	})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if _, err := server.Wait(); err != nil {
			t.Error(err)
		}
	})
	testEverything(t, manifest.Server{URL: fmt.Sprintf("http://%s/mcp", at)})
}

func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv(programVariable)
	if path == "" {
		t.Fatalf("%s is not set; run make mcp-everything", programVariable)
	}
	return path
}

// pool is a worker with the server as its only toolset, and a dispatcher.
func pool(t *testing.T, s manifest.Server) (*toolset.Toolset, *client.Client) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s.Name, s.Trusted, s.MaxTools, s.MaxInFlight, s.StartTimeoutMS = "everything", true, 100, 4, patience.Milliseconds()
	set, err := toolset.New(toolset.Options{Server: s, Lookup: os.LookupEnv, MinPause: 100 * time.Millisecond,
		MaxPause: 500 * time.Millisecond, Log: testenv.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	server := testenv.Server(t)
	testenv.Broker(t, server, "/dispatcher/first")
	w, err := worker.New(testenv.Broker(t, server, "/worker/test"),
		worker.Config{Toolsets: []worker.Toolset{set}, Mode: policy.Bypass, Log: log, DrainGrace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	d := dispatcher.Config{Log: log}
	d.Planner.Pipeline = &pipeline.Pipeline{}
	for _, part := range []interface {
		Run(context.Context) error
		Ready() <-chan struct{}
	}{w, dispatcher.New(testenv.Broker(t, server, "/dispatcher/test"), d)} {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- part.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		testenv.Within(t, "a part is ready", part.Ready())
	}
	c, err := client.Connect(t.Context(), testenv.Conn(t, server), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return set, c
}

func testEverything(t *testing.T, s manifest.Server) {
	set, c := pool(t, s)
	for late := time.After(patience); set.Down() != nil; {
		select {
		case <-set.Changed():
		case <-time.After(20 * time.Millisecond): // the worker takes the changes
		case <-late:
			t.Fatalf("there is no server: %v", set.Down())
		}
	}
	var listed, known []string
	for _, d := range set.Tools() {
		listed = append(listed, d.Name)
	}
	for _, one := range calls {
		known = append(known, manifest.ToolName("everything", one.tool))
	}
	slices.Sort(listed)
	slices.Sort(known)
	if !slices.Equal(listed, known) {
		t.Fatalf("the server lists\n%q, and the test calls\n%q", listed, known)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	first := true
	for _, one := range calls {
		r, steps := run(ctx, t, c, one.tool, one.input, &first)
		if r.Code != one.code || !strings.Contains(r.Output, one.output) {
			t.Errorf("%s: %q, %s%s", one.tool, r.Code, r.Output, r.Error)
			continue
		}
		t.Logf("%s: %s %s", one.tool, r.Class, strings.SplitN(r.Output+r.Error, "\n", 2)[0])
		var kinds []toolyard.ContentType
		for _, part := range r.Content {
			kinds = append(kinds, part.Type)
		}
		if one.kinds != nil && !slices.Equal(kinds, one.kinds) {
			t.Errorf("%s gives %q, want %q", one.tool, kinds, one.kinds)
		}
		switch one.tool {
		case "get-structured-content":
			if !json.Valid(r.Structured) || !strings.Contains(string(r.Structured), "humidity") {
				t.Errorf("the structured output is %s", r.Structured)
			}
		case "trigger-long-running-operation", "simulate-research-query":
			if steps == 0 {
				t.Error("nobody saw progress")
			}
		case "get-env":
			if s.Command != nil && (!strings.Contains(r.Output, "to the server") ||
				strings.Contains(r.Output, programVariable)) {
				t.Errorf("the server's environment is %s", r.Output)
			}
		}
	}
}

// run makes one call, and counts the reports of its progress. The first waits until the dispatcher knows the tools.
func run(ctx context.Context, t *testing.T, c *client.Client, name, input string, first *bool) (toolyard.Result, int) {
	t.Helper()
	for {
		b, err := c.Submit(ctx, toolyard.Batch{Agent: "a",
			Calls: []toolyard.Call{{Tool: manifest.ToolName("everything", name), Input: json.RawMessage(input)}}})
		if err != nil {
			t.Fatal(err)
		}
		watched := make(chan int)
		go func() {
			n := 0
			for _, err := range b.Progress(ctx) {
				if err != nil {
					break
				}
				n++
			}
			watched <- n
		}()
		for r, err := range b.Results(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			steps := <-watched
			if *first && r.Code == toolyard.UnknownTool {
				break
			}
			*first = false
			return r, steps
		}
	}
}
