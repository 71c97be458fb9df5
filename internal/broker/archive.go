package broker

import (
	"context"
	"time"

	"github.com/toolyard/toolyard/internal/archive"
)

// archivePart is how many times as large as the archive the rest of the store is.
const archivePart = 4

// MinArchiveAfter is how long a batch is over at least before it is archived: who reads it then has it in the streams.
const MinArchiveAfter = time.Minute

// ArchiveBytes is what an archive may use on disk beside [Settings.MaxStoreBytes]: a quarter of it. When it is full,
// batches stay in the streams.
func (s Settings) ArchiveBytes() int64 { return s.WithDefaults().MaxStoreBytes / archivePart }

// Archives moves batches that are over from the streams into objects.
type Archives interface {
	// Archiver makes the archive if it is not there, and returns what moves batches into it that have been over for so
	// long. Several may do that at a time. signer signs what it archives; nil: nobody does.
	Archiver(ctx context.Context, after time.Duration, signer *archive.Signer) (Archiver, error)
}

// Archiver fills an archive. It is not safe for concurrent use.
type Archiver interface {
	// Round archives some of the batches that may be archived. After an error it may be called again: what was begun is
	// continued, by this archiver or another.
	Round(ctx context.Context) (ArchiveRound, error)
}

// ArchiveRound is what a round did.
type ArchiveRound struct {
	// Batches were archived, in Objects with Bytes.
	Batches, Objects int
	Bytes            int64
	// Unreadable says of batches why the archive cannot have them: what stands where their records would be cannot be
	// read. They stay where they are.
	Unreadable []error
	// More says that the next round has more to look at already.
	More bool
}
