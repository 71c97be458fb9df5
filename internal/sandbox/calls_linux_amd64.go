package sandbox

import "golang.org/x/sys/unix"

// Calls that only this processor has, and that later calls replaced.
var (
	allowedOld = []uintptr{
		unix.SYS_ACCESS, unix.SYS_ALARM, unix.SYS_ARCH_PRCTL, unix.SYS_CHOWN, unix.SYS_DUP2, unix.SYS_EPOLL_CREATE,
		unix.SYS_EPOLL_CTL_OLD, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_WAIT_OLD, unix.SYS_EVENTFD, unix.SYS_FORK,
		unix.SYS_FUTIMESAT,
		unix.SYS_GETDENTS, unix.SYS_GETPGRP, unix.SYS_INOTIFY_INIT, unix.SYS_LCHOWN, unix.SYS_LINK, unix.SYS_LSTAT,
		unix.SYS_MKDIR,
		unix.SYS_PAUSE, unix.SYS_PIPE, unix.SYS_POLL, unix.SYS_READLINK, unix.SYS_RENAME, unix.SYS_RMDIR,
		unix.SYS_SELECT,
		unix.SYS_SIGNALFD, unix.SYS_STAT, unix.SYS_SYMLINK, unix.SYS_TIME, unix.SYS_UNLINK, unix.SYS_UTIME,
		unix.SYS_UTIMES,
		unix.SYS_VFORK,
	}
	forbiddenOld = []uintptr{
		unix.SYS_CHMOD, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MKNOD, unix.SYS_MODIFY_LDT,
	}
)

// oldRules are [callRules] for these calls.
var oldRules = map[uintptr][]argument{unix.SYS_CHMOD: noSetID(1), unix.SYS_MKNOD: noSetID(1)}

// oldOpens are calls that make files, with the positions of their flags and mode; flags -1: the call always makes one.
var oldOpens = []opening{{unix.SYS_OPEN, 1, 2}, {unix.SYS_CREAT, -1, 1}}
