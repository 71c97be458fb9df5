package stage

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inside are the flags of a look-up below a directory that the command or others can write to: it follows no symbolic
// links, so that no name there leads elsewhere.
const inside = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// buildRoot makes an empty root and mounts in it what every command sees. Everything is mounted by descriptor, so that
// a path is resolved only once.
func buildRoot(r *Root) (root int, err error) {
	unix.Umask(0)
	if root, err = newRoot(r); err != nil {
		return -1, err
	}
	if err := fill(root, r.Dirs, r.Files); err != nil {
		return -1, err
	}
	for _, l := range r.Links {
		if err := at(unix.Symlinkat(l.To, root, l.Path), "link %s", l.Path); err != nil {
			return -1, err
		}
	}
	for _, dir := range r.Open {
		if err := at(bindSelf(root, dir, false), "open %s", dir); err != nil {
			return -1, err
		}
	}
	for i := range r.Binds {
		if err := bind(root, &r.Binds[i], -1); err != nil {
			return -1, at(err, "show %s", r.Binds[i].Target)
		}
	}
	if err := at(mountProc(root), "mount proc"); err != nil {
		return -1, err
	}
	if err := at(unix.Sethostname([]byte(r.Hostname)), "name the machine"); err != nil {
		return -1, err
	}
	return root, at(wakeLoopback(), "wake the loopback")
}

// finishOwn adds this command's own part to a root that the stage has built, and enters it.
func finishOwn(root int, s *Spec, mount int) error {
	unix.Umask(0)
	if err := fill(root, s.Dirs, s.Files); err != nil {
		return err
	}
	for i := range s.Binds {
		if err := bind(root, &s.Binds[i], mount); err != nil {
			return at(err, "show %s", s.Binds[i].Target)
		}
	}
	if err := at(setReadOnly(root, 0), "make the root read-only"); err != nil {
		return err
	}
	if err := enter(root); err != nil {
		return err
	}
	if err := at(unix.Close(root), "let go of the root"); err != nil {
		return err
	}
	if err := protect(s); err != nil {
		return err
	}
	return mask(s)
}

// newRoot mounts an empty tmpfs over the old root: look-ups that begin at the old one still use the old one.
func newRoot(r *Root) (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, at(err, "open a tmpfs")
	}
	defer func() { _ = unix.Close(fs) }()
	for _, o := range [][2]string{{"size", strconv.FormatInt(r.Bytes, 10)},
		{"nr_inodes", strconv.FormatInt(r.Inodes, 10)}, {"mode", "0755"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, at(err, "set %s of the root", o[0])
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, at(err, "make the root")
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, at(err, "mount the root")
	}
	return root, at(unix.MoveMount(root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH), "attach the root")
}

// fill makes directories and files on the root itself.
func fill(root int, dirs []Dir, files []File) error {
	for _, d := range dirs {
		if err := unix.Mkdirat(root, d.Path, d.Mode); err != nil && !errors.Is(err, unix.EEXIST) {
			return at(err, "make the directory %s", d.Path)
		}
	}
	for _, f := range files {
		if err := at(writeFile(root, f), "write %s", f.Path); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(root int, f File) error {
	fd, err := unix.Openat2(root, f.Path,
		&unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, Mode: uint64(f.Mode),
			Resolve: inside})
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), f.Path)
	_, err = file.Write(f.Content)
	return errors.Join(err, file.Close())
}

// bind mounts one file or directory, with the mounts below it.
func bind(root int, b *Bind, prepared int) error {
	tree, err := source(b, prepared)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	set := uint64(unix.MOUNT_ATTR_NOSUID)
	if b.ReadOnly {
		set |= unix.MOUNT_ATTR_RDONLY
	}
	if b.Device {
		set |= unix.MOUNT_ATTR_NOEXEC
	} else {
		set |= unix.MOUNT_ATTR_NODEV
	}
	flags := uint(unix.AT_EMPTY_PATH)
	if b.IsDir {
		flags |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(tree, "", flags, &unix.MountAttr{Attr_set: set}); err != nil {
		return err
	}
	target, err := mountpoint(root, b.Target, b.IsDir)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(target) }()
	return unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// source opens the source of a bind, as a detached tree.
func source(b *Bind, prepared int) (int, error) {
	if b.Prepared {
		return unix.FcntlInt(uintptr(prepared), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, b.Source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fd) }()
	if b.Ino != 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return -1, err
		}
		if st.Dev != b.Dev || st.Ino != b.Ino {
			return -1, fmt.Errorf("%s was swapped while the sandbox was made", b.Source)
		}
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if b.IsDir {
		flags |= unix.AT_RECURSIVE
	}
	return unix.OpenTree(fd, "", flags)
}

// mountpoint opens a place of the root, and creates it if it is missing.
func mountpoint(root int, at string, dir bool) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: inside}
	fd, err := unix.Openat2(root, at, &how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parent, err := unix.Openat2(root, path.Dir(at), &how)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(parent) }()
	if dir {
		err = unix.Mkdirat(parent, path.Base(at), 0o755)
	} else {
		err = unix.Mknodat(parent, path.Base(at), unix.S_IFREG|0o444, 0)
	}
	if err != nil {
		return -1, err
	}
	return unix.Openat2(root, at, &how)
}

// bindSelf mounts a place below base over itself.
func bindSelf(base int, place string, readOnly bool) error {
	fd, err := unix.Openat2(base, place, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: inside})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	if readOnly {
		if err := setReadOnly(tree, unix.AT_RECURSIVE); err != nil {
			return err
		}
	}
	return unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

func setReadOnly(mount int, flags uint) error {
	return unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// mountProc mounts a proc of the new pid namespace that shows only processes.
func mountProc(root int) error {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigSetString(fs, "subset", "pid"); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	// Read-only, because the OOM score of a process is a file in it. The targets of /proc/self/fd are elsewhere.
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(mount) }()
	return unix.MoveMount(mount, "", root, "proc", unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// enter makes the new root this process's root and detaches the old one, with everything that was mounted there.
func enter(root int) error {
	if err := at(unix.Fchdir(root), "enter the root"); err != nil {
		return err
	}
	if err := at(unix.PivotRoot(".", "."), "swap the roots"); err != nil {
		return err
	}
	if err := at(unix.Unmount(".", unix.MNT_DETACH), "let go of the old root"); err != nil {
		return err
	}
	return at(unix.Chdir("/"), "enter the root")
}

// protect makes parts of the workspace read-only, each as a separate mount.
func protect(s *Spec) error {
	if len(s.Protect) == 0 {
		return nil
	}
	ws, err := unix.Openat2(unix.AT_FDCWD, s.Workspace,
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return at(err, "open the workspace")
	}
	defer func() { _ = unix.Close(ws) }()
	for _, p := range s.Protect {
		if err := at(bindSelf(ws, p.Path, !p.Writable), "protect %s", p.Path); err != nil {
			return err
		}
	}
	return nil
}

// mask mounts a file or directory that nobody can open over what is hidden. A place that no longer exists needs no
// mask.
func mask(s *Spec) error {
	if len(s.Masks) == 0 {
		return nil
	}
	ws, err := unix.Openat2(unix.AT_FDCWD, s.Workspace,
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return at(err, "open the workspace")
	}
	defer func() { _ = unix.Close(ws) }()
	for _, m := range s.Masks {
		if err := maskOne(ws, m); err != nil && !errors.Is(err, unix.ENOENT) {
			return at(err, "hide %s", m.Path)
		}
	}
	return nil
}

func maskOne(ws int, m Mask) error {
	target, err := unix.Openat2(ws, m.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: inside})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(target) }()
	cover := MaskFile
	if m.Dir {
		cover = MaskDir
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/"+cover,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("open %s: %v", cover, err) // it must exist: no ENOENT
	}
	defer func() { _ = unix.Close(tree) }()
	if err := setReadOnly(tree, 0); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// finishOuter does what an outer stage cannot: it protects, writes files that must not be in arguments, and unmounts
// this program.
func finishOuter(r *Root, s *Spec) error {
	if err := protect(s); err != nil {
		return err
	}
	for _, files := range [][]File{r.Files, s.Files} {
		for _, f := range files {
			if err := os.WriteFile("/"+f.Path, f.Content, os.FileMode(f.Mode)); err != nil {
				return at(err, "write %s", f.Path)
			}
		}
	}
	if err := mask(s); err != nil {
		return err
	}
	for _, dir := range s.Bound { // bwrap bounds their bytes, but not the number of their files
		options := "size=" + strconv.FormatInt(r.Bytes, 10) + ",nr_inodes=" + strconv.FormatInt(r.Inodes, 10)
		if err := at(unix.Mount("", "/"+dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, options),
			"bound the files of %s", dir); err != nil {
			return err
		}
	}
	for _, dir := range s.Seal {
		if err := at(unix.MountSetattr(unix.AT_FDCWD, "/"+dir, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}),
			"make %s read-only", dir); err != nil {
			return err
		}
	}
	for _, h := range s.Hide {
		if err := at(unix.Unmount(h, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW), "hide %s", h); err != nil {
			return err
		}
	}
	return nil
}

// wakeLoopback sets lo up, the only interface.
func wakeLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(req))); errno != 0 {
		return errno
	}
	return nil
}
