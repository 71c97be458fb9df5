// Package must ends tests at errors.
package must

import (
	"encoding/json"
	"os"
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
