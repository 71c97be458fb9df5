package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// slowBlobs is a server whose results come when the test says so.
type slowBlobs struct {
	asked   chan struct{}
	release chan struct{}
}

func (b slowBlobs) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if strings.HasPrefix(r.URL.Path, "/v1/blobs/") {
		b.asked <- struct{}{}
		<-b.release
		if _, err := io.WriteString(w, `{"size":1,"content":"x"}`); err != nil {
			return nil, err
		}
	}
	return w.Result(), nil
}

// TestResourceReadsAreBounded: each holds a whole result, and one message may ask for thousands of them.
func TestResourceReadsAreBounded(t *testing.T) {
	t.Parallel()
	blobs := slowBlobs{make(chan struct{}), make(chan struct{})}
	c, err := client.ConnectHTTP(t.Context(), "http://pool.example",
		client.HTTPOptions{Client: &http.Client{Transport: blobs}})
	must.OK(t, err)
	s, err := New(Config{Client: c, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must.OK(t, err)
	defer s.Stop()
	ended := make(chan error, MaxAgentReads+1)
	read := func() {
		_, err := s.readBlob(context.WithoutCancel(t.Context()),
			&mcp.ReadResourceRequest{Params: &mcp.ReadResourceParams{URI: "toolyard://blobs/r"}})
		ended <- err
	}
	for range MaxAgentReads {
		go read()
		<-blobs.asked
	}
	go read()
	select {
	case <-blobs.asked:
		t.Errorf("%d results are read for one agent at a time", MaxAgentReads+1)
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "again") {
			t.Errorf("one more than may be: %v", err)
		}
	}
	close(blobs.release)
	for range MaxAgentReads {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	go read()
	<-blobs.asked
	if err := <-ended; err != nil {
		t.Errorf("when the others are over: %v", err)
	}
}
