package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pattern"
)

// Operator is what stands in a token file where a token is nobody's in particular: it may do what any agent may, in the
// name of the agent that a request says.
const Operator = "*"

// Tokens says what each bearer token may do. It holds no token, only their hashes.
type Tokens struct {
	entries   atomic.Pointer[[]tokenEntry]
	replacing sync.Mutex
}

type tokenEntry struct {
	sum   [sha256.Size]byte
	agent string
	grant grant
	// revoked is closed when the token is not in force any more, or may do something else.
	revoked chan struct{}
}

// grant is what a token may do beside being its agent's. The zero value of a list is everything, of a number the
// server's own limit.
type grant struct {
	// agents are those in whose name it speaks, beside its own; workspaces and tools those that its batches may name.
	agents, workspaces, tools []string
	interactive               bool
	scopes                    []Scope
	// name is who has the token, in the log and in decisions; "" is the agent.
	name string
	// rate is how many requests a second it may make.
	rate                        int
	streams, connections, bytes int
}

// ReadTokens reads a token file; see [ParseTokens]. Nobody but its owner may have access to it, or the group of a file
// of another user.
func ReadTokens(path string) (*Tokens, error) {
	data, err := readTokenFile(path)
	if err != nil {
		return nil, err
	}
	t, err := ParseTokens(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func readTokenFile(path string) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); tooOpen(mode, own(info)) && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s has the mode %04o, so others can read or change the tokens; use chmod 600", path,
			mode.Perm())
	}
	return io.ReadAll(io.LimitReader(f, MaxTokenFileBytes+1))
}

// tooOpen reports whether a file of this mode may be others' to read. A file of another user that the group may read is
// how that user gives it to this process, and the only way: Kubernetes mounts secrets so, with the mode 0440.
func tooOpen(mode fs.FileMode, own bool) bool {
	if !own {
		mode &^= 0o040
	}
	return mode.Perm()&0o077 != 0
}

// ParseTokens reads lines "TOKEN AGENT [KEY=VALUE ...]", where the agent "*" is [Operator]; docs/http.md has the keys.
// Empty lines and those that begin with "#" mean nothing; any other line, and any other key, is an error, which names
// the line and never shows it.
func ParseTokens(data []byte) (*Tokens, error) {
	entries, err := parseTokens(data)
	if err != nil {
		return nil, err
	}
	t := &Tokens{}
	t.entries.Store(&entries)
	return t, nil
}

func parseTokens(data []byte) ([]tokenEntry, error) {
	if len(data) > MaxTokenFileBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxTokenFileBytes)
	}
	var entries []tokenEntry
	seen := map[[sha256.Size]byte]int{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, MaxTokenFileBytes+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			return nil, fmt.Errorf("line %d has %d words; want a token and an agent", n, len(words))
		}
		if !isToken(words[0]) {
			return nil, fmt.Errorf("line %d: the token is none that a header can carry; use letters, digits and -._~+/",
				n)
		}
		if err := toolyard.CheckName("the agent", words[1]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		g, err := parseGrant(words[1], words[2:])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		sum := sha256.Sum256([]byte(words[0]))
		if first, ok := seen[sum]; ok {
			return nil, fmt.Errorf("line %d has the token of line %d", n, first)
		}
		seen[sum] = n
		if entries = append(entries, tokenEntry{sum, words[1], g, make(chan struct{})}); len(entries) > MaxTokens {
			return nil, fmt.Errorf("it has more than %d tokens", MaxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("it has no token, so nobody could ask for anything")
	}
	return entries, nil
}

// parseGrant reads what a token may do. An error shows no word that may be a part of a token.
func parseGrant(agent string, words []string) (g grant, err error) {
	seen := map[string]bool{}
	for i, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return g, fmt.Errorf("word %d is no KEY=VALUE", i+3)
		}
		if seen[key] {
			return g, fmt.Errorf("word %d repeats a key; give its values in one, with commas", i+3)
		}
		seen[key] = true
		switch key {
		case "agents":
			g.agents, err = nameList(key, value, false)
		case "workspaces":
			g.workspaces, err = nameList(key, value, false)
		case "tools":
			g.tools, err = nameList(key, value, true)
		case "scopes":
			g.scopes, err = parseScopes(value)
		case "name":
			g.name, err = value, toolyard.CheckName(key, value)
		case "interactive":
			if value != "yes" && value != "no" {
				err = errors.New("interactive is yes or no")
			}
			g.interactive = value == "yes"
		case "rate":
			g.rate, err = bound(key, value, MaxTokenRate)
		case "streams":
			g.streams, err = bound(key, value, MaxAgentStreams)
		case "connections":
			g.connections, err = bound(key, value, MaxAgentConnections)
		case "bytes":
			g.bytes, err = bound(key, value, AgentBytesPerSecond)
		default:
			err = fmt.Errorf("word %d has a key that means nothing here; the keys are name, scopes, agents, "+
				"workspaces, tools, interactive, rate, streams, connections, bytes", i+3)
		}
		if err != nil {
			return g, err
		}
	}
	delete(seen, "name")
	delete(seen, "scopes")
	if agent == Operator && len(seen) > 0 {
		return g, errors.New("an operator's token takes the keys name and scopes only; for one that may do less, name " +
			"an agent")
	}
	return g, nil
}

func nameList(key, value string, patterns bool) ([]string, error) {
	list := strings.Split(value, ",")
	for _, name := range list {
		if patterns && name == "*" {
			return nil, fmt.Errorf("%s: leave it out for all", key)
		}
		if patterns {
			name = strings.TrimSuffix(name, "*")
		}
		if err := toolyard.CheckName(key, name); err != nil {
			return nil, err
		}
		if strings.Contains(name, "*") {
			return nil, fmt.Errorf("%s: a * stands at the end of a tool's name and nowhere else", key)
		}
	}
	return list, nil
}

func bound(key, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is a number from 1 to %d", key, most)
	}
	return n, nil
}

// Follow reads the file again every [TokenLook] until ctx ends, and does what it says from then on: requests and
// streams of a token that is gone, or may do something else, end. While the file cannot be used, the tokens that it had
// count for [TokenGrace], and then none does.
func (t *Tokens) Follow(ctx context.Context, path string, log *slog.Logger) {
	tick := time.NewTicker(TokenLook)
	defer tick.Stop()
	var last [sha256.Size]byte
	var bad time.Time
	for {
		data, err := readTokenFile(path)
		sum := sha256.Sum256(data)
		if err == nil && (sum != last || !bad.IsZero()) {
			var entries []tokenEntry
			if entries, err = parseTokens(data); err == nil {
				if t.replace(entries) {
					log.Info("the token file was read again", "file", path, "tokens", len(entries))
				}
				last, bad = sum, time.Time{}
			}
		}
		switch {
		case err == nil:
		case bad.IsZero():
			bad = time.Now()
			log.Error("the token file cannot be used; its former tokens count for a while", "file", path, "for",
				TokenGrace, "error", err)
		case time.Since(bad) >= TokenGrace && t.replace(nil):
			log.Error("the token file cannot be used, and no token counts any more", "file", path, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Read reads the file again at once, and does what it says from then on. Tokens of a file that cannot be used are not
// taken; [Tokens.Follow] says how long the former ones count.
func (t *Tokens) Read(path string) error {
	data, err := readTokenFile(path)
	if err != nil {
		return err
	}
	entries, err := parseTokens(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.replace(entries)
	return nil
}

// replace puts other tokens in force, and reports whether anything changed.
func (t *Tokens) replace(entries []tokenEntry) (changed bool) {
	t.replacing.Lock()
	defer t.replacing.Unlock()
	now := map[[sha256.Size]byte]int{}
	for i, e := range entries {
		now[e.sum] = i
	}
	before := *t.entries.Load()
	changed = len(before) != len(entries)
	var revoked []chan struct{}
	for _, e := range before {
		if i, ok := now[e.sum]; ok && entries[i].agent == e.agent && reflect.DeepEqual(entries[i].grant, e.grant) {
			entries[i].revoked = e.revoked
			continue
		}
		revoked, changed = append(revoked, e.revoked), true
	}
	t.entries.Store(&entries)
	for _, r := range revoked {
		close(r)
	}
	return changed
}

// isToken reports whether a text is a b64token of RFC 6750.
func isToken(s string) bool {
	body := strings.TrimRight(s, "=")
	return body != "" && !strings.ContainsFunc(body, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-._~+/", r))
	})
}

// find returns what a token may do. It takes as long for every token.
func (t *Tokens) find(token string) (found tokenEntry, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for _, e := range *t.entries.Load() {
		if subtle.ConstantTimeCompare(sum[:], e.sum[:]) == 1 {
			found, ok = e, true
		}
	}
	return found, ok
}

// caller is who asks: one agent, or anybody, who says for each request whose things are meant.
type caller struct {
	agent toolyard.Agent
	any   bool
	// name is what stands in the log where a person's decision does.
	name  string
	grant grant
	// token names the token in this process's own tables. revoked is closed when it is not in force any more; nil:
	// there is none.
	token   string
	revoked <-chan struct{}
	// expires is when the token runs out; zero: never.
	expires time.Time
	// proof is how the caller showed who it is.
	proof Proof
}

// Proof is how a caller showed who it is.
type Proof string

// The proofs.
const (
	ProvedByNothing Proof = "nothing" // the server asks nobody
	ProvedByToken   Proof = "token"
	ProvedByJWT     Proof = "jwt"
)

// identify finds out who asks.
func (s *Server) identify(r *http.Request) (caller, *Problem) {
	if !s.cfg.asks() {
		return caller{any: true, name: "http", proof: ProvedByNothing}, nil
	}
	token, p := s.bearer(r)
	if p != nil {
		return caller{}, p
	}
	var e tokenEntry
	ok := false
	if s.cfg.Tokens != nil {
		e, ok = s.cfg.Tokens.find(token)
	}
	switch {
	case !ok && s.cfg.Issuer != nil && isJWT(token):
		return s.cfg.Issuer.identify(r.Context(), token)
	case !ok:
		return caller{}, invalidToken("the token is none of this server's")
	}
	c := caller{
		agent: toolyard.Agent(e.agent), name: e.agent, grant: e.grant, proof: ProvedByToken,
		token: hex.EncodeToString(e.sum[:]), revoked: e.revoked,
	}
	if e.agent == Operator {
		c.agent, c.any, c.name = "", true, "operator"
	}
	if e.grant.name != "" {
		c.name = e.grant.name
	}
	if rate := float64(c.grant.rate); rate > 0 {
		if wait := s.rates.try(time.Now(), c.token, 1, rate, rate); wait > 0 {
			return caller{}, newProblem(http.StatusTooManyRequests, "",
				"the token may make %d requests a second; try again later", c.grant.rate).in(wait)
		}
	}
	return c, nil
}

// speaksFor reports whether the caller acts in an agent's name.
func (c caller) speaksFor(a toolyard.Agent) bool {
	return c.any || a == c.agent || slices.Contains(c.grant.agents, string(a))
}

// several reports whether the caller acts in more names than one.
func (c caller) several() bool { return c.any || len(c.grant.agents) > 0 }

// interactive reports whether the caller may say that a person can be asked.
func (c caller) interactive() bool { return c.any || c.grant.interactive }

// workspace refuses one that the token may not use.
func (c caller) workspace(w toolyard.Workspace) error {
	if w == "" {
		w = toolyard.DefaultWorkspace
	}
	if len(c.grant.workspaces) > 0 && !slices.Contains(c.grant.workspaces, string(w)) {
		return newProblem(http.StatusForbidden, "workspace", "the token may not use workspace %q", w)
	}
	return nil
}

// usesTool reports whether the token may use a tool.
func (c caller) usesTool(name string) bool {
	return len(c.grant.tools) == 0 || pattern.MatchesAny(c.grant.tools, name)
}

// calls refuses those of tools that the token may not use, also behind a batch. A name that no tool can have is none,
// and its call does not run.
func (c caller) calls(calls []toolyard.Call) error {
	for i, call := range calls {
		if !c.usesTool(call.Tool) && toolyard.CheckName("", call.Tool) == nil {
			return newProblem(http.StatusForbidden, fmt.Sprintf("calls[%d].tool", i),
				"the token may not use the tool %q", call.Tool)
		}
		if !strings.EqualFold(call.Tool, toolyard.BackgroundStart) {
			continue
		}
		// An input that cannot be read here may be mended later.
		var in toolyard.BackgroundStartInput
		if err := json.Unmarshal(call.Input, &in); (err != nil || in.Tool == "") && len(c.grant.tools) > 0 ||
			err == nil && !c.usesTool(in.Tool) {
			return newProblem(http.StatusForbidden, fmt.Sprintf("calls[%d].input", i),
				"the token may not use the tool %q in the background", in.Tool)
		}
	}
	return nil
}

// permit refuses a batch that the token may not hand in.
func (c caller) permit(b *toolyard.Batch) error {
	if b.Interactive && !c.interactive() {
		return newProblem(http.StatusForbidden, "interactive",
			"the token does not say that a person can be asked; leave it out")
	}
	if err := c.workspace(b.Workspace); err != nil {
		return err
	}
	return c.calls(b.Calls)
}

// meant is the agent whose things a path and ?agent= mean. What is another agent's is not there.
func (c caller) meant(asked string) (toolyard.Agent, error) {
	switch {
	case c.any && asked == "":
		return toolyard.DefaultAgent, nil
	case c.any:
		return toolyard.Agent(asked), toolyard.CheckName("agent", asked)
	case asked == "":
		return c.agent, nil
	case !c.speaksFor(toolyard.Agent(asked)):
		return "", newProblem(http.StatusNotFound, "agent", "there is no such agent for this token")
	}
	return toolyard.Agent(asked), nil
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
		return "", newProblem(http.StatusBadRequest, "agent", "the body says %q and ?agent= another; leave one out",
			body)
	}
	if body == "" {
		body = toolyard.Agent(asked)
	}
	switch {
	case c.any:
		return body, nil
	case body == "":
		return c.agent, nil
	case c.speaksFor(body):
		return body, nil
	}
	return "", newProblem(http.StatusForbidden, "agent", "the token is another agent's; leave the agent out")
}
