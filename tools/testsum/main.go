// Command testsum reads the output of go test -json and prints what a person wants of it: one line a package, the whole
// output of each test that failed or saw a data race, each skipped test with its reason, and at the end the line
//
//	<tests> passed, <tests> failed
//
// Subtests count. A package that fails outside of its tests (it does not build, say) counts as one failure. It exits
// with 1 when something failed or when no test ran at all.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	begin := time.Now()
	passed, failed, err := summarize(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	fmt.Printf("in %s\n%d passed, %d failed\n", time.Since(begin).Round(time.Second), passed, failed)
	if err != nil || failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// event is a line of go test -json; see go doc test2json and go help buildjson.
type event struct {
	Action, Package, Test, Output string
}

type testName struct{ pkg, test string }

// summarize prints all but the last line.
func summarize(in io.Reader, out io.Writer) (passed, failed int, err error) {
	w := bufio.NewWriter(out)
	skipped := 0
	said := map[testName]*strings.Builder{} // of tests that have not ended
	failures := map[string]int{}            // by package
	lines := bufio.NewReader(in)
	for {
		text, readErr := lines.ReadString('\n')
		if text == "" && readErr != nil {
			if readErr != io.EOF {
				err = readErr
			}
			break
		}
		var e event
		if json.Unmarshal([]byte(text), &e) != nil {
			fmt.Fprintln(w, strings.TrimRight(text, "\n")) // go itself, before it had a package
			continue
		}
		name := testName{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "output":
			switch {
			case e.Test != "":
				if said[name] == nil {
					said[name] = &strings.Builder{}
				}
				said[name].WriteString(e.Output)
			case e.Output != "PASS\n" && e.Output != "FAIL\n":
				fmt.Fprint(w, e.Output)
			}
		case "pass", "fail", "skip":
			switch {
			case e.Test != "" && e.Action == "pass":
				passed++
				// found while this test ran, counted at another one or the package
				if said := body(said[name]); strings.Contains(said, "DATA RACE") {
					fmt.Fprint(w, said)
				}
			case e.Test != "" && e.Action == "fail":
				failed++
				failures[e.Package]++
				fmt.Fprint(w, body(said[name]))
			case e.Test != "":
				skipped++
				fmt.Fprintf(w, "skipped %s %s: %s\n", e.Package, e.Test, reason(body(said[name])))
			case e.Action == "fail":
				for left, b := range said { // cut off: it says why the package failed
					if left.pkg == e.Package {
						fmt.Fprint(w, b.String())
						delete(said, left)
					}
				}
				if failures[e.Package] == 0 {
					failed++
				}
			}
			delete(said, name)
		}
		if err := w.Flush(); err != nil {
			return passed, failed, err
		}
	}
	if skipped > 0 {
		fmt.Fprintf(w, "%d skipped\n", skipped)
	}
	return passed, failed, errors.Join(err, w.Flush())
}

func body(b *strings.Builder) string {
	if b == nil {
		return ""
	}
	return b.String()
}

// reason is what a test said before it was skipped, without the frame around it.
func reason(said string) string {
	var words []string
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			words = append(words, line)
		}
	}
	return strings.Join(words, " ")
}
