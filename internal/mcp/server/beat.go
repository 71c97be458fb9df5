package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/pause"
)

// A request that stands alone is canceled by closing its response, and proxies close what is silent. So the response of
// a call that takes long says now and then that it is there: in a comment, which clients pass over.

// beating is a response that can be written to from beside whoever answers.
type beating struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (b *beating) Header() http.Header { return b.w.Header() }

func (b *beating) WriteHeader(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.w.WriteHeader(status)
}

func (b *beating) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(p), write(b.w, p)
}

// FlushError sends what was written.
func (b *beating) FlushError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return http.NewResponseController(b.w).Flush()
}

type beatingKey struct{}

// beat keeps the response of a call's request alive until stop is called. The handler of a call must call it: by then
// the response's headers are those of a stream of events. Sessions' streams need none: closing them cancels nothing.
func beat(ctx context.Context, every time.Duration) (stop func()) {
	b, ok := ctx.Value(beatingKey{}).(*beating)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause.For(ctx, every) == nil {
			if _, err := b.Write([]byte(": still here\n\n")); err != nil {
				return // the client is gone, which the request learns itself
			}
			if b.FlushError() != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
