package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// cells are those of the row whose name begins so.
func cells(t *testing.T, text, name string) []string {
	t.Helper()
	for row := range strings.Lines(text) {
		if strings.HasPrefix(row, "| "+name) {
			all := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
			for i := range all {
				all[i] = strings.TrimSpace(all[i])
			}
			return all[1:]
		}
	}
	t.Fatalf("no row %q in:\n%s", name, text)
	return nil
}

// at is a line of one contender and one shape.
func at(c contender, s shape, l line) line {
	l.Peer, l.Mode, l.Batch, l.Inflight = c.peer, c.mode, s.batch, s.inflight
	if s.paced {
		l.GapMS = 250
	}
	if s.open {
		l.Rate = 100
	}
	return l
}

func TestTable(t *testing.T) {
	asynq, bullmq, free := others[0], others[1], ours[0]
	lines := []line{
		at(floor, one, line{P50: 1}),
		at(free, one, line{P50: 9}), at(free, one, line{P50: 3}), at(free, one, line{P50: 2}),
		at(asynq, one, line{P50: 2}), at(bullmq, one, line{P50: 5}),

		at(floor, many, line{CallsPerS: 8000, ClientCPU: 40, BrokerCPU: 60}),
		at(free, many, line{CallsPerS: 2000, ClientCPU: 200, BrokerCPU: 50}),
		at(free, many, line{CallsPerS: 4000, ClientCPU: 200, BrokerCPU: 50}),
		at(asynq, many, line{CallsPerS: 6000, ClientCPU: 60, BrokerCPU: 20}),
		at(bullmq, many, line{CallsPerS: 1500, ClientCPU: 600, BrokerCPU: 20}),

		at(floor, ten, line{P50: 2, Stored: 2.2, Kept: 500}),
		at(free, ten, line{P50: 5, Stored: 2.7, Kept: 4000}),
		at(floors[0], ten, line{P50: 0.01}),
		at(free, paced, line{P50: 7}),
		at(free, open, line{P50: 4, P99: 12}),
	}
	var in, out bytes.Buffer
	for _, l := range lines {
		if err := json.NewEncoder(&in).Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := table(nil, &in, &out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		rows[0].name: "1.00, 2.00 (asynq), 3.00, -, -, 3.00, 1.50",
		rows[1].name: "2.00, -, 5.00, -, -, 2.50, -",
		rows[2].name: "-, -, 7.00, -, -, -, -",
		rows[3].name: "8000, 6000 (asynq), 3000, -, -, 0.38, 0.50",
		rows[4].name: "100, 80.0 (asynq), 250, -, -, 2.50, 3.12",
		rows[5].name: "-, -, 4.00, -, -, -, -",
		rows[6].name: "-, -, 12.0, -, -, -, -",
		rows[7].name: "22.0, -, 27.0, -, -, 1.23, -",
		rows[8].name: "500, -, 4000, -, -, 8.00, -",
	} {
		if got := strings.Join(cells(t, out.String(), name), ", "); got != want {
			t.Errorf("row %q: %s; want %s", name, got, want)
		}
	}
	for _, want := range []string{"inprocess channel 0.01", "Runs of each: 1;"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestTableRefusesBrokenLines(t *testing.T) {
	var out bytes.Buffer
	if err := table(nil, strings.NewReader(`{"peer":"nats"}`+"\n"+`{"peer":`), &out); err == nil {
		t.Errorf("no error for a line that is cut; output:\n%s", out.String())
	}
}

func TestTableOfNothing(t *testing.T) {
	if got := cells(t, render(nil), rows[0].name); strings.Join(got, "") != "-------" {
		t.Errorf("cells %q of nothing", got)
	}
}
