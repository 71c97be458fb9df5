package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/tool"
)

// An offloaded result is toolyard://blobs/REF. It is whoever's result it is that may read it: a reference of another
// agent leads nowhere.
const (
	blobScheme = "toolyard"
	blobHost   = "blobs"
	blobMatch  = blobScheme + "://" + blobHost + "/{ref}{?type,offset,limit}"
)

// The fields of a part's _meta that say where it belongs.
const (
	metaSize = "dev.toolyard/size" // bytes of the whole
	metaNext = "dev.toolyard/next" // the address of the part behind this one
)

func (s *Server) addResources() {
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "offloaded result", URITemplate: blobMatch,
		Description: fmt.Sprintf("An output that was too long for its result. offset and limit, in bytes, name a "+
			"part of it: %d bytes when limit is left out, %d at most.",
			DefaultResourceBytes, MaxResourceBytes),
	}, s.readBlob)
}

// blobRequest is what an address of an offloaded result asks for.
type blobRequest struct {
	ref, kind     string
	offset, limit int
}

// parseBlobURI reads an address. Its errors are for the client.
func parseBlobURI(uri string) (b blobRequest, err error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != blobScheme || u.Host != blobHost || u.User != nil || u.Fragment != "" {
		return b, fmt.Errorf("%q is no address of the form %s", cut(uri, maxMessageBytes), blobMatch)
	}
	b = blobRequest{ref: strings.TrimPrefix(u.Path, "/"), limit: DefaultResourceBytes}
	if b.ref == "" || strings.ContainsRune(b.ref, '/') {
		return b, errors.New("the address has no reference of a result")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return b, fmt.Errorf("the address: %w", err)
	}
	b.kind = q.Get("type")
	for _, n := range []struct {
		name     string
		to       *int
		min, to2 int
	}{{"offset", &b.offset, 0, 1 << 40}, {"limit", &b.limit, 1, MaxResourceBytes}} {
		if !q.Has(n.name) {
			continue
		}
		v, err := strconv.Atoi(q.Get(n.name))
		if err != nil || v < n.min || v > n.to2 {
			return b, fmt.Errorf("%s: use %d to %d", n.name, n.min, n.to2)
		}
		*n.to = v
	}
	return b, nil
}

// readBlob answers with an offloaded result of the caller, or with a part of it.
func (s *Server) readBlob(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	b, err := parseBlobURI(uri)
	if err != nil {
		return nil, malformed("%v", err)
	}
	agent := s.callerOf(req.Extra).Agent
	leave, full := s.reads.Enter(agent, 0)
	if full != nil {
		return nil, busy("%d results are read now, the most that may be at a time; read again in a moment", full.Count)
	}
	defer leave()
	all, err := s.cfg.Client.Blob(ctx, agent, b.ref)
	switch {
	case errors.Is(err, tool.ErrNoBlob):
		return nil, mcp.ResourceNotFoundError(uri)
	case err != nil:
		s.cfg.Log.Error("an offloaded result was not read", "error", err)
		return nil, errors.New("the result cannot be read now; ask again later")
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{b.part(uri, all)}}, nil
}

// part is the part of a result that is asked for. Of a text, no character is cut.
func (b *blobRequest) part(uri string, all []byte) *mcp.ResourceContents {
	text := utf8.Valid(all) && (b.kind == "" || strings.HasPrefix(b.kind, "text/") || strings.HasSuffix(b.kind, "json"))
	from := min(b.offset, len(all))
	to := min(len(all), from+b.limit)
	if text {
		from, to = character(all, from), character(all, to)
		if to <= from && from < len(all) { // less was asked for than the next character has
			_, n := utf8.DecodeRune(all[from:])
			to = from + n
		}
	}
	out := &mcp.ResourceContents{URI: uri, MIMEType: b.kind, Meta: mcp.Meta{metaSize: len(all)}}
	if to < len(all) {
		out.Meta[metaNext] = b.at(to)
	}
	if text {
		if out.Text = string(all[from:to]); out.MIMEType == "" {
			out.MIMEType = "text/plain"
		}
		return out
	}
	if out.Blob = all[from:to]; out.MIMEType == "" {
		out.MIMEType = "application/octet-stream"
	}
	return out
}

// at is the address of the same result from an offset on.
func (b *blobRequest) at(offset int) string {
	q := url.Values{"offset": {strconv.Itoa(offset)}}
	if b.kind != "" {
		q.Set("type", b.kind)
	}
	if b.limit != DefaultResourceBytes {
		q.Set("limit", strconv.Itoa(b.limit))
	}
	u := url.URL{Scheme: blobScheme, Host: blobHost, Path: "/" + b.ref, RawQuery: q.Encode()}
	return u.String()
}

// character moves an offset back to where its character begins.
func character(b []byte, at int) int {
	for at > 0 && at < len(b) && !utf8.RuneStart(b[at]) {
		at--
	}
	return at
}
