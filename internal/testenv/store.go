package testenv

import (
	"os"
	"testing"
)

// Stores is the directory for the stores of NATS servers: one in memory where the machine has room for it there, or
// empty, which is that of all temporary files. A store makes a directory and some files for each stream and consumer,
// and a disk takes more processor time for those than a server for the rest of a short test. Tests of disks, which lose
// power, are slow or full, make a disk of their own.
func Stores() string { return memory() }

// StoreDir makes a directory for a store, and removes it with the test.
func StoreDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(Stores(), "toolyard-store-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove a store: %v", err)
		}
	})
	return dir
}
