//go:build unix

package tables

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	lib "github.com/parquet-go/parquet-go"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// patience bounds what a command may take.
const patience = 90 * time.Second

// batch is a batch whose calls end in several ways.
const batch = `{"id": "ID", "agent": "AGENT", "session": "s", "calls": [
	{"id": "c1", "tool": "read_file", "input": {"file_path": "go.mod"}},
	{"id": "c2", "tool": "glob", "input": {"pattern": "*.md"}},
	{"id": "c3", "tool": "write_file", "input": {"file_path": "notes.md",
		"content": "ä"}},
	{"id": "c4", "tool": "read_file", "input": {"file_path": "no such file"}},
	{"id": "c5", "tool": "summarize", "input": {}}]}`

// TestExportedTables runs batches on a real system, exports them in both formats, and compares the tables value by
// value. Some of the batches are complete, and one waits for a person.
func TestExportedTables(t *testing.T) {
	bin, err := testenv.Binaries("", "cmd/dispatcher")
	must.OK(t, err)
	dir, data := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example\n")
	env := append(os.Environ(), "TOOLYARD_DATA="+data)
	env = append(env, "TOOLYARD_NATS="+serve(t, filepath.Join(bin, "dispatcher"), dir, env))
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "dispatcher"), args...)
		cmd.Env, cmd.Dir, cmd.WaitDelay = env, dir, patience
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("dispatcher %q: %v\n%s", args, err, out)
		}
	}
	for _, names := range [][2]string{{"b1", "one"}, {"b2", "two"}, {"b/3", "an agent"}} {
		write("batch.json", strings.NewReplacer("ID", names[0], "AGENT", names[1]).Replace(batch))
		run("submit", "batch.json")
	}
	write("open.json", `{"id": "waits", "interactive": true, "calls": [{"tool": "write_file", "input": {"file_path": "x",
		"content": ""}}]}`)
	waits := exec.Command(filepath.Join(bin, "dispatcher"), "submit", "open.json")
	waits.Env, waits.Dir, waits.Stderr = env, dir, t.Output()
	must.OK(t, waits.Start())
	t.Cleanup(func() {
		if err := waits.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		_ = waits.Wait() // it was killed
	})
	for begin := time.Now(); ; {
		run("export", "--force", "--out", "waiting", "--status", "waiting")
		if len(jsonRows(t, filepath.Join(dir, "waiting", "calls.jsonl"))) == 1 {
			break
		}
		if time.Since(begin) > patience {
			t.Fatal("no batch waits for a person")
		}
	}
	run("export", "--out", "tables")
	run("export", "--out", "tables", "--format", "parquet")
	for table, rows := range map[string]int{"batches": 4, "calls": 16} {
		want := jsonRows(t, filepath.Join(dir, "tables", table+".jsonl"))
		got := parquetRows(t, filepath.Join(dir, "tables", table+".parquet"))
		if len(want) != rows {
			t.Errorf("%d %s, want %d", len(want), table, rows)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-JSON lines +Parquet):\n%s", table, diff)
		}
	}
}

// serve starts a dispatcher with a worker and returns the address of its NATS server.
func serve(t *testing.T, dispatcher, dir string, env []string) string {
	t.Helper()
	cmd := exec.Command(dispatcher, "serve", "--with-worker", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--workspace", "default="+dir)
	cmd.Env = env
	return testenv.Start(t, cmd, "nats")["nats"]
}

// jsonRows are the rows of a table of JSON lines, by column.
func jsonRows(t *testing.T, name string) (rows []map[string]any) {
	t.Helper()
	text := must.Read(t, name)
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		row := map[string]any{}
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			return rows
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows = append(rows, row)
	}
}

// parquetRows are the rows of a Parquet file as parquet-go reads them, each value as it is in JSON.
func parquetRows(t *testing.T, name string) (rows []map[string]any) {
	t.Helper()
	f, err := os.Open(name)
	must.OK(t, err)
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	must.OK(t, err)
	file, err := lib.OpenFile(f, info.Size())
	must.OK(t, err)
	r := lib.NewReader(file)
	defer func() { _ = r.Close() }()
	columns := file.Schema().Fields()
	for {
		some := make([]lib.Row, 3)
		n, err := r.ReadRows(some)
		for _, values := range some[:n] {
			row := map[string]any{}
			for _, v := range values {
				row[columns[v.Column()].Name()] = asJSON(v, columns[v.Column()].Type())
			}
			rows = append(rows, row)
		}
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func asJSON(v lib.Value, as lib.Type) any {
	switch kind := as.String(); {
	case v.IsNull():
		return nil
	case kind == "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)":
		return time.UnixMicro(v.Int64()).UTC().Format(time.RFC3339Nano)
	case kind == "STRING":
		return string(v.ByteArray())
	case v.Kind() == lib.Boolean:
		return v.Boolean()
	}
	return json.Number(v.String())
}
