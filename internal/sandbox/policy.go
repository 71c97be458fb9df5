package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	held "github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// Command is a program to run. A shell is an explicit argv.
type Command struct {
	// Argv is the program and its arguments. A name without a slash is looked up in the sandbox's own PATH.
	Argv []string
	// Dir is the working directory inside. Empty: the workspace, or /tmp if there is none.
	Dir string
}

// Streams are a command's standard streams. The zero Streams give it empty input and discard its output.
type Streams struct {
	// Stdin must end soon: it is read completely before the command starts, up to [MaxStdinBytes].
	Stdin io.Reader
	// Stdout and Stderr get the output as it comes. If they are the same, the command has one pipe for both, so that
	// only one goroutine writes at a time and the order is the command's.
	Stdout, Stderr io.Writer
}

// MaxStdinBytes bounds a command's input.
const MaxStdinBytes = 16 << 20

// Policy is what a command may use. The zero value is the strictest: no workspace, no network, the system read-only,
// the smallest environment, and the default limits.
type Policy struct {
	// Read are more directories and files of the machine, shown read-only at their own paths.
	Read []string
	// Workspace is the only writable place that a command may share with the machine. Nil: none.
	Workspace *Workspace
	// Env is the exact environment in addition to [BaseEnv], whose entries it may replace. Nothing is inherited.
	Env map[string]string
	// Secrets are files below [SecretsDir], for the command only: never in the environment or in an argument.
	Secrets []Secret
	// Network is what the command may reach. The zero value: nothing.
	Network Network
	// Serve answers a connection that the command makes to [ServePort] on its own loopback, and nobody else can make:
	// so many at a time, each in a goroutine. It returns when it is done with the connection, and soon after that is
	// closed. It is closed when the command has ended. Only the sandboxes of Linux have it, others wrap [ErrNoPort]. A
	// policy with it has no Network. Nil: nothing answers.
	Serve func(net.Conn)
	// Keep says what the command finds in /tmp and what it leaves there. Nil: /tmp is empty, and goes with the command.
	// Only the backends of Linux can.
	Keep *Keep
	// Limits bound everything. Zero fields have the defaults of [Limits].
	Limits Limits
}

// ServePort is the port of [Policy].Serve.
const ServePort = stage.ProxyPort

// ErrNoPort is wrapped by the error of a sandbox without [Policy].Serve: nothing was started.
var ErrNoPort = errors.New("this sandbox has no port to the worker")

// Keep passes the files of /tmp from one command to a later one, as an archive. Only the sandbox's init reads and
// writes it, inside. A file without a mode to read it, sockets, pipes and the like are left out, and names of one file
// become copies.
type Keep struct {
	// From is an archive that an earlier command left. Nil: /tmp is empty.
	From *os.File
	// To gets the archive. Nil: nothing is kept.
	To *os.File
	// Note names a file of /tmp whose content is returned in [Kept].Note, up to MaxNote bytes, and is not in the
	// archive. Empty: none.
	Note    string
	MaxNote int64
	// Bytes and Names bound the archive. If there is more, nothing is kept.
	Bytes, Names int64
}

// Kept says what was kept of /tmp.
type Kept = stage.Kept

// ErrKeep is wrapped by an error about an archive that could not be unpacked. The command was not started.
var ErrKeep = errors.New("the kept files cannot be brought back")

// Workspace is a directory of the machine in which a command works. It appears inside at its own path, so that a path
// in a command's output means the same to other tools.
type Workspace struct {
	// Root is the open directory. It knows what is protected in it.
	Root *held.Root
	// Dir is its path if there is no Root: it is opened for this run, with the built-in list.
	Dir string
	// Writable lets the command write in it. A writable workspace is held exclusively: see [protect.List].
	Writable bool
	// Hidden reports whether a path below Dir, clean and without symbolic links, is hidden from the command, with all
	// that is below it. What is hidden when the command starts can neither be read nor replaced. Nil: nothing is
	// hidden.
	Hidden func(path string) bool
}

// Secret is a file below [SecretsDir].
type Secret struct {
	Name    string
	Content []byte
}

// SecretsDir is where a command finds its secrets.
const SecretsDir = "/run/secrets"

// Network is an allow-list. Nil and empty mean the same: nothing can be reached.
type Network struct {
	// Allow are the addresses that the proxy connects to, as "host:port". The usual environment variables name the
	// proxy.
	Allow []string
	// Private reports whether an address that is not public may be reached under a host's name. Nil: none may.
	Private func(host string, address netip.Addr) bool
}

// Limits bound a command with everything that it starts. No field has a value that means "unlimited".
type Limits struct {
	Wall time.Duration // 0: 30 s
	CPU  time.Duration // of all processes together; 0: as long as Wall, on each of two CPUs
	// bytes, of all processes together, with their page tables and the files in Scratch; 0: 512 MiB
	Memory    int64
	FileSize  int64 // bytes of one file; 0: 256 MiB
	Scratch   int64 // bytes of /tmp and everything else writable outside the workspace; 0: 64 MiB
	Processes int   // with threads; 0: 128
	Files     int   // open files of one process; 0: 1024
	Output    int64 // bytes of both streams together; 0: 1 MiB
	// DiskFree is what must stay free on the file system of a writable workspace, in bytes; 0: 256 MiB. If there is
	// less, a command that takes more than [diskStep] is stopped. So no command fills the machine's disk, whatever the
	// number of its files.
	DiskFree int64
}

// The defaults of [Limits], and their maximums.
const (
	DefaultWall      = 30 * time.Second
	DefaultMemory    = 512 << 20
	DefaultFileSize  = 256 << 20
	DefaultScratch   = 64 << 20
	DefaultProcesses = 128
	DefaultFiles     = 1024
	DefaultOutput    = 1 << 20
	DefaultDiskFree  = 256 << 20

	MaxWall      = 24 * time.Hour
	MaxMemory    = 1 << 40
	MaxProcesses = 32_768
	MaxFiles     = 65_536

	// cpusOfWall is how many CPUs a command may keep busy for its whole time, if CPU is not set.
	cpusOfWall = 2
	// scratchFiles is how many files one mebibyte of scratch may hold.
	scratchFilesPerMiB = 1024
	// diskStep is how much a command may write if less than DiskFree is free already, in bytes: most write little.
	diskStep = 16 << 20
	// initProcesses are the threads of the sandbox's own init, which count among the command's processes.
	initProcesses = 24
)

// withDefaults sets the defaults and refuses values that are out of bounds.
func (l Limits) withDefaults() (Limits, error) {
	if l.Wall == 0 {
		l.Wall = DefaultWall
	}
	if l.CPU == 0 {
		l.CPU = cpusOfWall * l.Wall
	}
	for _, n := range []struct {
		v        *int64
		def, max int64
	}{{&l.Memory, DefaultMemory, MaxMemory}, {&l.FileSize, DefaultFileSize, MaxMemory},
		{&l.Scratch, DefaultScratch, MaxMemory}, {&l.Output, DefaultOutput, MaxMemory},
		{&l.DiskFree, DefaultDiskFree, MaxMemory}} {
		if *n.v == 0 {
			*n.v = n.def
		}
		if *n.v < 0 || *n.v > n.max {
			return l, fmt.Errorf("%w: a limit of %d bytes; use 1 to %d", ErrViolation, *n.v, n.max)
		}
	}
	for _, n := range []struct {
		v        *int
		def, max int
	}{{&l.Processes, DefaultProcesses, MaxProcesses}, {&l.Files, DefaultFiles, MaxFiles}} {
		if *n.v == 0 {
			*n.v = n.def
		}
		if *n.v < 0 || *n.v > n.max {
			return l, fmt.Errorf("%w: a limit of %d; use 1 to %d", ErrViolation, *n.v, n.max)
		}
	}
	if l.Wall < 0 || l.Wall > MaxWall || l.CPU < 0 || l.CPU > cpusOfWall*MaxWall {
		return l, fmt.Errorf("%w: a time limit of %s, or %s of CPU; use up to %s", ErrViolation, l.Wall, l.CPU, MaxWall)
	}
	return l, nil
}

// Result is how a command ended.
type Result struct {
	// ExitCode is the command's own status, or -1 if it was killed. Signal is what killed it, 0 for none.
	ExitCode int
	Signal   int
	Reason   Reason
	Usage    Usage
	// Isolation names what isolated it: the backend's name, or [IsolationNone]. Layers lists the layers.
	Isolation string
	Layers    []string
	// Missing are layers that this machine does not support, each as "name: why".
	Missing []string
	// Held says that the workspace is not a git repository, and that the command could not make it one: see
	// [protect.GitBar].
	Held bool
	// Detail is for the operator: which limit was exceeded, or how the sandbox was lost.
	Detail string
	// Left says why something of the command may still run. Empty: everything has ended. Only commands that run without
	// a sandbox, or in that of macOS, leave something: what has become another user may not be killed.
	Left string
	// Kept says what was kept of /tmp. Nil: nothing, since it was not asked for or the sandbox was killed.
	Kept *Kept
	// Env is the environment with which the command started, if Kept is set.
	Env []string
}

// Reason is why a command ended.
type Reason string

// The reasons.
const (
	Exited      Reason = "exited"       // by itself, with ExitCode or Signal
	Timeout     Reason = "timeout"      // its Wall has passed
	Canceled    Reason = "canceled"     // the caller's context ended
	OutOfMemory Reason = "oom"          // its processes held more than Memory
	CPULimit    Reason = "cpu"          // its processes used more than CPU
	OutputLimit Reason = "output_limit" // it wrote more than Output
	DiskLimit   Reason = "disk"         // it left less than DiskFree under the workspace, or room for too few files
	ObjectLimit Reason = "objects"      // it had too many open sockets
	SandboxLost Reason = "sandbox_lost" // the sandbox's init died: nobody knows how far the command came
	// it created a protected place in the workspace; Detail says what became of that
	Trespass Reason = "trespass"
)

// Usage is what a command used, as far as it was measured.
type Usage struct {
	Wall, User, System time.Duration
	// MaxRSS is the largest process, Peak the largest measured sum of all; in bytes.
	MaxRSS, Peak int64
}

// ErrViolation is wrapped by an error about a policy or command that asks for something that no sandbox permits:
// nothing was started.
var ErrViolation = errors.New("not allowed in a sandbox")

// ErrNotStarted is wrapped by an error about a command that could not be started in a working sandbox.
var ErrNotStarted = errors.New("the command could not be started")

// ErrBusy is wrapped by an error about a workspace that another command writes to.
var ErrBusy = errors.New("the workspace is in use")

// BaseEnv is the environment that every command has. Its PATH begins with those directories of the worker's PATH that
// the command sees: the operator has installed the worker's programs there, and commands need them too.
var BaseEnv = map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp",
	"LANG": "C.UTF-8", "USER": "sandbox", "LOGNAME": "sandbox",
}

// cleanPath checks an absolute path.
func cleanPath(what, p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return fmt.Errorf("%w: %s %q is not a plain absolute path", ErrViolation, what, p)
	}
	return nil
}
