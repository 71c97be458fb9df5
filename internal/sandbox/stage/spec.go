package stage

import "time"

const (
	// Name is the stage's argv[0]; nothing else makes a process one.
	Name = "toolyard-sandbox-stage"
	// Socket is the file descriptor of the socket to the worker. Its closing is the worker's death.
	Socket = 3
	// ArgsFD is where an outer stage (bwrap) reads its arguments.
	ArgsFD = 4
	// ProxyPort is where programs inside find the proxy, on the sandbox's own loopback.
	ProxyPort = 3128
)

// Root is what the stage builds before it knows its command: the same for all commands of a worker, so that one can be
// ready when the next command comes. Paths have no slash in front.
type Root struct {
	// Build says that the stage builds the root; otherwise an outer one (bwrap) has, and only what it cannot do is
	// left.
	Build bool
	// Bytes and Inodes bound the tmpfs that the root and everything writable outside the workspace lie on.
	Bytes, Inodes int64

	Dirs  []Dir
	Files []File
	Links []Link
	Binds []Bind
	// Open are directories of the root that stay writable when the rest of it becomes read-only.
	Open     []string
	Hostname string
	// Filter is the seccomp program as the kernel reads it; Own is a second one, for the command and not for the stage.
	Filter, Own []byte
	// UserLimits and SocketLimits are set below /proc/sys, for the user namespace and the net namespace.
	UserLimits, SocketLimits []Setting
	// UID and GID are whom the command runs as, inside; HostUID and HostGID who that is outside.
	UID, GID, HostUID, HostGID int
	// Namespaces are the worker's own, as /proc/self/ns shows them: none of them may be the command's.
	Namespaces map[string]string
}

// Spec is the command and everything that the stage does for it. With it come, as descriptors, the command's standard
// streams, and the workspace's mount where the worker has prepared it.
type Spec struct {
	// Dirs, Files and Binds are what this command has beside the [Root].
	Dirs  []Dir
	Files []File
	Binds []Bind
	// Workspace is where the workspace is, with what is protected in it. Empty: there is none.
	Workspace string
	Protect   []Protected
	// Masks are places of the workspace that the command cannot open.
	Masks []Mask
	// Bound, Seal and Hide are mounts of the outer stage: those in memory that get the root's limits, those that become
	// read-only once the files are written, and those that the command must not find.
	Bound, Seal, Hide []string
	// Writable are all the directories that the command can write in; so can it on the devices of the [Root], and
	// nowhere else.
	Writable []string
	// Scratch are the places in memory that the command can write to, one for each file system.
	Scratch []string
	// Proxy asks for a listening socket on the loopback, which is handed to the worker.
	Proxy bool

	Argv []string
	Env  []string
	Dir  string

	Rlimits []Rlimit
	// Memory is what all processes together may hold, in bytes; CPU what they may use. The stage looks every Tick.
	Memory int64
	CPU    time.Duration
	Tick   time.Duration
	// Sockets is how many sockets may be open.
	Sockets int64
	// DiskFree is what must stay free under the workspace, in bytes, where the command takes more than DiskStep. 0:
	// nobody looks.
	DiskFree, DiskStep int64
	// FilesFree and FilesStep are the same in files.
	FilesFree, FilesStep int64
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

// Bind shows a file or directory of the machine inside. Nothing that it shows is set-user-ID or opens a device, but for
// Device.
type Bind struct {
	// Source is the path outside. Prepared: the mount comes from the worker, as a descriptor.
	Source   string
	Prepared bool
	// Dev and Ino, where set, say what the worker saw at Source: nothing else is shown.
	Dev, Ino uint64
	Target   string
	IsDir    bool
	ReadOnly bool
	Device   bool
}

// Protected is a path of the workspace. Writable ones are on the way to others: they become mounts, so that nobody
// renames them away, and stay as they are.
type Protected struct {
	Path     string
	Writable bool
}

// Mask is a place of the workspace in front of which stands a file or directory that nobody can open: [MaskFile] or
// [MaskDir].
type Mask struct {
	Path string
	Dir  bool
}

// Where the root has what stands in front of masked places.
const (
	MaskDir  = "run/hidden"
	MaskFile = "run/hidden.file"
)

// Rlimit is one limit of the kernel, soft and hard.
type Rlimit struct {
	Resource  int
	Soft, Max uint64
}

// Report is what the stage says on its socket. Exactly one field is set.
type Report struct {
	Failed *Failure
	Ready  *Ready
	Ended  *Ended
}

// What the worker says on the socket after the [Spec], each as one byte: first that the command is to start, once it
// was told that all is [Ready], and then perhaps that the command is to end.
const (
	Go   = 'g'
	Stop = 's'
)

// Failure is a step that did not work: nothing has run.
type Failure struct {
	Step, Err string
	Errno     int
	// NoCommand says that all was set up and only the command could not be started.
	NoCommand bool
}

// Ready says that only the start of the command is left, and what stands around it as the stage has seen it. The stage
// goes on when the worker says [Go]: so who has not said that knows that nothing has run, and who has never starts it
// again.
type Ready struct {
	Layers []string
	// Missing are layers that this kernel does not give, each with the reason.
	Missing []string
}

// Ended is how the command ended.
type Ended struct {
	// Exit is its exit status, or -1 with the Signal that killed it.
	Exit   int
	Signal int
	// Over is set when the stage stopped it: over "memory", "cpu", "disk" or "sockets".
	Over string
	// Told says that it had been told to stop before it ended.
	Told bool
	// User and System are the CPU time of all that was reaped; MaxRSS the largest process, in bytes.
	User, System time.Duration
	MaxRSS       int64
	// Peak is the most memory that was seen in use at once, in bytes.
	Peak int64
}
