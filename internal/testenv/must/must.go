// Package must ends tests at errors.
package must

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// OK ends the test if there is an error. It is for errors that the test is not about.
func OK(t testing.TB, err error) {
	if err != nil {
		t.Helper() // only here: tests call OK in long loops
		t.Fatal(err)
	}
}

// Read is what a file has.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	OK(t, err)
	return data
}

// JSON is a value as JSON.
func JSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	OK(t, err)
	return data
}

// File writes a file into a directory of its own, and returns its path.
func File(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
