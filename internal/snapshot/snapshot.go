// Package snapshot keeps what workspaces were before calls changed them, and sets workspaces back to that.
//
// Authority: none. Whoever takes or restores a snapshot has the workspace alone: it holds the ticket of an exclusive
// group. A store has a lock beside that for each workspace, so that workers that share the store do not sweep what
// another one is about to use.
//
// A snapshot is a listing of the workspace: each name with its kind, mode, owner and time. The content of files is kept
// apart, under its SHA-256 sum, once for all snapshots of a workspace. Nothing of the workspace is run or obeyed: git's
// configuration, hooks and filters are files like others. Directories are opened one name at a time, and symbolic links
// are never followed.
//
//	DIR/<workspace>/lock             held while a snapshot is taken, restored or swept
//	                objects/ab/cdef  the content of files
//	                <batch>-<group>.before, .after   listings around one exclusive group
//	                <batch>-<group>.between          one between two runs of it, where others changed something then
//	                <batch>.restored                 a listing behind a restore of the batch
//	                <batch>.underway                 stands while one is under way, or was broken off
//	                overlays/<batch>/tree            a copy of the workspace that the calls of a batch change
//	                <batch>.base, .made              listings of the workspace and of its copy when that was made
//	                <batch>.commit                   what is being committed
//	                <batch>.settled                  what has become of an overlay
//
// Failure: a listing has its name when everything in it is on the disk, so a snapshot is whole or is not there. A
// restore moves the workspace towards the listing from whatever it finds: one that was killed is run again, and
// finishes. What cannot be kept ends the call that it was for.
//
// The package works on Linux. Elsewhere each method says that it does not.
package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// The limits of snapshots. Past one, the call that the snapshot is for does not run.
const (
	MaxEntries    = 250_000          // names in a workspace
	MaxBytes      = 8 << 30          // of all files of a workspace
	MaxDepth      = 512              // directories in one another
	MaxStoreBytes = 64 << 30         // that a store keeps for one workspace
	MinFreeBytes  = 512 << 20        // that must stay free on the disk of the store
	TakeTime      = 2 * time.Minute  // for one snapshot
	LockWait      = 30 * time.Second // for another worker that takes, restores or sweeps
)

// Limits are those of a store.
type Limits struct {
	Entries, Depth         int
	Bytes, Store, MustFree int64
}

// Key names a snapshot: the workspace before an exclusive group of a batch.
type Key struct {
	Workspace toolyard.Workspace
	Batch     toolyard.BatchKey
	Group     int
}

// Info says what a snapshot has.
type Info struct {
	// Entries are the names, and Bytes is the size of the files. New is how much of that was not in the store before.
	Entries    int
	Bytes, New int64
	// Kept says that the snapshot was there: it was taken for an earlier attempt of the group.
	Kept bool
}

// String says it for an operator.
func (i Info) String() string {
	if i.Kept {
		return "the snapshot of an earlier attempt stands"
	}
	return fmt.Sprintf("snapshot of %d names, %d bytes, %d of them new", i.Entries, i.Bytes, i.New)
}

// Wish says what a restore goes back to.
type Wish struct {
	Key
	// Groups are the exclusive groups of the batch that have run, in order.
	Groups []int
	// Force restores although others may have changed the workspace since.
	Force bool
	// Ticket is the number under which the workspace is held. A restore that was broken off goes on under the same one
	// without force: nobody else has had the workspace since. 0: none.
	Ticket uint64
	// Later are the batches that ran in the workspace since, for a refusal.
	Later []string
	// Hidden reports which paths a refusal must not name. Nil: none.
	Hidden func(path string) bool
	// Act says before each change whether it may still be made. Nil: it may.
	Act func() error
	// Progress gets the share that is done, 0 to 1. Nil: nobody listens.
	Progress func(float64)
}

// Report says what a restore has done.
type Report struct {
	// Written, Removed and Unchanged are names.
	Written, Removed, Unchanged int
	Bytes                       int64 // that were written
	// Left are sockets and devices that are gone and cannot be made again, Owners how many names could not get their
	// owner back, and Modes how many directories of other users could not get their mode back.
	Left   []string
	Owners int
	Modes  int
}

// Store is a directory with snapshots. Workers that serve the same workspaces share it. It is safe for concurrent use.
type Store struct {
	dir    string
	limits Limits
	// keep is how long snapshots are kept.
	keep time.Duration
	// stored is called when an object is stored; tests break a snapshot off there. Nil: nothing.
	stored func() error
}

// New names a store. Its directory is made, for this user alone, when the first snapshot is taken.
func New(dir string) *Store {
	return &Store{dir: dir, limits: Limits{Entries: MaxEntries, Depth: MaxDepth, Bytes: MaxBytes, Store: MaxStoreBytes,
		MustFree: MinFreeBytes}}
}

// Keep says how long snapshots are kept: the lifetime of batches. Call it before the first [Store.Take].
func (s *Store) Keep(d time.Duration) { s.keep = d }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// The kinds of listings.
const (
	before   = ".before"
	after    = ".after"
	between  = ".between"
	restored = ".restored"
	// underway stands while a restore is under way, or was broken off.
	underway = ".underway"
	base     = ".base"
	made     = ".made"
	commit   = ".commit"
)

// name makes a short name of any values.
func name(of ...any) string {
	raw, err := json.Marshal(of)
	if err != nil {
		panic(err) // names and numbers always encode
	}
	sum := sha256.Sum256(raw)
	const bytes = 16 // enough to be unique
	return hex.EncodeToString(sum[:bytes])
}

// home is where the store keeps what it has of a workspace: the directory of this inode.
func (s *Store) home(w toolyard.Workspace, inode uint64) string {
	return filepath.Join(s.dir, name(w, inode))
}

// listingName is the file of a listing.
func (k *Key) listingName(kind string) string {
	if kind == before || kind == after || kind == between {
		return fmt.Sprintf("%s-%d%s", k.batchName(), k.Group, kind)
	}
	return k.batchName() + kind
}

// batchName is the name that a store has for a batch.
func (k *Key) batchName() string { return name(k.Batch.Agent, k.Batch.ID) }

// unable is why a snapshot cannot be taken of the workspace as it is. detail is for the operator.
func unable(detail error, format string, args ...any) error {
	return &tool.Error{Code: toolyard.SetupRequired, Err: detail,
		Message: "no snapshot of the workspace could be taken: " + fmt.Sprintf(format, args...)}
}

// failed is why a snapshot could not be taken now.
func failed(err error) error {
	return &tool.Error{Code: toolyard.DependencyUnavailable, Err: err,
		Message: "no snapshot of the workspace could be taken: the store of snapshots failed; an operator can see why"}
}

// noDirectory is why nothing is done in a workspace that the worker does not serve.
func noDirectory(k *Key) error {
	return tool.SetupRequired("this worker serves no directory for workspace %q", k.Workspace)
}

// Unusable is why a call does not run on an overlay that is there.
func Unusable(err error) error {
	return &tool.Error{Code: toolyard.DependencyUnavailable, Err: err,
		Message: "the overlay of the batch cannot be used; an operator can see why"}
}

// notNow is why a workspace is not set back.
func notNow(format string, args ...any) error {
	return &tool.Error{Code: toolyard.ExecutionFailed, Message: fmt.Sprintf(format, args...)}
}
