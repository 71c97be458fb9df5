package command

import (
	"io"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestAByteOrderMarkIsNoPartOfJSON: some programs write one, and what they did is done.
func TestAByteOrderMarkIsNoPartOfJSON(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{"\ufeff{\"n\":1}\n": "{\"n\":1}\n", "{}": "{}", "\ufeff": "", "{]": ""} {
		var s Streams
		if _, err := io.WriteString(s.Stdout(), said); err != nil {
			t.Fatal(err)
		}
		out, err := s.Output("json")
		if string(out.Structured) != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", said, out.Structured, err)
		}
		if err != nil && tool.AsError(err).Code != toolyard.ResultMappingFailed {
			t.Errorf("%q: %v", said, err)
		}
	}
}
