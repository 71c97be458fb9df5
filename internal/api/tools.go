package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// The tools of the next batch. What a batch sees is pinned when it is planned; between two batches workers come and go,
// and a session loads tools. So an agent asks before each request to its model, and mostly hears that nothing has
// changed.

type toolsInput struct {
	Format    string   `query:"format" required:"true" enum:"anthropic,openai,openai-chat,gemini,mcp,native" doc:"Whose form: the answer is exactly the array tools of a request. native is the surface itself, with all declarations."`
	Session   string   `query:"session" doc:"The conversation: deferred tools that it has loaded are told where a form cannot defer."`
	Agent     string   `query:"agent" doc:"Whose session it is, when no token says so."`
	Workspace string   `query:"workspace" doc:"Where the calls will act." default:"default"`
	Strict    bool     `query:"strict" doc:"Have the provider hold its model to the schema, where the schema has such a form."`
	Deny      []string `query:"deny,explode" doc:"A deny rule that the batch will bring: what it takes out is not told. May be given many times."`
	Match     string   `header:"If-None-Match" doc:"The ETag of the last answer: 304 when nothing has changed."`
}

type toolsAnswer struct {
	Status      int
	ContentType string `header:"Content-Type"`
	ETag        string `header:"ETag" doc:"A name of this answer, for If-None-Match."`
	Body        []byte
}

func (s *Server) tools(ctx context.Context, x *exchange, in *toolsInput) (*toolsAnswer, error) {
	if s.cfg.Surface == nil {
		return nil, errors.New("this server was not told the tools")
	}
	agent, err := x.who.meant(in.Agent)
	if err != nil {
		return nil, err
	}
	b := toolyard.Batch{Agent: agent, Session: toolyard.Session(in.Session),
		Workspace: toolyard.Workspace(in.Workspace), Open: true, Options: toolyard.Options{Deny: in.Deny}}
	b.Normalize("tools")
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if err := x.who.workspace(b.Workspace); err != nil {
		return nil, err
	}
	surface, err := s.cfg.Surface(b.Agent, b.Workspace, b.Options)
	if err != nil {
		return nil, err
	}
	if hidden := hiddenTools(x.who, surface.Declarations()); len(hidden) > 0 {
		b.Options.Deny = append(slices.Clip(b.Options.Deny), hidden...)
		if surface, err = s.cfg.Surface(b.Agent, b.Workspace, b.Options); err != nil {
			return nil, err
		}
	}
	session, err := s.cfg.Client.Session(ctx, b.Agent, b.Session)
	if err != nil {
		return nil, err
	}
	if !provider.TellsLoaded(provider.Format(in.Format)) { // a load changes nothing there, and the tag stays
		session.Loaded = nil
	}
	etag, err := toolsTag(&surface, in, session.Loaded)
	if err != nil {
		return nil, err
	}
	if matches(in.Match, etag) {
		return &toolsAnswer{Status: http.StatusNotModified, ETag: etag}, nil
	}
	if in.Format == string(provider.Native) {
		data, err := surface.Encode()
		return &toolsAnswer{Status: http.StatusOK, ContentType: "application/json", ETag: etag, Body: data}, err
	}
	rule, err := provider.ToolNames(provider.Format(in.Format))
	if err != nil {
		return nil, err
	}
	loaded := make(map[string]bool, len(session.Loaded))
	for _, name := range session.Loaded {
		loaded[name] = true
	}
	data, _, err := provider.Tools(provider.Format(in.Format), surface.Declarations(),
		provider.ToolOptions{Strict: in.Strict, Loaded: loaded, Names: surface.Names(rule)})
	return &toolsAnswer{Status: http.StatusOK, ContentType: "application/json", ETag: etag, Body: data}, err
}

// hiddenTools are those that the token may not use.
func hiddenTools(who caller, all []tool.Declaration) (out []string) {
	for _, d := range all {
		if !who.usesTool(d.Name) {
			out = append(out, d.Name)
		}
	}
	return out
}

// toolsTag names an answer by all that it is made of.
func toolsTag(surface *registry.Surface, in *toolsInput, loaded []string) (string, error) {
	loaded = slices.Sorted(slices.Values(loaded))
	text, err := json.Marshal([]any{surface.Hash, loaded, in.Format, in.Strict})
	if err != nil {
		return "", fmt.Errorf("name the tools: %w", err)
	}
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`, nil
}

// matches reports whether a list of tags, as of If-None-Match, has a tag.
func matches(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}
