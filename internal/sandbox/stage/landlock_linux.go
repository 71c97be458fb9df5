package stage

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockLayer is a second barrier: for this thread and all that it starts, it enforces the same as the mounts,
// independently. landlockScopes are its newer part, which keeps signals and abstract sockets inside.
const (
	landlockLayer  = "landlock"
	landlockScopes = "landlock_scopes"
)

const (
	readAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// makeAccess is what a command may do in a place that it can write to. It can create no devices.
	makeAccess = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	deviceAccess = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	everyAccess  = readAccess | makeAccess | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// newerAccess are the rights that each version of Landlock added: a kernel refuses those that it does not know.
var newerAccess = []struct {
	version        int
	everywhere     uint64 // handled
	making, device uint64 // allowed in places to write to, and on devices
}{
	{2, unix.LANDLOCK_ACCESS_FS_REFER, unix.LANDLOCK_ACCESS_FS_REFER, 0},
	{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE, unix.LANDLOCK_ACCESS_FS_TRUNCATE, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
	{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, 0, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
}

// movesVersion is the first version that is used. Under the one before it no file can be moved or linked into another
// directory, also where the command may write: installers, builds and git would fail.
const movesVersion = 2

// scopesVersion is the first version that keeps signals and abstract sockets inside.
const scopesVersion = 6

// landlock restricts this thread to reading everything visible, and to writing in some directories and to some devices.
// A kernel without Landlock, or with a version that forbids too much, is no error: the layer is then reported as
// missing.
func (w *watch) landlock(writable, devices []string) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		w.missing = append(w.missing, landlockLayer+": this kernel has none, or it is switched off: "+errno.Error())
		return nil
	}
	return w.landlockOf(int(version), writable, devices)
}

// landlockOf is landlock for a kernel with this version of it.
func (w *watch) landlockOf(version int, writable, devices []string) error {
	if version < movesVersion {
		w.missing = append(w.missing, fmt.Sprintf("%s: this kernel's version of it is %d, which lets no file move to "+
			"another directory; version %d came with Linux 5.19", landlockLayer, version, movesVersion))
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: everyAccess}
	making, device := uint64(readAccess|makeAccess), uint64(deviceAccess)
	for _, n := range newerAccess {
		if version >= n.version {
			attr.Handled_access_fs, making, device = attr.Handled_access_fs|n.everywhere, making|n.making,
				device|n.device
		}
	}
	if version >= scopesVersion {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr),
		0)
	if errno != 0 {
		return fmt.Errorf("make the rules: %w", errno)
	}
	err := allow(int(set), "/", readAccess)
	for _, dir := range writable {
		err = errors.Join(err, allow(int(set), dir, making))
	}
	for _, d := range devices {
		err = errors.Join(err, allow(int(set), d, device))
	}
	if err == nil {
		if _, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
			err = fmt.Errorf("apply the rules: %w", errno)
		}
	}
	if err = errors.Join(err, unix.Close(int(set))); err != nil {
		return err
	}
	w.layers = append(w.layers, landlockLayer)
	if version >= scopesVersion {
		w.layers = append(w.layers, landlockScopes)
	} else {
		w.missing = append(w.missing, fmt.Sprintf("%s: this kernel's version of Landlock is %d, and they came with %d",
			landlockScopes, version, scopesVersion))
	}
	return nil
}

// allow adds a rule: it permits this access to everything below a path.
func allow(set int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		err = fmt.Errorf("allow %s: %w", path, errno)
	}
	return errors.Join(err, unix.Close(fd))
}
