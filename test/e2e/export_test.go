//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/history"
	"github.com/toolyard/toolyard/internal/report"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// linesOf reads a table of JSON lines. Each line has the columns of the row, and no other.
func linesOf[T any](t *testing.T, name string) (rows []T) {
	t.Helper()
	f, err := os.Open(name)
	must.OK(t, err)
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	for {
		var row T
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			return rows
		} else if err != nil {
			t.Fatalf("%s, row %d: %v", name, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
}

// exported are the rows of an export.
func exported(t *testing.T, dir string) ([]history.Batch, []history.Call) {
	t.Helper()
	return linesOf[history.Batch](t, filepath.Join(dir, "batches.jsonl")),
		linesOf[history.Call](t, filepath.Join(dir, "calls.jsonl"))
}

// reported compares a report with the rows of an export, and with that of a server.
func reported(t *testing.T, at func(string, ...string) []string, server string, batches []history.Batch,
	calls []history.Call) {
	t.Helper()
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	made := func(args ...string) (r report.Report) {
		t.Helper()
		must.OK(t, json.Unmarshal([]byte(said(t, args...)), &r))
		return r
	}
	got := made(at("report", "--json", "--since", since)...)
	if diff := cmp.Diff(got, made("report", "--server", server, "--json", "--since", since)); diff != "" {
		t.Errorf("over HTTP the report is another one (-NATS +HTTP):\n%s", diff)
	}
	all := made("report", "--server", server, "--json")
	if all.Batches != got.Batches || all.Cut || got.Cut {
		t.Errorf("of all batches the report is %+v", all)
	}
	if few := made(at("report", "--json", "--limit", "2")...); few.Batches.Total != 2 || !few.Cut ||
		!few.Oldest.After(got.Oldest) {
		t.Errorf("of the newest two batches the report is %+v", few)
	}
	tools, codes, failed := map[string]int{}, map[toolyard.Code]int{}, 0
	for _, c := range calls {
		tools[c.Tool]++
		if c.OK != nil && !*c.OK {
			codes[*c.Code]++
			failed++
		}
	}
	if got.Batches.Total != len(batches) || got.Calls.Total != len(calls) || got.Calls.Failed != failed ||
		got.Batches.Refused != 1 || got.Batches.Unreadable != 1 || got.Questions.Asked != 2 {
		t.Errorf("the report has %+v, %+v, %+v", got.Batches, got.Calls, got.Questions)
	}
	for _, r := range got.Tools {
		if tools[r.Tool] != r.Calls {
			t.Errorf("%s has %d calls, want %d", r.Tool, r.Calls, tools[r.Tool])
		}
		delete(tools, r.Tool)
	}
	for _, r := range got.Codes {
		if codes[r.Code] != r.Calls {
			t.Errorf("%s ended %d calls, want %d", r.Code, r.Calls, codes[r.Code])
		}
		delete(codes, r.Code)
	}
	if len(tools)+len(codes) > 0 {
		t.Errorf("it lacks %v and %v", tools, codes)
	}
	if !slices.ContainsFunc(got.NeverCalled, func(u report.Unused) bool { return u.Tool == "grep" && u.Tokens > 0 }) {
		t.Errorf("grep was not called, and not found: %+v", got.NeverCalled)
	}
	text := said(t, at("report")...)
	for _, part := range []string{"6 batches: 2 completed, 1 canceled", "NEVER CALLED", "read_file  "} {
		if !strings.Contains(text, part) {
			t.Errorf("the text lacks %q:\n%s", part, text)
		}
	}
}

// TestExport runs batches with several ends, and compares the tables with the logs.
func TestExport(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Second)
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t)
	worker(t, d.says["nats"], dir, "--allow", "edit_file")
	at := func(cmd string, args ...string) []string {
		return append([]string{cmd, "--nats", d.says["nats"]}, args...)
	}
	read := toolyard.Call{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}
	write := toolyard.Call{ID: "c2", Tool: "write_file", Input: input(map[string]any{"file_path": "b.txt",
		"content": "two"})}
	edit := toolyard.Call{ID: "c3", Tool: "edit_file", Input: input(map[string]any{"file_path": "a.txt",
		"old_string": "one", "new_string": "two"})}
	// The names say what each is for. They are submitted in this order.
	batches := []toolyard.Batch{
		{ID: "good", Session: "s1", Calls: []toolyard.Call{read, {ID: "c2", Tool: "glob",
			Input: input(map[string]any{"pattern": "*"})}, edit}},
		{ID: "with/errors", Agent: "an agent", Session: "s1", Calls: []toolyard.Call{{ID: "c0", Tool: "no_such_tool"},
			write,
			{ID: "c3", Tool: "read_file", Input: input(map[string]any{"file": 1})},
			{ID: "c4", Tool: "read_file", Input: input(map[string]any{"file_path": "nothing.txt"})}}},
		{ID: "waits", Session: "s2", Interactive: true, Calls: []toolyard.Call{write, read}},
		{ID: "canceled", Session: "s3", Interactive: true, Calls: []toolyard.Call{write}},
	}
	hub := connect(t, d.says["nats"])
	for i := range batches {
		batches[i].Normalize("")
		must.OK(t, hub.Submit(t.Context(), batches[i]))
		waits := i - 1 // how many wait for a person then
		if waits > 0 {
			waiting(t, d.says["nats"], waits)
		}
	}
	said(t, at("cancel", "canceled")...)
	states := func() (all []string) {
		for i := range batches {
			s, err := hub.Fold(t.Context(), batches[i].Key())
			must.OK(t, err)
			all = append(all, string(s.Status()))
		}
		return all
	}
	want := []string{"completed", "completed", "waiting", "canceled"}
	testenv.Until(t, "the batches are where they end", func() bool { return slices.Equal(states(), want) })
	// Two that are refused: a dispatcher answers what a client would not have sent.
	a := newAgent(t, d.says["nats"])
	a.submit(byHand("an=20agent.unreadable", `{"calls": [{"tool": 1}]}`))
	a.submit(byHand("an=20agent.refused", `{"calls": []}`))
	a.replies("an=20agent.unreadable")
	a.replies("an=20agent.refused")

	out := filepath.Join(t.TempDir(), "new", "history")
	text := said(t, at("export", "--out", out)...)
	if !strings.Contains(text, "batches.jsonl: 6 rows, ") || !strings.Contains(text, "calls.jsonl: 10 rows, ") {
		t.Errorf("it says %q", text)
	}
	gotBatches, gotCalls := exported(t, out)
	end := time.Now().Add(time.Second)
	n := 0 // calls
	for i, b := range gotBatches {
		switch {
		case i == 4 && (b.ID != "unreadable" || b.Status != history.Unreadable || b.Problem == nil || b.Calls != 0),
			i == 5 && (b.ID != "refused" || b.Status != history.Refused || b.Problem != nil || b.Ended == nil):
			t.Errorf("batch %d is %+v", i, b)
		}
		if i >= 4 {
			continue
		}
		sub := &batches[i]
		s, err := hub.Fold(t.Context(), sub.Key())
		must.OK(t, err)
		view := s.View()
		if b.Agent != sub.Agent || b.ID != sub.ID || b.Session != sub.Session || string(b.Status) != want[i] ||
			b.Place != int64(s.SubmissionSeq) || int(b.Calls) != len(sub.Calls) || int(b.Groups) != len(view.Groups) ||
			b.Problem != nil || *b.Surface != view.Surface || *b.Owner != s.Owner || b.Interactive != sub.Interactive {
			t.Errorf("batch %d is %+v\nof %+v", i, b, sub)
		}
		ordered(t, b.ID, &begin, &b.Submitted, b.Planned, b.Ended, &end)
		if (b.Ended == nil) != (want[i] == "waiting") {
			t.Errorf("batch %s, %s, ended at %v", b.ID, want[i], b.Ended)
		}
		failed := int32(0)
		for index, c := range sub.Calls {
			row := gotCalls[n]
			n++
			if row.Agent != sub.Agent || row.Batch != sub.ID || row.Session != sub.Session || int(row.Index) != index ||
				row.ID != c.ID || row.Tool != c.Tool || row.InputBytes != int64(len(c.Input)) {
				t.Errorf("call %d of %s is %+v", index, sub.ID, row)
			}
			r := s.Calls[index].Result
			if r == nil {
				if row.Ended != nil || row.OK != nil || row.Code != nil {
					t.Errorf("call %d of %s is open, and its row says %+v", index, sub.ID, row)
				}
				continue
			}
			if r.IsError {
				failed++
			}
			if *row.OK == r.IsError || *row.Code != r.Code || int(*row.Attempts) != r.Attempts ||
				*row.Class != r.Class ||
				(row.Worker == nil) != (r.Worker == "") || row.Worker != nil && *row.Worker != r.Worker ||
				*row.OutputBytes != int64(len(r.Output)+len(r.Error)+len(r.Structured)) {
				t.Errorf("the result is %+v, and its row %+v", r, row)
			}
			ordered(t, c.ID, &b.Submitted, &row.Submitted, row.Started, row.Ended, b.Ended, &end)
			if (row.Started == nil) != (r.Worker == "") {
				t.Errorf("call %d of %s, by %q, started at %v", index, sub.ID, r.Worker, row.Started)
			}
		}
		if b.Failed != failed {
			t.Errorf("batch %s has %d failed calls, and its row %d", b.ID, failed, b.Failed)
		}
	}
	if n != len(gotCalls) {
		t.Errorf("%d calls, want %d", len(gotCalls), n)
	}
	reported(t, at, d.says["http"], gotBatches, gotCalls)

	files(t, out)
	before := must.Read(t, filepath.Join(out, "calls.jsonl"))
	stdout, stderr, status := run(t, nil, "dispatcher", at("export", "--out", out)...)
	if status != 2 || !strings.Contains(stderr, "batches.jsonl is there already") {
		t.Errorf("a second export: status %d\n%s%s", status, stdout, stderr)
	}
	files(t, out)
	said(t, at("export", "--out", out, "--force")...)
	files(t, out)
	if again, err := os.ReadFile(filepath.Join(out, "calls.jsonl")); err != nil || string(again) != string(before) {
		t.Errorf("the same calls are exported as\n%s\nand then as\n%s (%v)", before, again, err)
	}

	third := gotBatches[2].Submitted // to the microsecond, as --since and --until compare more exactly
	for _, c := range []struct {
		args []string
		want []toolyard.BatchID
	}{
		{[]string{"--agent", "an agent"}, []toolyard.BatchID{"with/errors", "unreadable", "refused"}},
		{[]string{"--session", "s1"}, []toolyard.BatchID{"good", "with/errors"}},
		{[]string{"--session", "s1", "--agent", "default"}, []toolyard.BatchID{"good"}},
		{[]string{"--status", "waiting"}, []toolyard.BatchID{"waits"}},
		{[]string{"--since", third.Format(time.RFC3339Nano)}, []toolyard.BatchID{"waits", "canceled", "unreadable",
			"refused"}},
		{[]string{"--until", third.Format(time.RFC3339Nano)}, []toolyard.BatchID{"good", "with/errors"}},
		{[]string{"--since", "1h", "--until", "30m"}, nil},
		{[]string{"--agent", "nobody"}, nil},
	} {
		some := t.TempDir()
		said(t, at("export", append(c.args, "--out", some)...)...)
		rows, calls := exported(t, some)
		var got []toolyard.BatchID
		n := 0
		for _, b := range rows {
			got, n = append(got, b.ID), n+int(b.Calls)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || n != len(calls) {
			t.Errorf("%q: batches (-want +got):\n%sand %d calls of %d", c.args, diff, len(calls), n)
		}
	}
	store, ok := stores.Load(d.says["nats"])
	if !ok {
		t.Fatal("the dispatcher has no store")
	}
	stdout, stderr, status = run(t, nil, "dispatcher", at("export", "--out", t.TempDir(), "--creds",
		filepath.Join(store.(string), "creds", "agent.creds"))...)
	if status != 1 || !strings.Contains(stderr, "use the credentials of an operator") {
		t.Errorf("with an agent's credentials: status %d\n%s%s", status, stdout, stderr)
	}
	for what, args := range map[string][]string{
		"--out DIR is missing":     {},
		"use jsonl or parquet":     {"--out", out, "--format", "csv"},
		"use one of":               {"--out", out, "--status", "done"},
		"use a time like":          {"--out", out, "--since", "yesterday"},
		"or how long ago":          {"--out", out, "--until", "-3h"},
		"calls.jsonl: not a direc": {"--out", filepath.Join(out, "calls.jsonl")},
	} {
		stdout, stderr, status := run(t, nil, "dispatcher", at("export", args...)...)
		if status != 2 || !strings.Contains(stderr, what) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%q: status %d\n%s%s", args, status, stdout, stderr)
		}
	}
	files(t, out)
}

// ordered checks that times which are known follow each other.
func ordered(t *testing.T, what any, times ...*time.Time) {
	t.Helper()
	last := time.Time{}
	for _, at := range times {
		if at == nil {
			continue
		}
		if at.Before(last) {
			t.Errorf("%v: the times are not in order: %v", what, times)
		}
		last = *at
	}
}

// files checks that a directory has two tables and nothing else, for their owner only.
func files(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must.OK(t, err)
	var names []string
	for _, f := range list {
		info, err := f.Info()
		must.OK(t, err)
		if info.Mode() != 0o600 {
			t.Errorf("%s has the mode %v", f.Name(), info.Mode())
		}
		names = append(names, f.Name())
	}
	if diff := cmp.Diff([]string{"batches.jsonl", "calls.jsonl"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestExportOfAnotherVersion: a log that cannot be followed to its end is exported as far as it goes, and the others
// whole.
func TestExportOfAnotherVersion(t *testing.T) {
	t.Parallel()
	d := dispatcher(t)
	worker(t, d.says["nats"], workspace(t, map[string]string{"a.txt": "one\n"}))
	b := connect(t, d.says["nats"])
	for _, id := range []toolyard.BatchID{"one", "two"} {
		sub := toolyard.Batch{ID: id, Calls: []toolyard.Call{{ID: "c1", Tool: "read_file",
			Input: input(map[string]any{"file_path": "a.txt"})}}}
		said(t, "submit", "--nats", d.says["nats"], batchFile(t, sub))
	}
	k := toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: "one"}
	s, err := b.Fold(t.Context(), k)
	must.OK(t, err)
	// A result for a call that has one: no writer of ours stores that.
	if _, err := b.Append(t.Context(), k, "item", toolyard.DefaultPool, 0, s.End(0),
		events.Finish(events.End{Result: *s.Calls[0].Result})); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	stdout, stderr, status := run(t, nil, "dispatcher", "export", "--nats", d.says["nats"], "--out", out)
	if status != 0 || !strings.Contains(stderr, "1 batch could not be followed") || !strings.Contains(stdout,
		"2 rows") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	batches, calls := exported(t, out)
	if len(batches) != 2 || len(calls) != 2 || batches[0].Problem == nil || batches[1].Problem != nil ||
		!strings.Contains(*batches[0].Problem, "result already") || calls[0].OK == nil || !*calls[0].OK {
		t.Errorf("%+v\n%+v", batches, calls)
	}
}
