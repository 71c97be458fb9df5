package testenv

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// Damage flips a byte in every stored message of a stream that is picked, by its subject and what stands in it, in the
// files of a server that is stopped. It fails the test when none is. The server finds out when it reads them.
func Damage(t testing.TB, store, stream string, pick func(subject string, record []byte) bool) {
	t.Helper()
	dir := filepath.Join(store, "jetstream", "$G", "streams", stream, "msgs")
	blocks, err := filepath.Glob(filepath.Join(dir, "*.blk"))
	must.OK(t, err)
	damaged := 0
	for _, path := range blocks {
		block, err := os.ReadFile(path)
		must.OK(t, err)
		// A record is its length, sequence, time and length of subject, then subject, headers and data, and a checksum
		// at the end.
		const head, checksum, hasHeaders = 22, 8, 1 << 31
		for at := 0; at < len(block); {
			length := int(binary.LittleEndian.Uint32(block[at:]) &^ hasHeaders)
			if length < head+checksum || at+length > len(block) {
				t.Fatalf("%s is not laid out as this test knows it", path)
			}
			record := block[at : at+length]
			subject := string(record[head : head+int(binary.LittleEndian.Uint16(record[20:]))])
			if pick(subject, record) {
				record[length-checksum-1] ^= 0x55
				damaged++
			}
			at += length
		}
		must.OK(t, os.WriteFile(path, block, 0o600))
	}
	if damaged == 0 {
		t.Fatalf("no message of %s was damaged", stream)
	}
}
