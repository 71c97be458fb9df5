package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// MaxFillBytes is how much data [Batch.Fill] fetches at most, and MaxFillPartBytes of one part.
const (
	MaxFillBytes     = 16 << 20
	MaxFillPartBytes = 4 << 20
)

// Fill fetches the images and other data of results that were too large to travel in them, so that they can be shown to
// a model: it sets [toolyard.Content].Data where only a reference stands, in order, as far as the limits allow. What is
// not fetched keeps its reference, and is told of in words; so does what is there no longer.
func (b *Batch) Fill(ctx context.Context, results []toolyard.Result) error {
	room := int64(MaxFillBytes)
	for i := range results {
		own := false // others who follow the batch may have the same content
		for n := range results[i].Content {
			p := &results[i].Content[n]
			media := p.Type == toolyard.ContentImage || p.Type == toolyard.ContentAudio ||
				p.Type == toolyard.ContentResource
			if !media || p.Blob == "" || p.Data != nil || p.Text != "" || p.Size > min(room, MaxFillPartBytes) {
				continue
			}
			data, err := b.c.t.blob(ctx, b.key.Agent, p.Blob)
			if errors.Is(err, tool.ErrNoBlob) {
				continue
			}
			if err != nil {
				return fmt.Errorf("fetch part %d of the result of call %d: %w", n, results[i].Index, err)
			}
			if !own {
				results[i].Content, own = slices.Clone(results[i].Content), true
			}
			results[i].Content[n].Data = data
			room -= int64(len(data))
		}
	}
	return nil
}

// Blob reads what a result of an agent refers to: [toolyard.Result].Blob, or that of a part of its content. It wraps
// [tool.ErrNoBlob] when there is no such thing, or no longer. Over HTTP it reads [MaxBlobBytes] at most.
func (c *Client) Blob(ctx context.Context, a toolyard.Agent, ref string) ([]byte, error) {
	return c.t.blob(ctx, c.t.whose(a), ref)
}

func (t overNATS) blob(ctx context.Context, a toolyard.Agent, ref string) ([]byte, error) {
	return t.b.Result(ctx, a, ref)
}

// MaxBlobBytes is how much [Client.Blob] reads over HTTP, more than any result has. blobPage is how much of it is asked
// for at a time.
const (
	MaxBlobBytes = 64 << 20
	blobPage     = 2 << 20
)

func (t *overHTTP) blob(ctx context.Context, a toolyard.Agent, ref string) ([]byte, error) {
	var all []byte
	for {
		var page struct {
			Size, Next int
			Content    string
			Data       []byte
		}
		query := of(a)
		query.Set("offset", strconv.Itoa(len(all)))
		query.Set("limit", strconv.Itoa(blobPage))
		err := t.ask(ctx, request{method: http.MethodGet, path: path("v1", "blobs", ref), query: query}, &page)
		if gone, ok := errors.AsType[*HTTPError](err); ok && gone.Status == http.StatusNotFound {
			return nil, fmt.Errorf("%w: %s", tool.ErrNoBlob, ref)
		}
		if err != nil {
			return nil, err
		}
		all = append(append(all, page.Content...), page.Data...)
		switch {
		case page.Next == 0:
			return all, nil
		case page.Size > MaxBlobBytes:
			return nil, fmt.Errorf("the result %s has %d bytes, and at most %d are read over HTTP", ref, page.Size,
				MaxBlobBytes)
		case page.Next != len(all):
			return nil,
				fmt.Errorf("the result %s comes in parts that do not fit together: %d bytes of %d, and the next is "+
					"at %d", ref, len(all), page.Size, page.Next)
		}
	}
}
