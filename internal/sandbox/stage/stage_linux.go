package stage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) != 1 {
		return
	}
	switch os.Args[0] {
	case Name:
		syscall.Exit(run())
	case SpawnerName:
		syscall.Exit(spawner())
	}
}

// The stage's exit statuses. The worker uses the reports; these are for an operator who traces it.
const (
	exitEnded  = 0
	exitRefuse = 124 // a step failed and was reported
	exitSilent = 125 // nobody to report to
)

// step is an error with the name of the step that failed.
type step struct {
	name              string
	err               error
	noCommand, noKeep bool
}

func (s *step) Error() string { return s.name + ": " + s.err.Error() }
func (s *step) Unwrap() error { return s.err }

// at names an error's step; nil stays nil.
func at(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &step{name: fmt.Sprintf(format, args...), err: err}
}

// run is the stage's main function.
func run() int {
	runtime.LockOSThread() // rights belong to threads: this one drops its own and starts the command
	ignoreSignals()
	unix.CloseOnExec(Socket)
	sock := os.NewFile(Socket, "worker")
	// The kernel's OOM killer takes the command first. This must happen before dumpable is cleared, which makes the
	// file root's.
	score := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	// no ptrace, /proc/1/mem or /proc/1/exe for the other processes inside
	hidden := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	w := &watch{sock: sock, root: -1}
	err := errors.Join(at(hidden, "hide the stage's memory"), at(score, "offer itself to the OOM killer"))
	var base Root
	if err := Read(sock, &base); err != nil {
		return exitSilent
	}
	if err == nil {
		err = verifyPlace(&base)
	}
	if err == nil {
		w.set("user_limits", base.UserLimits) // now, because the root that is built has no /proc/sys
		w.set("socket_limits", base.SocketLimits)
	}
	if err == nil && base.Build {
		w.root, err = buildRoot(&base)
	}
	// A stage that is kept ready waits here for its command.
	if e := w.receive(); e != nil {
		return exitSilent
	}
	if err == nil {
		err = w.prepare(&base)
	}
	if err == nil {
		return w.follow()
	}
	f := &Failure{Step: "start", Err: err.Error()}
	if s, ok := errors.AsType[*step](err); ok {
		f.Step, f.Err, f.NoCommand, f.NoKeep = s.name, s.err.Error(), s.noCommand, s.noKeep
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
	}
	if err := Write(sock, &Report{Failed: f}); err != nil {
		return exitSilent
	}
	return exitRefuse
}

// ignoreSignals replaces the runtime's handlers. With them a command could kill the stage, and nobody would report its
// end. The kernel lets no signal from its own namespace kill an init that has the default action, but for one gap:
// while the init's first thread blocks a signal, the kernel keeps it and may give it to another thread, and then it
// kills. The runtime blocks all signals while it starts a process. So what the runtime handles is ignored, which has no
// gap; the runtime sets it to the default in the command that it starts. What it does not handle, a command would
// inherit: that gets the default.
func ignoreSignals() {
	const last, setBytes = 64, 8
	const perThread = 33 // the runtime uses it to run a call on all threads, and so to drop their rights
	const byDefault, ignore = 0, 1
	type sigaction struct{ handler, flags, restorer, mask uint64 }
	for signal := uintptr(1); signal <= last; signal++ {
		// the runtime's own; they do no harm to an init that does not use them
		if signal == uintptr(unix.SIGURG) || signal == perThread {
			continue
		}
		var have sigaction
		// two signals cannot be set
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, signal, 0, uintptr(unsafe.Pointer(&have)), setBytes, 0, 0)
		want := sigaction{handler: byDefault}
		// An ignored SIGCHLD would leave nothing to wait for; the default ignores it too.
		if have.handler != byDefault && have.handler != ignore && signal != uintptr(unix.SIGCHLD) {
			want.handler = ignore
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(&want)), 0, setBytes, 0, 0)
	}
}

// set writes settings of this process's own namespaces. If they cannot be set, the layer is reported as missing.
func (w *watch) set(layer string, settings []Setting) {
	for _, s := range settings {
		fd, err := unix.Open("/proc/sys/"+s.Path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(s.Value))
			err = errors.Join(err, unix.Close(fd))
		}
		if err != nil {
			w.missing = append(w.missing, layer+": /proc/sys/"+s.Path+" cannot be set: "+err.Error())
			return
		}
	}
	w.layers = append(w.layers, layer)
}

// receive receives the descriptors and the spec.
func (w *watch) receive() error {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	n, got, _, _, err := unix.Recvmsg(Socket, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return errors.Join(err, io.EOF)
	}
	if w.fds, err = rights(oob[:got]); err != nil || len(w.fds) < streams {
		return fmt.Errorf("%d descriptors: %w", len(w.fds), err)
	}
	w.spec = &Spec{}
	if err := Read(w.sock, w.spec); err != nil {
		return err
	}
	return w.takeArchives()
}

// streams is the number of descriptors for the standard streams; the workspace's mount may follow, and two archives.
const (
	streams = 3
	maxFDs  = streams + 3
)

// prepare finishes the root for this command, confines this process to it, and starts the command when the worker sends
// Go.
func (w *watch) prepare(base *Root) error {
	s := w.spec
	mount := -1
	if len(w.fds) > streams {
		mount = w.fds[streams]
	}
	var err error
	if base.Build {
		err = finishOwn(w.root, s, mount)
	} else {
		err = finishOuter(base, s)
	}
	if err != nil {
		return err
	}
	if s.Proxy {
		if err := w.handOverListener(); err != nil {
			return err
		}
	}
	layers, err := w.confine(base)
	if err != nil {
		return err
	}
	if err := at(os.Chdir(s.Dir), "enter %s", s.Dir); err != nil {
		return err
	}
	unix.Umask(0o022)
	if err := w.openMetered(); err != nil {
		return err
	}
	if err := w.unpack(); err != nil {
		return &step{name: "bring the kept files back", err: err, noKeep: true}
	}
	path, err := lookPath(s.Argv[0], s.Env)
	if err != nil {
		return &step{name: "find the command", err: err, noCommand: true}
	}
	if err := at(Write(w.sock, &Report{Ready: &Ready{Layers: append(layers, w.layers...), Missing: w.missing}}),
		"report that all is ready"); err != nil {
		return err
	}
	var word [1]byte
	if _, err := io.ReadFull(w.sock, word[:]); err != nil || word[0] != Go {
		syscall.Exit(exitSilent) // the worker is gone, or does not need the command
	}
	w.pid, err = start(base, s, path, w.fds)
	if w.pid == 0 {
		return &step{name: "start the command", err: err, noCommand: true}
	}
	for _, fd := range w.fds { // the command has its own copies: the streams must end when it ends
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil { // it already runs, with too many rights
		w.stopOver("start: " + err.Error())
	}
	return nil
}

// lookPath finds a program as a shell does, in the command's own PATH.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, e := range env {
		dirs, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range strings.Split(dirs, ":") {
			path := dir + "/" + name
			if info, err := os.Stat(path); dir != "" && err == nil && info.Mode().IsRegular() &&
				info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", name, syscall.ENOENT)
}
