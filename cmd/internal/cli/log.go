package cli

import (
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
)

// Log are the flags of the log on stderr.
type Log struct{ Level, Format string }

// Add adds the flags.
func (l *Log) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicProgram)()
	f.StringVar(&l.Level, "log-level", "warn", "how much to log on stderr: debug, info, warn or error")
	f.StringVar(&l.Format, "log-format", "text", "how a line of the log is written: text (key=value) or json")
}

// Logger makes the command's log.
func (l *Log) Logger(stderr io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, Usagef("--log-level %q: use debug, info, warn or error", l.Level)
	}
	switch l.Format {
	case "text":
		return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: forJSON})), nil
	}
	return nil, Usagef("--log-format %q: use text or json", l.Format)
}

// forJSON writes a batch's key as the two members agent and batch, so that one query finds all lines of a batch, and a
// duration as in text.
func forJSON(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case toolyard.BatchKey:
		return slog.GroupAttrs("", slog.Any("agent", v.Agent), slog.Any("batch", v.ID))
	case time.Duration:
		return slog.String(a.Key, v.String())
	}
	return a
}
