package natsbroker

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "plain-Name_1", "a.b", "*", ">", "a b", "=", "=41", "\x00", "ünï", "\xff",
		strings.Repeat(".", 128)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		token := broker.Escape(name)
		if strings.ContainsAny(token, ".*> \t\r\n\x00") ||
			strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=") != "" {
			t.Fatalf("Escape(%q) = %q, which is more than a token", name, token)
		}
		if back, err := broker.Unescape(token); err != nil || back != name {
			t.Fatalf("Unescape(Escape(%q)) = %q, %v", name, back, err)
		}
		// Whatever is taken as a token is the only token of its name.
		if plain, err := broker.Unescape(name); err == nil && !strings.ContainsAny(name, ".*> ") && isToken(name) &&
			broker.Escape(plain) != name {
			t.Fatalf("%q and %q are both tokens of %q", name, broker.Escape(plain), plain)
		}
	})
}

func isToken(s string) bool {
	for i := range len(s) {
		if broker.Escape(s[i:i+1]) != s[i:i+1] && s[i] != '=' {
			return false
		}
	}
	return true
}

// TestNoNameLeavesItsPlace puts names that mean something in a subject everywhere, and reads them back.
func TestNoNameLeavesItsPlace(t *testing.T) {
	hostile := []string{"a", "a.b", "*", ">", "_", "=2e", "x y", "ty.event", "$JS.API", "tab\there", "日本",
		strings.Repeat(">", 128)}
	for _, agent := range hostile {
		for _, id := range hostile {
			k := toolyard.BatchKey{Agent: toolyard.Agent(agent), ID: toolyard.BatchID(id)}
			for subject, want := range map[string]place{
				subjectBatch(k):                            {key: k, chain: batch.ChainSubmission},
				subjectReply(k):                            {key: k, chain: batch.ChainReply},
				subjectChain(k, batch.ChainBatch, "", 0):   {key: k, chain: batch.ChainBatch},
				subjectChain(k, batch.ChainControl, "", 0): {key: k, chain: batch.ChainControl},
				subjectChain(k, batch.ChainItem, "gpu-1", 42): {key: k, chain: batch.ChainItem, pool: "gpu-1",
					index: 42},
			} {
				got, err := parseSubject(subject)
				if err != nil || got != want {
					t.Fatalf("parseSubject(%q) = %+v, %v, want %+v", subject, got, err, want)
				}
				if len(subject) > 1024 {
					t.Errorf("subject of %d bytes", len(subject))
				}
			}
		}
	}
}

func TestSubjectsThatAreNotOurs(t *testing.T) {
	for _, s := range []string{
		"", "ty", "ty.batch.a", "ty.batch.a.b.c", "ty.event.a.b", "ty.event.a.b._.other", "ty.event.a.b.pool.x",
		"ty.event.a.b.pool.01", "ty.event.a.b.pool.-1", "ty.event.a.b.pool.1.2", "ty.reply.a=4.b", "ty.reply.a=41.b",
		"ty.reply.=2E.b", "xy.batch.a.b",
	} {
		if p, err := parseSubject(s); err == nil {
			t.Errorf("parseSubject(%q) = %+v, want an error", s, p)
		}
	}
}

func TestPoolNames(t *testing.T) {
	for name, ok := range map[toolyard.Pool]bool{
		"default": true, "gpu-1_b": true, "": false, "_": false, "a.b": false, "a b": false, ">": false, "=41": false,
		toolyard.Pool(strings.Repeat("p", broker.MaxPoolBytes)):   true,
		toolyard.Pool(strings.Repeat("p", broker.MaxPoolBytes+1)): false,
	} {
		if err := broker.CheckPool(name); (err == nil) != ok {
			t.Errorf("CheckPool(%q) = %v", name, err)
		}
	}
}
