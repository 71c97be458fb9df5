package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// contender is a peer in one of its modes.
type contender struct{ peer, mode string }

var (
	floor  = contender{"nats", "js5"}
	others = []contender{{"asynq", "push"}, {"bullmq", "bulk"}}
	ours   = []contender{{"toolyard", "free"}, {"toolyard", "read"}, {"toolyard", "write"}}
	// floors are those below the table, of which only the row "ten calls" is measured.
	floors = []contender{{"inprocess", "channel"}, {"wal", "fsync"}, {"nats", "js"}, {"nats", "js3"}, {"nats", "js4"}}
)

// shape says which lines belong to a row.
type shape struct {
	batch, inflight int
	paced, open     bool
}

var (
	one   = shape{1, 1, false, false}
	ten   = shape{10, 1, false, false}
	many  = shape{10, 32, false, false}
	paced = shape{10, 1, true, false}
	open  = shape{10, 256, false, true}
)

// row is one figure of all contenders.
type row struct {
	name   string
	shape  shape
	higher bool // whether more is better
	figure func(line) float64
}

var rows = []row{
	{"1 call, half within, ms", one, false, func(l line) float64 { return l.P50 }},
	{"10 calls, half within, ms", ten, false, func(l line) float64 { return l.P50 }},
	{"10 calls after a pause, half within, ms", paced, false, func(l line) float64 { return l.P50 }},
	{"10 calls, 32 batches at a time, calls a second", many, true, func(l line) float64 { return l.CallsPerS }},
	{"the same, CPU of all processes, µs a call", many, false,
		func(l line) float64 { return l.ClientCPU + l.BrokerCPU }},
	{"10 calls, at random times, half as many as above, half within, ms", open, false,
		func(l line) float64 { return l.P50 }},
	{"the same, 99 of 100 within, ms", open, false, func(l line) float64 { return l.P99 }},
	{"10 calls, messages stored", ten, false, func(l line) float64 { return l.Stored * float64(l.Batch) }},
	{"10 calls, bytes kept a call", ten, false, func(l line) float64 { return l.Kept }},
}

// table reads lines from files, or from in, and prints the medians as Markdown.
func table(names []string, in io.Reader, out io.Writer) (err error) {
	var lines []line
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		more, err := readLines(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		lines = append(lines, more...)
	}
	if len(names) == 0 {
		if lines, err = readLines(in); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, render(lines))
	return err
}

func readLines(in io.Reader) (lines []line, err error) {
	for d := json.NewDecoder(in); ; {
		var l line
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
}

func render(lines []line) string {
	var b strings.Builder
	b.WriteString("| | js5 | best peer | Toolyard free | Toolyard read | Toolyard write | free : js5 | free : best peer |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		js5, free := r.median(lines, floor), r.median(lines, ours[0])
		best, who := r.best(lines)
		named := num(best)
		if who != "" {
			named += " (" + who + ")"
		}
		cells := []string{r.name, num(js5), named}
		for _, c := range ours {
			cells = append(cells, num(r.median(lines, c)))
		}
		cells = append(cells, ratio(free, js5), ratio(free, best))
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	var more []string
	for _, c := range floors {
		if v := rows[1].median(lines, c); v > 0 {
			more = append(more, fmt.Sprintf("%s %s %s", c.peer, c.mode, num(v)))
		}
	}
	if len(more) > 0 {
		fmt.Fprintf(&b, "\nOther floors, %s: %s.\n", rows[1].name, strings.Join(more, "; "))
	}
	if len(lines) > 0 {
		b.WriteString("\n" + conditions(lines) + "\n")
	}
	return b.String()
}

// conditions says how often each figure was taken and how busy the machine was.
func conditions(lines []line) string {
	var loads []float64
	runs := 0
	for _, l := range lines {
		loads = append(loads, l.Load1)
		if rows[0].takes(l, floor) {
			runs++
		}
	}
	slices.Sort(loads)
	return fmt.Sprintf("Runs of each: %d; figures are medians. Load of the machine, with the benchmark's own: %s to %s, "+
		"half of the time below %s.", runs, num(loads[0]), num(loads[len(loads)-1]), num(quantile(loads, 0.5)))
}

func (r row) takes(l line, c contender) bool {
	return contender{l.Peer, l.Mode} == c && shape{l.Batch, l.Inflight, l.GapMS > 0, l.Rate > 0} == r.shape
}

// median is 0 when there is nothing: a figure that was not taken.
func (r row) median(lines []line, c contender) float64 {
	var v []float64
	for _, l := range lines {
		if r.takes(l, c) {
			v = append(v, r.figure(l))
		}
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (r row) best(lines []line) (best float64, who string) {
	for _, c := range others {
		v := r.median(lines, c)
		if v > 0 && (who == "" || r.higher == (v > best)) {
			best, who = v, c.peer
		}
	}
	return best, who
}

func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func num(f float64) string {
	switch {
	case f == 0:
		return "-"
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.2f", f)
	}
}
