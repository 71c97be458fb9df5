// Package shells keeps what shells remember between commands.
//
// That is the directory, the exported variables, and the files of /tmp as an archive that only a sandbox unpacks.
//
// Authority: none. Whoever changes a shell has the workspace alone: it holds the ticket of an exclusive group, and has
// checked its lease right before [Shell.Commit]. The directory has one lock beside that, since workers that serve the
// same workspaces share it.
//
//	DIR/lock              held for each look and each change
//	    <name>.json       what a shell remembers, or why it has ended
//	    <name>.running    stands while a command runs that may change the shell
//	    <name>.*.new      one of these that is being written
//	    <name>.<text>     an archive of /tmp; a record names the one that counts
//
// Failure: a shell changes with the rename of its record, and so as a whole or not at all. A worker that dies leaves
// what was before, and the mark that a command ran. A record or an archive that cannot be read is a shell that has
// ended. Nothing here is flushed to the disk: what a power loss takes is a shell that has ended.
//
// The package works on Linux. Elsewhere each method says that it does not.
package shells

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The limits of shells.
const (
	MaxTmpBytes   = 16 << 20         // bytes of the files of /tmp that last; if there is more, nothing lasts
	MaxTmpNames   = 4096             // names in /tmp
	MaxVariables  = 512              // exported variables
	MaxEnvBytes   = 64 << 10         // bytes of their names and values
	MaxShells     = 64               // shells in a store; a new one then ends one of the agent with the most
	MaxIdle       = time.Hour        // without a command, after which a shell ends
	MaxEndedAge   = 24 * time.Hour   // for which it is known why a shell has ended
	MaxEnded      = 4096             // shells of which that is known
	LockWait      = 30 * time.Second // for the lock of the store
	maxRecord     = 1 << 20          // bytes of a record: a state at its limits, encoded
	orphanAge     = time.Hour        // of an archive that no record names: longer than any command runs
	maxNamedBytes = 200              // bytes of a call's name
)

// Why a shell has ended, for the model.
const (
	endedIdle    = "the earlier one was idle for too long"
	endedRoom    = "the earlier one gave way to the shell of another session"
	endedDamaged = "what the earlier one remembered cannot be read"
)

// Key names a shell: one agent's session in one workspace, whose directory is Dir.
type Key struct{ Agent, Session, Workspace, Dir string }

// State is what a shell remembers beside the files of /tmp.
type State struct {
	// Dir and Before are the working directory and the one before it, relative to the workspace. Empty: its top.
	Dir    string `json:"dir,omitempty"`
	Before string `json:"before,omitempty"`
	// Env are the exported variables that a new sandbox does not have.
	Env map[string]string `json:"env,omitempty"`
}

// record is the file of a shell.
type record struct {
	State
	// Agent is whose shell it is.
	Agent string `json:"agent,omitempty"`
	// Tmp is the name of the archive; empty: /tmp is empty.
	Tmp string `json:"tmp,omitempty"`
	// Ended says why the shell has ended. Nothing else is set then.
	Ended string `json:"ended,omitempty"`
}

// Store is a directory with shells. It is safe for concurrent use, also by several processes.
type Store struct {
	dir  string
	idle time.Duration
	most int
}

// New names a store. Its directory is made, for this user alone, when the first shell is opened.
func New(dir string) *Store { return &Store{dir: dir, idle: MaxIdle, most: MaxShells} }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

// Shell is a shell while a command runs. Close it.
type Shell struct {
	State
	// From is the archive of /tmp, nil if it is empty. To gets the next one, nil if the command changes nothing.
	From, To *os.File
	// News says what the model must know: why the shell is new although there was one, or which command was lost.
	News []string

	store *Store
	agent string
	name  string
	tmp   string // the name of From
	lost  []byte // the mark of a command that was stopped or lost; nil for none
	kept  bool   // Commit has stored a state, and removed the mark of this command
}

// End says what a command has done with its shell.
type End int

const (
	Unused End = iota // the command did not start: the next one is told what this one would have been
	Told              // the model knows what became of the shell
	Lost              // the next command is told that this one was stopped or lost
)

// Open opens a shell for a command. call names it, for whoever opens the shell after a loss. changes says that the
// command may change the shell.
func (s *Store) Open(ctx context.Context, key Key, call string, changes bool) (sh *Shell, err error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	sh = &Shell{store: s, name: nameOf(key), agent: key.Agent}
	defer func() {
		if err != nil {
			err = errors.Join(err, sh.close())
		}
	}()
	known, err := s.read(sh)
	if err != nil {
		return sh, err
	}
	switch lost, err := os.ReadFile(s.path(sh.name + runningSuffix)); {
	case err == nil:
		sh.lost = lost
		named := strings.ToValidUTF8(string(lost[:min(len(lost), maxNamedBytes)]), "\uFFFD")
		sh.News = append(sh.News, named+" was stopped or lost while it ran: what it changed in directory, "+
			"variables and /tmp is not here")
	case !errors.Is(err, fs.ErrNotExist):
		return sh, err
	}
	if !changes {
		return sh, nil
	}
	if !known {
		if err := s.makeRoom(key.Agent); err != nil {
			return sh, err
		}
	}
	if sh.To, err = os.OpenFile(s.path(sh.name+"."+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return sh, err
	}
	return sh, s.replace(sh.name+runningSuffix, []byte(call))
}

// Directory returns the directory in which the next command of a shell begins, relative to the workspace; empty: at its
// top.
func (s *Store) Directory(ctx context.Context, key Key) (dir string, err error) {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	sh, err := s.Open(ctx, key, "", false)
	if err != nil {
		return "", err
	}
	return sh.Dir, sh.Close(Unused)
}

// read fills a shell from its record. known reports whether there is one that has not ended.
func (s *Store) read(sh *Shell) (known bool, err error) {
	file := s.path(sh.name + recordSuffix)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	rec, err := readRecord(file)
	if err == nil && rec.Ended == "" && time.Since(info.ModTime()) > s.idle {
		rec, err = record{Ended: endedIdle}, s.end(sh.name, endedIdle)
		if err != nil {
			return false, err
		}
	}
	if err == nil && rec.Tmp != "" {
		sh.From, err = os.Open(s.path(rec.Tmp))
	}
	if err != nil {
		rec = record{Ended: endedDamaged}
		if err := s.end(sh.name, endedDamaged); err != nil {
			return false, err
		}
	}
	if rec.Ended != "" {
		sh.News = append(sh.News, "it is new: "+rec.Ended)
		return false, nil
	}
	sh.State, sh.tmp = rec.State, rec.Tmp
	now := time.Now()
	return true, os.Chtimes(file, now, now)
}

// Damaged ends a shell whose archive cannot be unpacked. The shell is closed.
func (sh *Shell) Damaged(ctx context.Context) error {
	unlock, err := sh.store.lock(ctx)
	if err == nil {
		err = errors.Join(sh.store.end(sh.name, endedDamaged), unlock())
	}
	return errors.Join(err, sh.Close(Unused))
}

// Commit stores what the shell remembers from now on, with the archive in To, or if tmp is false with the former one.
func (sh *Shell) Commit(ctx context.Context, state State, tmp bool) (err error) {
	unlock, err := sh.store.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	rec, old := record{State: state, Agent: sh.agent, Tmp: sh.tmp}, ""
	if tmp {
		rec.Tmp, old = filepath.Base(sh.To.Name()), sh.tmp
	}
	if err := sh.store.write(sh.name, rec); err != nil {
		return err
	}
	sh.tmp, sh.kept = rec.Tmp, true
	// Here, and not with Close: a process that dies in between has lost nothing.
	return errors.Join(sh.store.remove(sh.name+runningSuffix), sh.store.remove(old))
}

// Close ends the use of a shell.
func (sh *Shell) Close(end End) error {
	var err error
	switch {
	case sh.To == nil || end == Lost || sh.kept: // the mark may be that of another command by now
	case end == Unused && sh.lost != nil:
		err = sh.store.replace(sh.name+runningSuffix, sh.lost)
	default:
		err = sh.store.remove(sh.name + runningSuffix)
	}
	return errors.Join(err, sh.close())
}

func (sh *Shell) close() error {
	var err error
	if sh.From != nil {
		err = sh.From.Close()
	}
	if sh.To != nil {
		err = errors.Join(err, sh.To.Close())
		if name := filepath.Base(sh.To.Name()); name != sh.tmp {
			err = errors.Join(err, sh.store.remove(name))
		}
	}
	return err
}

// Sweep ends shells that nobody has used for too long, and removes what no shell needs. The limits hold without it: it
// frees the disk.
func (s *Store) Sweep(ctx context.Context) (err error) {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	live, ended, err := s.list()
	if err != nil {
		return err
	}
	inUse := map[string]bool{}
	for _, f := range live {
		if time.Since(f.used) > s.idle {
			err = errors.Join(err, s.end(f.name, endedIdle))
			continue
		}
		inUse[f.tmp] = true
	}
	for i, f := range ended { // the oldest first
		if time.Since(f.used) > MaxEndedAge || i < len(ended)-MaxEnded {
			err = errors.Join(err, s.remove(f.name+recordSuffix))
		}
	}
	entries, e := os.ReadDir(s.dir)
	err = errors.Join(err, e)
	for _, d := range entries {
		info, e := d.Info()
		if e != nil || inUse[d.Name()] || d.Name() == lockName || strings.HasSuffix(d.Name(), recordSuffix) {
			continue
		}
		if time.Since(info.ModTime()) > max(orphanAge, s.idle) {
			err = errors.Join(err, s.remove(d.Name()))
		}
	}
	return err
}

// The names in a store.
const (
	lockName      = "lock"
	recordSuffix  = ".json"
	runningSuffix = ".running"
	newSuffix     = ".new" // behind the name of what is being written
)

func nameOf(key Key) string {
	raw, err := json.Marshal(key)
	if err != nil {
		panic(err) // texts always encode
	}
	sum := sha256.Sum256(raw)
	const bytes = 16 // enough to be unique
	return hex.EncodeToString(sum[:bytes])
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// remove removes a file, if it is there. An empty name is none.
func (s *Store) remove(name string) error {
	if name == "" {
		return nil
	}
	if err := os.Remove(s.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func readRecord(file string) (rec record, err error) {
	info, err := os.Stat(file)
	if err == nil && info.Size() > maxRecord {
		err = fmt.Errorf("a record of %d bytes", info.Size())
	}
	if err != nil {
		return rec, err
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = decode(raw, &rec)
	}
	return rec, err
}

// decode reads a record strictly: what is not as [Store.write] writes it is damaged.
func decode(raw []byte, rec *record) error {
	if err := json.Unmarshal(raw, rec); err != nil {
		return err
	}
	if rec.Tmp != "" && (filepath.Base(rec.Tmp) != rec.Tmp || strings.HasPrefix(rec.Tmp, ".")) {
		return fmt.Errorf("an archive with the name %q", rec.Tmp)
	}
	for _, dir := range []string{rec.Dir, rec.Before} {
		if dir != "" && (!filepath.IsLocal(dir) || filepath.Clean(dir) != dir) {
			return fmt.Errorf("a directory with the name %q", dir)
		}
	}
	return rec.State.Check()
}

// Check says which limit the variables exceed, or which name is none.
func (s *State) Check() error {
	size := 0
	for name, value := range s.Env {
		if !Lasts(name) || strings.ContainsRune(value, 0) {
			return fmt.Errorf("%q is no variable that lasts", name)
		}
		size += len(name) + len(value)
	}
	if len(s.Env) > MaxVariables || size > MaxEnvBytes {
		return fmt.Errorf("%d exported variables of %d bytes; at most %d of %d bytes last", len(s.Env), size,
			MaxVariables, MaxEnvBytes)
	}
	return nil
}

// Lasts reports whether a variable of this name lasts: it is a name of a shell's variable, and none that the shell sets
// itself.
func Lasts(name string) bool {
	switch name {
	case "", "PWD", "OLDPWD", "SHLVL", "_", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "UID", "EUID", "PPID":
		return false
	}
	for i, c := range []byte(name) {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// write replaces a record.
func (s *Store) write(name string, rec record) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return s.replace(name+recordSuffix, raw)
}

// replace replaces a file as a whole, or not at all: a full disk leaves what was there, or nothing.
func (s *Store) replace(name string, content []byte) error {
	temporary := s.path(name + newSuffix)
	err := os.WriteFile(temporary, content, 0o600)
	if err == nil {
		err = os.Rename(temporary, s.path(name))
	}
	if err != nil {
		return errors.Join(err, s.remove(name+newSuffix))
	}
	return nil
}

// end ends a shell: what it remembers goes, and why is noted.
func (s *Store) end(name, why string) error {
	rec, _ := readRecord(s.path(name + recordSuffix)) // the archive of a damaged one is removed when it is old
	if err := s.write(name, record{Ended: why}); err != nil {
		return err
	}
	return s.remove(rec.Tmp)
}

// listed is a record as the store lists it.
type listed struct {
	name, agent, tmp string
	used             time.Time
}

// list lists the shells that live and those that have ended, each with the one first that was not used for the longest.
// One in which a command runs is used now.
func (s *Store) list() (live, ended []listed, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range entries {
		name, ok := strings.CutSuffix(d.Name(), recordSuffix)
		info, err := d.Info()
		if !ok || err != nil {
			continue
		}
		rec, err := readRecord(s.path(d.Name()))
		f := listed{name: name, agent: rec.Agent, tmp: rec.Tmp, used: info.ModTime()}
		if _, err := os.Lstat(s.path(name + runningSuffix)); err == nil {
			f.used = time.Now()
		}
		if err != nil || rec.Ended != "" { // whoever opens a damaged one is told
			ended = append(ended, f)
		} else {
			live = append(live, f)
		}
	}
	older := func(a, b listed) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) }
	slices.SortFunc(live, older)
	slices.SortFunc(ended, older)
	return live, ended, nil
}

// makeRoom ends shells until there is room for one more of an agent. It takes those of the agent that has the most, so
// that nobody with many sessions ends the shells of others.
func (s *Store) makeRoom(agent string) error {
	live, _, err := s.list()
	for err == nil && len(live) >= s.most {
		count := map[string]int{agent: 1}
		most := 0
		for _, f := range live {
			count[f.agent]++
			most = max(most, count[f.agent])
		}
		if count[agent] == most { // its own, where it has as many as another
			most = -1
		}
		i := slices.IndexFunc(live, func(f listed) bool {
			return most < 0 && f.agent == agent || count[f.agent] == most
		})
		err = s.end(live[i].name, endedRoom)
		live = slices.Delete(live, i, i+1)
	}
	return err
}
