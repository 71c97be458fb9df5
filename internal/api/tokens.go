package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/toolyard/toolyard"
)

// Operator is what stands in a token file where a token is nobody's in particular: it may do what any agent may, in the name
// of the agent that a request says.
const Operator = "*"

// Tokens says which agent each bearer token stands for. It holds no token, only their hashes.
type Tokens struct{ entries []tokenEntry }

type tokenEntry struct {
	sum   [sha256.Size]byte
	agent string
}

// ReadTokens reads a token file; see [ParseTokens].
func ReadTokens(path string) (_ *Tokens, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, MaxTokenFileBytes+1))
	if err != nil {
		return nil, err
	}
	t, err := ParseTokens(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// ParseTokens reads lines "TOKEN AGENT", where the agent "*" is [Operator]. Empty lines and those that begin with "#" mean
// nothing; any other line is an error, which names the line and never shows it.
func ParseTokens(data []byte) (*Tokens, error) {
	if len(data) > MaxTokenFileBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxTokenFileBytes)
	}
	t := &Tokens{}
	seen := map[[sha256.Size]byte]int{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, MaxTokenFileBytes+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 2 {
			return nil, fmt.Errorf("line %d has %d words; want a token and an agent", n, len(words))
		}
		if !isToken(words[0]) {
			return nil, fmt.Errorf("line %d: the token is none that a header can carry; use letters, digits and -._~+/", n)
		}
		if err := toolyard.CheckName("the agent", words[1]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		sum := sha256.Sum256([]byte(words[0]))
		if first, ok := seen[sum]; ok {
			return nil, fmt.Errorf("line %d has the token of line %d", n, first)
		}
		seen[sum] = n
		if t.entries = append(t.entries, tokenEntry{sum, words[1]}); len(t.entries) > MaxTokens {
			return nil, fmt.Errorf("it has more than %d tokens", MaxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.entries) == 0 {
		return nil, errors.New("it has no token, so nobody could ask for anything")
	}
	return t, nil
}

// isToken reports whether a text is a b64token of RFC 6750.
func isToken(s string) bool {
	body := strings.TrimRight(s, "=")
	return body != "" && !strings.ContainsFunc(body, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~+/", r))
	})
}

// agent returns whose token it is. It takes as long for every token.
func (t *Tokens) agent(token string) (agent string, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for _, e := range t.entries {
		if subtle.ConstantTimeCompare(sum[:], e.sum[:]) == 1 {
			agent, ok = e.agent, true
		}
	}
	return agent, ok
}

// caller is who asks: one agent, or anybody, who says for each request whose things are meant.
type caller struct {
	agent toolyard.Agent
	any   bool
	// name is what stands in the log where a person's decision does.
	name string
}

// identify finds out who asks.
func (s *Server) identify(r *http.Request) (caller, *Problem) {
	if s.cfg.Tokens == nil {
		return caller{any: true, name: "http"}, nil
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || len(r.Header.Values("Authorization")) != 1 {
		return caller{}, newProblem(http.StatusUnauthorized, "Authorization", "send one header Authorization: Bearer TOKEN, with a token of this server")
	}
	agent, ok := s.cfg.Tokens.agent(strings.TrimSpace(token))
	switch {
	case !ok:
		return caller{}, newProblem(http.StatusUnauthorized, "Authorization", "the token is none of this server's")
	case agent == Operator:
		return caller{any: true, name: "operator"}, nil
	}
	return caller{agent: toolyard.Agent(agent), name: agent}, nil
}

// meant is the agent whose things a path and ?agent= mean. What is another agent's is not there.
func (c caller) meant(asked string) (toolyard.Agent, error) {
	switch {
	case c.any && asked == "":
		return toolyard.DefaultAgent, nil
	case c.any:
		return toolyard.Agent(asked), toolyard.CheckName("agent", asked)
	case asked != "" && asked != string(c.agent):
		return "", newProblem(http.StatusNotFound, "agent", "there is no such agent for this token")
	}
	return c.agent, nil
}

// listed is the agent whose things are listed; empty means everybody's.
func (c caller) listed(asked string) (toolyard.Agent, error) {
	if c.any && asked == "" {
		return "", nil
	}
	return c.meant(asked)
}

// submits is the agent of a batch that says it is of the agent named in its body, or in ?agent=.
func (c caller) submits(body toolyard.Agent, asked string) (toolyard.Agent, error) {
	if body != "" && asked != "" && string(body) != asked {
		return "", newProblem(http.StatusBadRequest, "agent", "the body says %q and ?agent= another; leave one out", body)
	}
	if body == "" {
		body = toolyard.Agent(asked)
	}
	if c.any || body == "" || body == c.agent {
		if !c.any {
			return c.agent, nil
		}
		return body, nil
	}
	return "", newProblem(http.StatusForbidden, "agent", "the token is another agent's; leave the agent out")
}
