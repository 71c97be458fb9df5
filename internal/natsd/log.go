package natsd

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logAdapter gives the server's log to slog and keeps its first fatal message: the server reports a failed start only
// there.
type logAdapter struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal string
}

func (l *logAdapter) Noticef(format string, v ...any) { l.log.Debug(line(format, v)) }
func (l *logAdapter) Warnf(format string, v ...any)   { l.log.Warn(line(format, v)) }
func (l *logAdapter) Errorf(format string, v ...any)  { l.log.Error(line(format, v)) }
func (l *logAdapter) Debugf(string, ...any)           {} // switched off at the server
func (l *logAdapter) Tracef(string, ...any)           {} // switched off at the server

// Fatalf is the server's last word before it gives up. It must not exit: the process is more than its server.
func (l *logAdapter) Fatalf(format string, v ...any) {
	msg := line(format, v)
	l.mu.Lock()
	if l.fatal == "" {
		l.fatal = msg
	}
	l.mu.Unlock()
	l.log.Error(msg)
}

func (l *logAdapter) firstFatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func line(format string, v []any) string { return strings.TrimSpace(fmt.Sprintf(format, v...)) }
