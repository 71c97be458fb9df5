package snapshot

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// attributes sets owner, mode and time of something open back. A directory of another user keeps its own time, which
// only that user can set, and which each change of a name in it changes. It keeps its mode too, and the
// report counts that: a failure there would leave the rest of the workspace as it is, however often the restore or the
// commit is run again.
func (r *restoring) attributes(f *os.File, e *entry) error {
	st, err := statOf(f)
	if err != nil {
		return err
	}
	if was := entryOf(string(e.Path), st); was.Mode == e.Mode && was.owned(e) && was.Changed == e.Changed {
		return nil
	}
	if err := r.act(); err != nil {
		return err
	}
	if st.Uid != e.UID || st.Gid != e.GID {
		if err := r.owned(unix.Fchown(int(f.Fd()), int(e.UID), int(e.GID))); err != nil {
			return err
		}
		if st, err = statOf(f); err != nil { // a change of the owner takes bits of the mode away
			return err
		}
	}
	if uint32(st.Mode)&permissions != e.Mode {
		switch err := unix.Fchmod(int(f.Fd()), e.Mode); {
		case isDir(st) && errors.Is(err, unix.EPERM):
			r.report.Modes++
		case err != nil:
			return err
		}
	}
	err = unix.UtimesNanoAt(int(f.Fd()), "", times(e), unix.AT_EMPTY_PATH)
	if isDir(st) && errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// owned passes over an owner that this user may not give.
func (r *restoring) owned(err error) error {
	if errors.Is(err, unix.EPERM) {
		r.report.Owners++
		return nil
	}
	return err
}

func times(e *entry) []unix.Timespec {
	return []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(e.Changed)}
}

// attributesOf sets owner and time of what cannot be opened back.
func (r *restoring) attributesOf(dir *os.File, name string, e *entry) error {
	st, err := stat(dir, name)
	if err != nil {
		return err
	}
	if st.Uid != e.UID || st.Gid != e.GID {
		err := unix.Fchownat(int(dir.Fd()), name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW)
		if err := r.owned(err); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(int(dir.Fd()), name, times(e), unix.AT_SYMLINK_NOFOLLOW)
}
