package stage

import "time"

const (
	// Name is the stage's argv[0]; only this name makes a process a stage.
	Name = "toolyard-sandbox-stage"
	// Socket is the file descriptor of the socket to the worker. It closes when the worker dies.
	Socket = 3
	// ArgsFD is the descriptor from which an outer stage (bwrap) reads its arguments.
	ArgsFD = 4
	// ProxyPort is the proxy's port on the sandbox's own loopback.
	ProxyPort = 3128
)

// Root is what the stage builds before it knows its command. It is the same for all commands of a worker, so that a
// stage can be ready when the next command comes. Paths have no leading slash.
type Root struct {
	// Build says that the stage builds the root; otherwise an outer one (bwrap) has built it, and the stage only does
	// the rest.
	Build bool
	// Bytes and Inodes bound the tmpfs of the root and of everything writable outside the workspace.
	Bytes, Inodes int64

	Dirs  []Dir
	Files []File
	Links []Link
	Binds []Bind
	// Open are directories of the root that stay writable when the rest becomes read-only.
	Open     []string
	Hostname string
	// Filter is the seccomp program in the kernel's format. Own is a second one, for the command and not for the stage.
	Filter, Own []byte
	// UserLimits and SocketLimits are set below /proc/sys, for the user namespace and the net namespace.
	UserLimits, SocketLimits []Setting
	// UID and GID are the command's user and group inside; HostUID and HostGID those outside.
	UID, GID, HostUID, HostGID int
	// Namespaces are the worker's own, as /proc/self/ns shows them: the command must be in none of them.
	Namespaces map[string]string
}

// Spec is the command and everything that the stage does for it. Its message also brings descriptors: the command's
// standard streams, the workspace's mount if the worker has prepared it, and the archives of Keep.
type Spec struct {
	// Dirs, Files and Binds are this command's additions to the [Root].
	Dirs  []Dir
	Files []File
	Binds []Bind
	// Workspace is the path of the workspace, and Protect what is protected in it. Empty: there is none.
	Workspace string
	Protect   []Protected
	// Masks are places of the workspace that the command cannot open.
	Masks []Mask
	// Bound, Seal and Hide are mounts of the outer stage: mounts in memory that get the root's limits, mounts that
	// become read-only after the files are written, and mounts that the command must not find.
	Bound, Seal, Hide []string
	// Writable are all directories that the command can write in. Beside them it can write only to the devices of the
	// [Root].
	Writable []string
	// Scratch are the places in memory that the command can write to, one per file system.
	Scratch []string
	// Keep says what the command finds in /tmp and leaves there. Nil: nothing.
	Keep *Keep
	// Proxy asks for a listening socket on the loopback, which is passed to the worker.
	Proxy bool

	Argv []string
	Env  []string
	Dir  string

	Rlimits []Rlimit
	// Memory is the limit of all processes together, in bytes; CPU is their limit of CPU time. The stage measures every
	// Tick.
	Memory int64
	CPU    time.Duration
	Tick   time.Duration
	// Sockets is how many sockets may be open.
	Sockets int64
	// DiskFree is what must stay free under the workspace, in bytes, if the command takes more than DiskStep. 0: no
	// check.
	DiskFree, DiskStep int64
	// FilesFree and FilesStep are the same for files.
	FilesFree, FilesStep int64
}

// Keep says which archives of files the stage gets, From before To. It unpacks the first in Dir before the command
// starts, and packs Dir into the second when every other process is gone.
type Keep struct {
	From, To bool
	Dir      string
	// Note is a name in Dir, whose content is reported and not packed; MaxNote bounds it, in bytes. Empty: none.
	Note    string
	MaxNote int64
	// Bytes and Names bound the archive.
	Bytes, Names int64
}

// Entry is a name in an archive of Keep. Behind that of a file are Size bytes of content.
type Entry struct {
	Kind EntryKind
	Path string
	Mode uint32
	// Time is when it was changed, in nanoseconds since 1970.
	Time int64
	Size int64
	To   string // a link's target
}

// EntryKind says what an entry is. 0 is the end of the archive.
type EntryKind int

// The kinds of entries.
const (
	DirEntry EntryKind = iota + 1
	FileEntry
	LinkEntry
)

// Kept says what a stage has packed.
type Kept struct {
	// Bytes is the content of all files, Names counts the names, and Left those that were left out.
	Bytes, Names, Left int64
	Note               []byte
	// Problem says why nothing is kept. Empty: the archive is whole.
	Problem string
}

// Setting is a file below /proc/sys and what to write to it.
type Setting struct{ Path, Value string }

// Dir is a directory to make.
type Dir struct {
	Path string
	Mode uint32
}

// File is a file to write, for the command to read.
type File struct {
	Path    string
	Mode    uint32
	Content []byte
}

// Link is a symbolic link to make.
type Link struct{ Path, To string }

// Bind mounts a file or directory of the machine inside. It is nosuid, and nodev except with Device.
type Bind struct {
	// Source is the path outside. Prepared: the worker sends the mount as a descriptor.
	Source   string
	Prepared bool
	// Dev and Ino, if set, are what the worker saw at Source: nothing else is mounted.
	Dev, Ino uint64
	Target   string
	IsDir    bool
	ReadOnly bool
	Device   bool
}

// Protected is a path of the workspace. Writable ones are parents of others: they become mounts, so that they cannot be
// renamed, and stay writable.
type Protected struct {
	Path     string
	Writable bool
}

// Mask is a place of the workspace that is covered by a file or directory that nobody can open: [MaskFile] or
// [MaskDir].
type Mask struct {
	Path string
	Dir  bool
}

// The paths in the root of what covers masked places.
const (
	MaskDir  = "run/hidden"
	MaskFile = "run/hidden.file"
)

// Rlimit is one kernel limit, soft and hard.
type Rlimit struct {
	Resource  int
	Soft, Max uint64
}

// Report is a message of the stage on its socket. Exactly one field is set.
type Report struct {
	Failed *Failure
	Ready  *Ready
	Ended  *Ended
}

// What the worker sends on the socket after the [Spec], each as one byte: first, after it got [Ready], that the command
// must start, and later perhaps that it must end.
const (
	Go   = 'g'
	Stop = 's'
)

// Failure is a step that failed: nothing has run.
type Failure struct {
	Step, Err string
	Errno     int
	// NoCommand says that everything was set up and only the command could not be started. NoKeep says that the archive
	// could not be unpacked.
	NoCommand, NoKeep bool
}

// Ready says that only the start of the command is left, and which layers the stage has verified. The stage continues
// when the worker sends [Go]. So a worker that has not sent it knows that nothing has run, and a worker that has sent
// it never starts the command again.
type Ready struct {
	Layers []string
	// Missing are layers that this kernel does not support, each with the reason.
	Missing []string
}

// Ended is how the command ended.
type Ended struct {
	// Exit is its exit status, or -1 with the Signal that killed it.
	Exit   int
	Signal int
	// Over is set if the stage stopped it: over "memory", "cpu", "disk" or "sockets".
	Over string
	// Told says that it had been told to stop before it ended.
	Told bool
	// User and System are the CPU time of all reaped processes; MaxRSS is the largest process, in bytes.
	User, System time.Duration
	MaxRSS       int64
	// Peak is the largest measured use of memory, in bytes.
	Peak int64
	// Kept says what was packed. Nil: nobody has asked for that.
	Kept *Kept
}
