//go:build unix

package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

type blobs map[string]string

func (m blobs) ReadBlob(_ context.Context, ref string) ([]byte, error) {
	if ref == "broken" {
		return nil, errors.New("nats: no responders at 10.0.0.7")
	}
	data, ok := m[ref]
	if !ok {
		return nil, fmt.Errorf("%s: %w", ref, tool.ErrNoBlob)
	}
	return []byte(data), nil
}

func TestReadResult(t *testing.T) {
	b := newBench(t)
	b.env.WorkspaceDir, b.env.Root = "", nil // it needs none
	b.refused(toolyard.SetupRequired, "read_result", in{"ref": "r"})
	long := strings.Repeat("é", DefaultResultChars) + "END"
	b.env.Blobs = blobs{"short": "aé\nb", "long": long, "empty": "", "bytes": "a\xff\xfeb",
		"wide": strings.Repeat("𝄞", 100_000)}
	for _, c := range []struct {
		input in
		want  string
	}{
		{in{"ref": "short"}, "aé\nb"},
		{in{"ref": "short", "offset": 1, "limit": 2},
			"é\n\n[characters 1 to 2 of 4; call read_result again with offset 3]"},
		{in{"ref": "short", "offset": 3}, "b\n[characters 3 to 3 of 4; it ends here]"},
		{in{"ref": "empty"}, "[the result is empty]"},
		{in{"ref": "bytes"}, "a\ufffd\ufffdb"},
		{in{"ref": "bytes", "offset": 2, "limit": 1},
			"\ufffd\n[characters 2 to 2 of 4; call read_result again with offset 3]"},
		{in{"ref": "long"}, long[:2*DefaultResultChars] +
			"\n[characters 0 to 49999 of 50003; call read_result again with offset 50000]"},
		{in{"ref": "long", "offset": DefaultResultChars}, "END\n[characters 50000 to 50002 of 50003; it ends here]"},
	} {
		if got := b.ok("read_result", c.input); got != c.want {
			t.Errorf("%v: %.300q, want %.300q", c.input, got, c.want)
		}
	}
	out := b.ok("read_result", in{"ref": "wide", "limit": 100_000})
	if b.contains(out,
		"[characters 0 to 65407 of 100000; call read_result again with offset 65408]"); len(out) > MaxOutputBytes {
		t.Errorf("an answer of %d bytes", len(out))
	}
	for _, bad := range []in{{"ref": ""}, {"ref": strings.Repeat("r", MaxRefBytes+1)}, {"ref": "short", "offset": -1},
		{"ref": "short", "limit": 0}} {
		b.refused(toolyard.InvalidArguments, "read_result", bad)
	}
	for _, bad := range []in{{"ref": "unknown"}, {"ref": "short", "offset": 4}, {"ref": "empty", "offset": 1}} {
		if err := b.run("read_result", bad); tool.AsError(err).Code != toolyard.InvalidArguments {
			t.Errorf("%v: %v", bad, err)
		}
	}
	err := b.run("read_result", in{"ref": "broken"})
	if e := tool.AsError(err); e.Code != toolyard.DependencyUnavailable || !e.Retryable ||
		strings.Contains(e.Message, "10.0.0.7") {
		t.Errorf("a broken store: %v", err)
	}
}

// TestReadResultShowsImages: a model that asks for one is to see it, and not its bytes.
func TestReadResultShowsImages(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	out, err := runReadResult(t.Context(), tool.Env{Blobs: blobs{"shot": png}}, readResultInput{Ref: "shot"})
	if err != nil || len(out.Content) != 1 || out.Content[0].Type != toolyard.ContentImage ||
		out.Content[0].MIMEType != "image/png" || string(out.Content[0].Data) != png {
		t.Errorf("%+v, %v", out, err)
	}
}
