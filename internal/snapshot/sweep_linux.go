package snapshot

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep removes the snapshots that are older than they are kept, the content that no snapshot has, and all that the
// store has of a workspace of which it has nothing else. What another worker uses now is left for the next time.
func (s *Store) Sweep(ctx context.Context) error {
	homes, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, h := range homes {
		if h.IsDir() && ctx.Err() == nil {
			err = errors.Join(err, s.sweep(ctx, filepath.Join(s.dir, h.Name())))
		}
	}
	return errors.Join(err, context.Cause(ctx))
}

func (s *Store) sweep(ctx context.Context, home string) (err error) {
	unlock, err := lock(ctx, home)
	if errors.Is(err, errBusy) || errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	names, err := os.ReadDir(home)
	if err != nil {
		return err
	}
	var left []string // listings with content
	swept, empty := false, true
	for _, n := range names {
		file := filepath.Join(home, n.Name())
		switch filepath.Ext(n.Name()) {
		case before, after, between, restored, underway, base, made, commit, settled:
		default:
			swept = swept || n.Name() == unswept
			empty = empty && slices.Contains([]string{objects, unnamed, unswept, overlays, lockName}, n.Name())
			continue
		}
		info, err := n.Info()
		if err != nil {
			return err
		}
		switch {
		case time.Since(info.ModTime()) > s.keep:
			if err := os.Remove(file); err != nil {
				return err
			}
			swept = true
			continue
		case ofWorkspace(n.Name()), strings.HasSuffix(n.Name(), commit):
			left = append(left, file)
		}
		empty = false
	}
	if err := sweepOverlays(ctx, home); err != nil {
		return err
	}
	if swept {
		if err := sweepContent(ctx, home, left); err != nil {
			return err
		}
	}
	if empty {
		return removeHome(home)
	}
	return nil
}

// sweepContent removes the content that no listing has.
func sweepContent(ctx context.Context, home string, left []string) error {
	// If this ends in the middle, the next sweep does it again.
	if err := os.WriteFile(filepath.Join(home, unswept), nil, 0o600); err != nil {
		return err
	}
	if err := removeBut(ctx, home, left); err != nil {
		return err
	}
	return os.Remove(filepath.Join(home, unswept))
}

// removeHome removes what a store has of a workspace, if that is nothing. It is called under the lock: who waits for
// the lock finds out that it is another one then. What is not empty stays, and is as good as before.
func removeHome(home string) error {
	parts, err := os.ReadDir(filepath.Join(home, objects))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names := []string{unnamed, overlays, objects, lockName, "."}
	for _, part := range parts {
		names = append([]string{filepath.Join(objects, part.Name())}, names...)
	}
	for _, name := range names {
		err := os.Remove(filepath.Join(home, name))
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeBut removes all content but that of some listings.
func removeBut(ctx context.Context, home string, listings []string) error {
	used := map[string]bool{}
	for _, file := range listings {
		if err := sums(file, used); err != nil {
			return err // what it has is not known
		}
	}
	for _, dir := range []string{objects, unnamed} {
		err := filepath.WalkDir(filepath.Join(home, dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return errors.Join(err, context.Cause(ctx))
			}
			if dir == objects && used[filepath.Base(filepath.Dir(p))+d.Name()] {
				return nil
			}
			return os.Remove(p)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sums adds the content that a listing has.
func sums(file string, to map[string]bool) error {
	r, err := begin(file)
	if err != nil {
		return err
	}
	for {
		var e entry
		if err := r.next(&e); errors.Is(err, io.EOF) {
			return r.f.Close()
		} else if err != nil {
			return errors.Join(err, r.f.Close())
		}
		if e.Sum != "" {
			to[e.Sum] = true
		}
	}
}
