package dispatchercmd

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
)

// limitsJSON lists the named limits of the code. "go test ./test/docs -update" writes it, and a test there fails when
// it is out of date.
//
//go:embed limits.json
var limitsJSON []byte

// limit is one named bound.
type limit struct {
	Package string `json:"package"`
	Name    string `json:"name"`
	Value   int64  `json:"value"`
	// Replicated is the value with several replicas, where it is another one.
	Replicated int64 `json:"replicated_value,omitempty"`
	// Unit is "ms", "bytes", "chars", "percent" or "count".
	Unit   string `json:"unit"`
	Bounds string `json:"bounds"`
	// Flag is the flag that changes the limit, with its dashes; empty when none does.
	Flag string `json:"flag,omitempty"`
}

func (s *std) limitsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "limits [flags] [WORD ...]",
		Short: "List the named limits with their values and the flags that change them",
		Long: `limits lists every named limit of this version: its value, what it bounds, and the flag that changes it.
With WORDs it lists those whose package, name, description or flag contains all of them; the name of a package stands
for that package. Limits without a flag are fixed.

The first dispatcher of a system stores the settings in its streams; they are listed here with their defaults.`,
		Example: `  dispatcher limits
  dispatcher limits internal/api stream
  dispatcher limits --json`,
		RunE: func(_ *cobra.Command, words []string) error {
			all, err := limits()
			if err != nil {
				return err
			}
			packages := map[string]bool{}
			for _, l := range all {
				packages[l.Package] = true
			}
			found := []limit{} // JSON has a list also when nothing was found
			for _, l := range all {
				if l.has(words, packages) {
					found = append(found, l)
				}
			}
			if len(found) == 0 && len(words) > 0 {
				return cli.Usagef("no limit has %q", strings.Join(words, " "))
			}
			if asJSON {
				return printJSON(s.out, found)
			}
			return s.showLimits(found)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// limits are the settings of a system and the constants of the code.
func limits() ([]limit, error) {
	one, more := broker.Settings{}.WithDefaults(), broker.Settings{Replicas: 3}.WithDefaults()
	setting := func(name string, d, replicated time.Duration, flag, bounds string) limit {
		l := limit{Package: "settings", Name: name, Value: d.Milliseconds(), Unit: "ms", Bounds: bounds, Flag: flag}
		if replicated != d {
			l.Replicated = replicated.Milliseconds()
		}
		return l
	}
	all := []limit{
		setting("Lifetime", one.Lifetime, more.Lifetime, "--batch-lifetime",
			"how long a batch is kept, waits for people included"),
		setting("Slack", one.Slack, more.Slack, "", "how much longer than the lifetime the streams keep messages"),
		setting("CallAckWait", one.CallAckWait, more.CallAckWait, "--ack-wait",
			"silence after which another worker gets a call"),
		setting("WorkerTTL", one.WorkerTTL, more.WorkerTTL, "--ack-wait",
			"silence after which a worker counts as gone"),
		setting("BatchAckWait", one.BatchAckWait, more.BatchAckWait, "--ack-wait",
			"silence after which another dispatcher gets a batch"),
		{Package: "settings", Name: "MaxStoreBytes", Value: one.MaxStoreBytes, Unit: "bytes", Flag: "--max-store-bytes",
			Bounds: "what all streams together may use"},
	}
	var constants []limit
	if err := json.Unmarshal(limitsJSON, &constants); err != nil {
		return nil, fmt.Errorf("read the list of limits: %w", err)
	}
	return append(all, constants...), nil
}

// has reports whether a limit's line contains all words. A word that is the name of a package stands for that package.
func (l limit) has(words []string, packages map[string]bool) bool {
	line := strings.ToLower(strings.Join([]string{l.Package, l.Name, l.Bounds, l.Flag}, " "))
	for _, w := range words {
		if packages[w] && l.Package != w || !strings.Contains(line, strings.ToLower(w)) {
			return false
		}
	}
	return true
}

// showLimits prints limits for a person, by package.
func (s *std) showLimits(all []limit) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	last := ""
	for _, l := range all {
		if l.Package != last {
			if last != "" {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, l.Package)
			last = l.Package
		}
		value := quantity(l.Value, l.Unit)
		if l.Replicated != 0 {
			value += " (replicated " + quantity(l.Replicated, l.Unit) + ")"
		}
		about := l.Bounds
		if l.Flag != "" {
			about += " [" + l.Flag + "]"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", l.Name, value, about)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the limits: %w", err)
	}
	if _, err := fmt.Fprintf(s.out, "%s\n%s\n", text.String(), count(len(all), "limit")); err != nil {
		return fmt.Errorf("print the limits: %w", err)
	}
	return nil
}

// quantity writes a value for a person, with its unit.
func quantity(n int64, unit string) string {
	switch unit {
	case "ms":
		text := (time.Duration(n) * time.Millisecond).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	case "bytes":
		for _, u := range []struct {
			name string
			size int64
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if n >= u.size && n%u.size == 0 {
				return fmt.Sprintf("%d %s", n/u.size, u.name)
			}
		}
		return thousands(n) + " bytes"
	case "percent":
		return fmt.Sprintf("%d %%", n)
	case "chars":
		return thousands(n) + " chars"
	}
	return thousands(n)
}

// thousands writes a number with commas.
func thousands(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
