// Command cedar asks a policy engine about calls. It is an HTTP hook, and the engine is Cedar, with the policies of a
// file.
//
//	go run ./examples/cedar --listen 127.0.0.1:8181 --policies examples/cedar/policies.cedar
//	dispatcher run --hooks examples/cedar/hooks.json batch.json
//
// A call that the policies permit is allowed, as far as no rule denies it or asks about it; any other is denied. When a
// policy cannot be evaluated, the answer is an error: the hook is broken, and the call does not run.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
)

// The limits of the server.
const (
	maxEventBytes = 4 << 20 // of a hook's event, whose input has at most 1 MiB
	readTimeout   = 10 * time.Second
	stopTimeout   = 5 * time.Second
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8181", "the address of the hook")
	file := flag.String("policies", "policies.cedar", "the file of policies")
	flag.Parse()
	if err := serve(*listen, *file); err != nil {
		log.Fatal("cedar: ", err)
	}
}

func serve(listen, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	policies, err := cedar.NewPolicySetFromBytes(file, text)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("hook: http://%s/\n", l.Addr())
	server := &http.Server{Handler: hook{policies}, ReadTimeout: readTimeout}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return server.Shutdown(ctx)
}

// event is what the policies are asked about, of the event before a call.
type event struct {
	Input    json.RawMessage `json:"tool_input"`
	Toolyard struct {
		Agent     string `json:"agent"`
		Workspace string `json:"workspace"`
		Tool      string `json:"tool"`
		Judgement struct {
			Class    string `json:"class"`
			ReadOnly bool   `json:"read_only"`
		} `json:"judgement"`
	} `json:"toolyard"`
}

// hook answers the events before calls.
type hook struct{ policies *cedar.PolicySet }

func (h hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verdict, reason, err := h.decide(http.MaxBytesReader(w, r.Body, maxEventBytes))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(map[string]any{"hookSpecificOutput": map[string]string{
		"hookEventName": "PreToolUse", "permissionDecision": verdict, "permissionDecisionReason": reason,
	}}); err != nil {
		log.Print("cedar: send an answer: ", err)
	}
}

// decide asks the policies about the call of an event.
func (h hook) decide(body io.Reader) (verdict, reason string, err error) {
	var e event
	if err := json.NewDecoder(body).Decode(&e); err != nil {
		return "", "", fmt.Errorf("read the event: %w", err)
	}
	input, err := record(e.Input)
	if err != nil {
		return "", "", fmt.Errorf("read the input: %w", err)
	}
	decision, why := cedar.Authorize(h.policies, types.EntityMap{}, cedar.Request{
		Principal: cedar.NewEntityUID("Agent", cedar.String(e.Toolyard.Agent)),
		Action:    cedar.NewEntityUID("Action", "call"),
		Resource:  cedar.NewEntityUID("Tool", cedar.String(e.Toolyard.Tool)),
		Context: cedar.NewRecord(cedar.RecordMap{
			"input": input, "workspace": cedar.String(e.Toolyard.Workspace),
			"class":     cedar.String(e.Toolyard.Judgement.Class),
			"read_only": cedar.Boolean(e.Toolyard.Judgement.ReadOnly),
		}),
	})
	if len(why.Errors) > 0 {
		return "", "", fmt.Errorf("a policy cannot be evaluated: %s", why.Errors[0])
	}
	var reasons []string
	for _, r := range why.Reasons {
		p := h.policies.Get(r.PolicyID)
		reasons = append(reasons, cmp.Or(string(p.Annotations()["reason"]), string(r.PolicyID)))
	}
	slices.Sort(reasons)
	switch {
	case decision == cedar.Allow:
		return "allow", strings.Join(reasons, "; "), nil
	case len(reasons) == 0:
		return "deny", "no policy permits this call", nil
	}
	return "deny", strings.Join(reasons, "; "), nil
}

// record is a JSON object as Cedar has it: without nulls, and with texts for numbers that are no integers.
func record(data json.RawMessage) (types.Value, error) {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	return value(doc)
}

func value(v any) (types.Value, error) {
	switch v := v.(type) {
	case string:
		return cedar.String(v), nil
	case bool:
		return cedar.Boolean(v), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return cedar.Long(n), nil
		}
		return cedar.String(v), nil
	case []any:
		var set []types.Value
		for _, item := range v {
			if item == nil {
				continue
			}
			made, err := value(item)
			if err != nil {
				return nil, err
			}
			set = append(set, made)
		}
		return cedar.NewSet(set...), nil
	case map[string]any:
		out := cedar.RecordMap{}
		for name, item := range v {
			if item == nil {
				continue
			}
			made, err := value(item)
			if err != nil {
				return nil, err
			}
			out[cedar.String(name)] = made
		}
		return cedar.NewRecord(out), nil
	}
	return nil, errors.New("a value of no known kind")
}
