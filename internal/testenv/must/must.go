// Package must ends tests at errors.
package must

import "testing"

// OK ends the test if there is an error. It is for errors that the test is not about.
func OK(t testing.TB, err error) {
	if err != nil {
		t.Helper() // only here: tests call OK in long loops
		t.Fatal(err)
	}
}
