package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// The limits of sending.
const (
	// MaxAnswerBytes is how much of a collector's answer is read.
	MaxAnswerBytes = 64 << 10
	// firstPause is how long the sender waits before it repeats a request, doubled each time. It gives up when the time
	// limit of the export is over (OTEL_EXPORTER_OTLP_TIMEOUT).
	firstPause = 500 * time.Millisecond
	// longestPause is the longest of these waits, unless the collector asks for more.
	longestPause = 5 * time.Second
)

// sender posts one signal to a collector.
type sender struct {
	to      target
	client  *http.Client
	version string
}

// send posts a message, and repeats that while the collector says that it may pass, until the time limit is over.
func (s *sender) send(ctx context.Context, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode for %s: %w", s.to.shown, err)
	}
	if s.to.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(body); err != nil {
			return fmt.Errorf("compress for %s: %w", s.to.shown, err)
		}
		if err := w.Close(); err != nil {
			return fmt.Errorf("compress for %s: %w", s.to.shown, err)
		}
		body = packed.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, s.to.timeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		mayPass, after, err := s.post(ctx, body)
		if err == nil {
			return nil
		}
		if !mayPass || ctx.Err() != nil {
			return fmt.Errorf("send to %s: %w", s.to.shown, err)
		}
		again := time.NewTimer(max(pause, after))
		select {
		case <-ctx.Done():
			again.Stop()
			return fmt.Errorf("send to %s: %w", s.to.shown, err)
		case <-again.C:
		}
	}
}

// post makes one request. If it fails, it returns whether another may succeed, and how long to wait at least before.
func (s *sender) post(ctx context.Context, body []byte) (mayPass bool, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to.url, bytes.NewReader(body))
	if err != nil {
		return false, 0, err
	}
	for name, v := range s.to.headers {
		req.Header.Set(name, v)
	}
	req.Header.Set("User-Agent", "toolyard/"+s.version)
	req.Header.Set("Content-Type", "application/x-protobuf")
	if s.to.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return true, 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	// what it says of a part that it has refused is for the collector's own log
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, MaxAnswerBytes)); err != nil && resp.StatusCode >= 300 {
		return true, 0, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, retryAfter(resp.Header.Get("Retry-After")), errors.New(resp.Status)
	}
	return false, 0, errors.New(resp.Status)
}

// retryAfter reads the header of that name, in seconds.
func retryAfter(text string) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// UploadTraces makes a sender what OpenTelemetry's exporter of spans sends with.
func (s *sender) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// This is the request's form too, without the package that also has its service in gRPC.
	return s.send(ctx, &tracepb.TracesData{ResourceSpans: spans})
}

// Start does nothing: the first request connects.
func (s *sender) Start(context.Context) error { return nil }

// Stop closes the connections.
func (s *sender) Stop(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}
