package api

import (
	"context"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

type blobInput struct {
	Ref    string `path:"ref" doc:"The blob of a result."`
	Agent  string `query:"agent" doc:"Whose result it is, when no token says so."`
	Offset int    `query:"offset" minimum:"0" default:"0" doc:"How many bytes to leave out at the beginning."`
	Limit  int    `query:"limit" minimum:"1" maximum:"4194304" default:"65536" doc:"How many bytes to send at most. A character is never cut, so a little more or less may come."`
}

// Blob is a part of an offloaded result.
type Blob struct {
	Ref     string `json:"ref"`
	Size    int    `json:"size" doc:"How many bytes the whole has."`
	Offset  int    `json:"offset" doc:"Where content begins."`
	Next    int    `json:"next,omitempty" doc:"The offset of the next part; left out when this is the last."`
	Content string `json:"content" doc:"The part, of a result that is text."`
	Data    []byte `json:"data,omitempty" doc:"The part in base64, of a result that is no text, such as an image."`
}

func (s *Server) blob(ctx context.Context, x *exchange, in *blobInput) (*struct{ Body Blob }, error) {
	agent, err := x.who.meant(in.Agent)
	if err != nil {
		return nil, err
	}
	leave, err := enter(s.blobs, x.who)
	if err != nil {
		return nil, err
	}
	defer leave()
	all, err := s.cfg.Client.Blob(ctx, agent, in.Ref)
	if err != nil {
		return nil, err
	}
	if in.Offset > len(all) {
		return nil, newProblem(http.StatusBadRequest, "offset", "is %d, but the result has %d bytes", in.Offset,
			len(all))
	}
	if !utf8.Valid(all) {
		out := Blob{Ref: in.Ref, Size: len(all), Offset: in.Offset}
		to := min(len(all), in.Offset+in.Limit)
		if out.Data = all[in.Offset:to]; to < len(all) {
			out.Next = to
		}
		return &struct{ Body Blob }{out}, nil
	}
	from := characterAt(all, in.Offset)
	to := characterAt(all, min(len(all), from+in.Limit))
	if to == from && from < len(all) { // less was asked for than the next character has
		_, n := utf8.DecodeRune(all[from:])
		to = from + n
	}
	out := Blob{Ref: in.Ref, Size: len(all), Offset: from, Content: string(all[from:to])}
	if to < len(all) {
		out.Next = to
	}
	return &struct{ Body Blob }{out}, nil
}

// characterAt moves an offset back to where its character begins.
func characterAt(b []byte, at int) int {
	for back := 0; back < utf8.UTFMax && at-back >= 0; back++ {
		if at-back == len(b) || utf8.RuneStart(b[at-back]) {
			return at - back
		}
	}
	return at
}

// Workers are the live ones.
type Workers struct {
	Workers []client.Worker `json:"workers"`
}

func (s *Server) workers(ctx context.Context, x *exchange, _ *nothing) (*struct{ Body Workers }, error) {
	list, err := s.cfg.Client.Workers(ctx)
	for i := range list { // a reader of JSON counts what is there, and null has no length
		w := &list[i]
		w.Classes, w.Workspaces = append([]toolyard.Class{}, w.Classes...),
			append([]toolyard.Workspace{}, w.Workspaces...)
		w.Conflicts = append([]string{}, w.Conflicts...)
		if w.Breakers == nil {
			w.Breakers = map[string]time.Time{}
		}
		if !x.who.any { // a view may hide the tools that they name
			w.Host, w.NoIsolation, w.Remarks, w.Conflicts = "", "", nil, []string{}
		}
	}
	return &struct{ Body Workers }{Workers{append([]client.Worker{}, list...)}}, err
}
