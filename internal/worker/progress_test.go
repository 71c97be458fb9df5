package worker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/tool"
)

// heard is what a reporter has told, and when.
type heard struct {
	mu   sync.Mutex
	told []tool.Progress
	at   []time.Duration
	lost int
}

func listen(redact func(string) string) (*reporter, *heard) {
	h, began := &heard{}, time.Now()
	return &reporter{redact: redact, tell: func(p tool.Progress, lost int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.told, h.at, h.lost = append(h.told, p), append(h.at, time.Since(began)), h.lost+lost
	}}, h
}

func (h *heard) all() ([]tool.Progress, string, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out strings.Builder
	for _, p := range h.told {
		out.WriteString(p.Output)
	}
	return h.told, out.String(), h.lost
}

// TestProgressNeverGoesBack: neither where a tool says less than before, nor where it has words alone. That it no
// longer knows is told as that.
func TestProgressNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := listen(nil)
		for _, f := range []float64{0, -1, 0.25, 0, 0.5, -1, math.NaN(), 0.4, 0.75, 0.5} {
			r.report(tool.Progress{Fraction: f, Status: "works"})
			time.Sleep(time.Second)
		}
		r.end()
		told, _, _ := h.all()
		var got []float64
		for _, p := range told {
			got = append(got, p.Fraction)
		}
		if want := []float64{0, -1, 0.25, 0.25, 0.5, -1, -1, 0.5, 0.75, 0.75}; !slices.Equal(got, want) {
			t.Errorf("told are %v, want %v", got, want)
		}
	})
}

// TestProgressIsToldNowAndThen: however often a tool reports, it is told once an interval; the last fraction and
// status count, and of the output nothing is missing.
func TestProgressIsToldNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := listen(nil)
		var want strings.Builder
		const n = 1_000
		for i := range n {
			line := fmt.Sprintf("line %d\n", i)
			want.WriteString(line)
			r.report(tool.Progress{Fraction: float64(i) / n, Status: fmt.Sprint(i), Output: line})
			time.Sleep(time.Millisecond)
		}
		r.report(tool.Progress{Fraction: 1})
		r.end()
		r.report(tool.Progress{Fraction: 0.5, Output: "late"})
		time.Sleep(time.Minute)
		told, out, lost := h.all()
		if out != want.String() || lost != 0 {
			t.Errorf("%d bytes of output, want %d; %d are said to be lost", len(out), want.Len(), lost)
		}
		if most := int(n*time.Millisecond/ProgressInterval) + 2; len(told) > most || len(told) < most-2 {
			t.Errorf("told %d times in a second, want about %d", len(told), most)
		}
		for i := 1; i < len(told)-1; i++ {
			if gap := h.at[i] - h.at[i-1]; gap < ProgressInterval {
				t.Errorf("report %d came %s after the one before", i, gap)
			}
			if told[i].Fraction < told[i-1].Fraction {
				t.Errorf("report %d goes back from %g to %g", i, told[i-1].Fraction, told[i].Fraction)
			}
		}
		end, before := told[len(told)-1], told[len(told)-2]
		if end.Fraction != 1 || end.Status != "999" && before.Status != "999" {
			t.Errorf("the last are %+v and %+v", before, end)
		}
	})
}

// TestASilentCallIsHardlyToldOf: that a tool was started and has returned is told only of one that takes a while or
// says something.
func TestASilentCallIsHardlyToldOf(t *testing.T) {
	for name, c := range map[string]struct {
		took time.Duration
		says string
		want []tool.Progress
	}{
		"short":              {ProgressInterval - 1, "", nil},
		"long":               {ProgressInterval + 1, "", []tool.Progress{{Fraction: 0}, {Fraction: 1}}},
		"short, with a word": {0, "word", []tool.Progress{{Status: "word"}, {Fraction: 1}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, h := listen(nil)
			r.report(tool.Progress{Fraction: 0})
			if c.says != "" {
				r.report(tool.Progress{Fraction: 0, Status: c.says})
			}
			synctest.Wait()
			time.Sleep(c.took)
			synctest.Wait()
			r.report(tool.Progress{Fraction: 1})
			r.end()
			if told, _, _ := h.all(); !slices.Equal(told, c.want) {
				t.Errorf("%s: told %+v, want %+v", name, told, c.want)
			}
		})
	}
}

// TestProgressWaitsForNothing: a listener that hangs holds up no tool.
func TestProgressWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		r := &reporter{tell: func(tool.Progress, int) { <-hang }}
		began := time.Now()
		for range 10_000 {
			r.report(tool.Progress{Output: "a line of output\n"})
		}
		synctest.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("reporting took %s", took)
		}
		if n := len(r.output.text); n > MaxProgressOutputBytes {
			t.Errorf("%d bytes are kept, more than %d", n, MaxProgressOutputBytes)
		}
		close(hang)
		r.end()
	})
}

func TestFractions(t *testing.T) {
	for in, want := range map[float64]float64{0: 0, 0.25: 0.25, 1: 1, 7: 1, -3: -1, math.Inf(1): 1, math.Inf(-1): -1,
		math.NaN(): -1} {
		if got := fraction(in); got != want {
			t.Errorf("%g is told as %g, want %g", in, got, want)
		}
	}
}

// TestAnUnknownFractionHidesNoKnownOne: pieces of output that say nothing else do not take away what waits to be told.
func TestAnUnknownFractionHidesNoKnownOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := listen(nil)
		r.report(tool.Progress{Fraction: 0})
		synctest.Wait()
		r.report(tool.Progress{Fraction: 0.5, Status: "half"})
		r.report(tool.Progress{Fraction: -1, Output: "a\n"})
		time.Sleep(ProgressInterval)
		synctest.Wait()
		r.report(tool.Progress{Fraction: -1, Output: "b\n"})
		r.end()
		told, _, _ := h.all()
		want := []tool.Progress{{Fraction: 0.5, Status: "half", Output: "a\n"}, {Fraction: -1, Output: "b\n"}}
		if fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("%+v\nwant %+v", told, want)
		}
	})
}

// TestALineIsToldWhole: or after a while without its end.
func TestALineIsToldWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := listen(nil)
		r.report(tool.Progress{Output: "one\ntw"})
		synctest.Wait()
		if _, out, _ := h.all(); out != "one\n" {
			t.Errorf("told %q at once", out)
		}
		time.Sleep(progressHold + ProgressInterval)
		synctest.Wait()
		if _, out, _ := h.all(); out != "one\ntw" {
			t.Errorf("told %q after a while", out)
		}
		r.end()
	})
}

// TestNoHalfOfASecretIsTold: the line in which it stands is let go after a while, but not in the middle of the secret.
func TestNoHalfOfASecretIsTold(t *testing.T) {
	const secret = "hunter2-correct-horse-battery"
	known := redact.New([]redact.Secret{{Name: "DOOR", Value: secret}})
	for _, tt := range []struct {
		name, before, after, want string
		unfinished                func(string) int
	}{
		{"a known value", "the door's is " + secret[:9], secret[9:] + ", it says", "the door's is ", known.Unfinished},
		{"a token", "GET / Authorization: Bearer abcdef0", "123456789ABCDEF x", "GET / ", known.Unfinished},
		{"no secret", "......", "...", "......", known.Unfinished},
		{"nobody knows", "......", "...", "", nil},
		{"a broken redactor", "......", "...", "", func(string) int { panic("oh") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, h := listen(known.Redact)
				r.unfinished = tt.unfinished
				r.report(tool.Progress{Output: tt.before})
				time.Sleep(10 * progressHold)
				if _, out, _ := h.all(); out != tt.want {
					t.Errorf("told after a while is %q, want %q", out, tt.want)
				}
				r.report(tool.Progress{Output: tt.after})
				time.Sleep(10 * progressHold)
				r.end()
				if _, out, _ := h.all(); out != known.Redact(tt.before+tt.after) {
					t.Errorf("told in the end is %q", out)
				}
			})
		})
	}
}

const sampleKey = "-----BEGIN OPENSSH PRIVATE KEY-----\n" +
	"b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n" +
	"QyNTUxOQAAACBwZ2hIT29wc0lBbU5vdEFSZWFsS2V5QXRBbGxCdXRMb29rc0xpa2VPbmUA\n" +
	"AAAECx0ZXN0LXRlc3QtdGVzdC10ZXN0LXRlc3QtdGVzdC10ZXN0LXRlc3QtdGVzdA==\n" +
	"-----END OPENSSH PRIVATE KEY-----\n"

// TestSecretsInPiecesAreNotTold: whatever pieces a tool's output comes in, and however slowly within a line's
// patience, a secret that the redactor knows is in no report.
func TestSecretsInPiecesAreNotTold(t *testing.T) {
	const secret = "hunter2-correct-horse-battery"
	clean := redact.New([]redact.Secret{{Name: "DOOR", Value: secret}}).Redact
	text := "first line\nthe door's is " + secret + ", it says\nand a key:\n" + sampleKey +
		"the end\nGET / Authorization: Bearer abcdef0123456789ABCDEF\n"
	leaks := append(strings.Split(strings.TrimSpace(sampleKey), "\n")[1:4], secret, "0123456789ABCDEF", "correct-horse")
	for size := 1; size < 90; size++ {
		synctest.Test(t, func(t *testing.T) {
			r, h := listen(clean)
			for from := 0; from < len(text); from += size {
				r.report(tool.Progress{Output: text[from:min(len(text), from+size)]})
				time.Sleep(10 * time.Millisecond)
			}
			r.end()
			_, out, lost := h.all()
			if want := clean(text); out != want || lost != 0 {
				t.Errorf("pieces of %d bytes: told %q\nwant %q", size, out, want)
			}
			for _, leak := range leaks {
				if strings.Contains(out, leak) {
					t.Errorf("pieces of %d bytes: %q was told", size, leak)
				}
			}
		})
	}
}

// TestWhatIsLeftOutLeaksNothing: when more comes than is told, whole lines are left out, and no rest of a secret is
// taken for something else.
func TestWhatIsLeftOutLeaksNothing(t *testing.T) {
	const secret = "hunter2-correct-horse-battery"
	clean := redact.New([]redact.Secret{{Name: "DOOR", Value: secret}}).Redact
	keyLine := strings.Split(sampleKey, "\n")[2]
	for _, tt := range []struct{ name, before, after string }{
		{"a secret in each line", strings.Repeat("x "+secret+" y\n", 5_000), "end\n"},
		{"one line without end", strings.Repeat(secret, 5_000), "\nend\n"},
		{"the beginning of a key is left out", "-----BEGIN RSA PRIVATE KEY-----\n" +
			strings.Repeat(keyLine+"\n", 1_000), keyLine + "\n-----END RSA PRIVATE KEY-----\nend\n"},
		{"the beginning of a key is left out, and its end comes at once",
			"-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat(keyLine+"\n", 1_000) +
				"-----END RSA PRIVATE KEY-----\n", "end\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, h := listen(clean)
				r.report(tool.Progress{Output: tt.before})
				time.Sleep(10 * progressHold)
				r.report(tool.Progress{Output: tt.after})
				time.Sleep(10 * progressHold)
				r.end()
				_, out, lost := h.all()
				for _, leak := range []string{"hunter2", "battery", keyLine[:16]} {
					if strings.Contains(out, leak) {
						t.Errorf("%q was told", leak)
					}
				}
				if !strings.HasSuffix(out, "end\n") || lost == 0 || lost > len(tt.before)+len(tt.after) {
					t.Errorf("%d bytes are said to be lost, and what came last is %q", lost, out[max(0, len(out)-50):])
				}
			})
		})
	}
}

// TestARedactorThatPanicsTellsNothing: the text is withheld, and the report goes on without it.
func TestARedactorThatPanicsTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := listen(func(string) string { panic("oh") })
		r.report(tool.Progress{Fraction: 0.5, Status: "s", Output: "o\n"})
		r.end()
		if told, _, _ := h.all(); len(told) != 1 || told[0] != (tool.Progress{Fraction: 0.5}) {
			t.Errorf("%+v", told)
		}
	})
}

// TestASecretInALineThatIsLeftOutIsLeftOutWhole: what is left of a line whose beginning was left out is left out too,
// also when it comes later.
func TestASecretInALineThatIsLeftOutIsLeftOutWhole(t *testing.T) {
	const secret = "hunter2hunter2-and-the-rest-of-it-5b1f"
	synctest.Test(t, func(t *testing.T) {
		r, h := listen(redact.New([]redact.Secret{{Name: "KEY", Value: secret}}).Redact)
		// one long line, as a pipe gives it: 32 KiB and then the rest
		line := strings.Repeat("x", 32<<10-10) + secret + " end\n"
		r.report(tool.Progress{Fraction: -1, Output: line[:32<<10]})
		r.report(tool.Progress{Fraction: -1, Output: line[32<<10:]})
		time.Sleep(5 * time.Second)
		r.end()
		if _, out, _ := h.all(); strings.Contains(out, secret[10:]) {
			t.Errorf("told is %q", out)
		}
	})
}
