package stage

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watch is the state of the init while the command runs.
type watch struct {
	sock *os.File
	root int // the root that was built, -1 for none
	spec *Spec
	fds  []int
	pid  int
	over atomic.Pointer[string]
	told atomic.Bool // the worker has sent [Stop]
	peak atomic.Int64
	// disk is the workspace, and inMemory the places of the spec's Scratch, opened before a command could close the way
	// to them.
	disk     int
	inMemory []int
	// bytesAtFirst and filesAtFirst are what was free under the workspace when the command started.
	bytesAtFirst, filesAtFirst int64
	// from and to are the archives of the spec's Keep; nil for none.
	from, to *os.File
	standing map[string]bool
	// layers are additional layers that work, missing those that do not, with the reason.
	layers, missing []string
}

// follow reaps until the command itself has ended, kills and reaps what else still runs, and then reports. So when the
// worker gets the report, only this process is left.
func (w *watch) follow() int {
	go w.followWorker()
	go w.meter()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return exitSilent
		}
		if pid != w.pid || !status.Exited() && !status.Signaled() {
			continue
		}
		told := w.told.Load()
		if told { // the processes that it started got SIGTERM too, and may need the time more than the command itself
			waitForAll()
		}
		if err := killAll(); err != nil {
			return exitSilent // the namespace ends with this process
		}
		e := &Ended{Exit: status.ExitStatus(), Peak: w.peak.Load(), Told: told}
		if status.Signaled() {
			e.Signal = int(status.Signal())
		}
		if over := w.over.Load(); over != nil {
			e.Over = *over
		}
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err == nil {
			e.User, e.System = time.Duration(used.Utime.Nano()), time.Duration(used.Stime.Nano())
			e.MaxRSS = int64(used.Maxrss) << 10
		}
		e.Kept = w.pack()
		if err := Write(w.sock, &Report{Ended: e}); err != nil {
			return exitSilent
		}
		return exitEnded
	}
}

// killAll kills every other process of the namespace and waits until they are gone.
func killAll() error {
	for {
		if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		if _, err := syscall.Wait4(-1, nil, 0, nil); errors.Is(err, syscall.ECHILD) {
			return nil
		} else if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// waitForAll reaps until no other process is left. The worker, which has told them to stop, ends the wait if it takes
// too long.
func waitForAll() {
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// followWorker sends SIGTERM to all processes when the worker says so, and ends everything when the worker has died.
func (w *watch) followWorker() {
	for {
		var word [1]byte
		if n, err := w.sock.Read(word[:]); err != nil || n == 0 || word[0] != Stop {
			syscall.Exit(exitSilent)
		}
		w.told.Store(true)
		_ = unix.Kill(-1, unix.SIGTERM) // either no process is left, or all have got it
	}
}

// meter stops the command if all its processes together exceed a limit. The kernel limits single processes, which many
// small ones would evade.
func (w *watch) meter() {
	for {
		time.Sleep(w.spec.Tick)
		memory, cpu, err := usage()
		full, sockets, scratch := false, int64(0), int64(0)
		if err == nil {
			full, err = w.fillsDisk()
		}
		if err == nil {
			sockets, err = openSockets()
		}
		if err == nil {
			scratch, err = w.scratch()
		}
		memory += scratch
		if memory > w.peak.Load() {
			w.peak.Store(memory)
		}
		over := ""
		switch {
		case err != nil:
			over = "meter: " + err.Error() // what cannot be measured must not continue
		case memory > w.spec.Memory:
			over = "memory"
		case cpu > w.spec.CPU:
			over = "cpu"
		case full:
			over = "disk"
		case sockets > w.spec.Sockets:
			over = "sockets"
		default:
			continue
		}
		w.stopOver(over)
		for { // a process that forks faster than it is killed is killed in the next round
			if err := unix.Kill(-1, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// stopOver kills everything for a reason; the first reason counts.
func (w *watch) stopOver(reason string) {
	w.over.CompareAndSwap(nil, &reason)
	_ = unix.Kill(-1, unix.SIGKILL) // the end of the command kills the rest
}

// openMetered opens what the meter reads.
func (w *watch) openMetered() error {
	for _, dir := range w.spec.Scratch {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return at(err, "open %s", dir)
		}
		w.inMemory = append(w.inMemory, fd)
	}
	if w.spec.DiskFree == 0 {
		return nil
	}
	var err error
	if w.disk, err = unix.Open(w.spec.Workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		w.bytesAtFirst, w.filesAtFirst, err = w.freeDisk()
	}
	return at(err, "look at the disk of the workspace")
}

// scratch is the size of the files in memory that the command can write, in bytes.
func (w *watch) scratch() (used int64, err error) {
	for _, dir := range w.inMemory {
		var fs unix.Statfs_t
		err = errors.Join(err, unix.Fstatfs(dir, &fs))
		used += int64(fs.Blocks-fs.Bfree) * fs.Bsize
	}
	return used, err
}

// freeDisk is the free space under the workspace, in bytes and in files. Files of others on that disk count too.
func (w *watch) freeDisk() (free, files int64, err error) {
	var fs unix.Statfs_t
	err = unix.Fstatfs(w.disk, &fs)
	if files = int64(fs.Ffree); fs.Files == 0 { // this file system does not report it
		files = math.MaxInt64
	}
	return int64(fs.Bavail) * fs.Bsize, files, err
}

// fillsDisk reports whether the command leaves less free under the workspace than it must.
func (w *watch) fillsDisk() (bool, error) {
	if w.spec.DiskFree == 0 {
		return false, nil
	}
	free, files, err := w.freeDisk()
	return free < w.spec.DiskFree && free < w.bytesAtFirst-w.spec.DiskStep || files < w.spec.FilesFree &&
		files < w.filesAtFirst-w.spec.FilesStep, err
}

// openSockets is the number of sockets in this net namespace.
func openSockets() (int64, error) {
	var text [64]byte
	n, err := readOnce("/proc/self/net/sockstat", text[:])
	if err != nil {
		return 0, err
	}
	var open int64
	if _, err := fmt.Sscanf(string(text[:n]), "sockets: used %d", &open); err != nil {
		return 0, fmt.Errorf("count the sockets: %w", err)
	}
	return open, nil
}

// usage sums the memory that the processes of this namespace hold, without file pages, and the CPU time that they and
// ended ones have used.
func usage() (memory int64, cpu time.Duration, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return 0, 0, err
	}
	names, err := proc.Readdirnames(-1)
	if err := errors.Join(err, proc.Close()); err != nil {
		return 0, 0, err
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
		return 0, 0, err
	}
	cpu = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err != nil || pid == 1 {
			continue
		}
		held, ticks, err := usageOf(name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return 0, 0, err
		}
		const perTick = time.Second / 100 // USER_HZ
		memory += held
		cpu += time.Duration(ticks) * perTick
	}
	return memory, cpu, nil
}

// usageOf measures one process: its memory in bytes, and its CPU ticks with those of its reaped children.
func usageOf(pid string) (memory, ticks int64, err error) {
	memory, holds, err := heldBy("/proc/" + pid)
	if err == nil && !holds { // its first thread has ended: a zombie holds nothing, but other threads may live
		memory, err = heldByOthers("/proc/" + pid + "/task")
	}
	if err != nil {
		return 0, 0, err
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The name in the second field may contain anything; the last parenthesis ends it. utime is the 14th field.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(fields))
	}
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks += n
	}
	return memory, ticks, nil
}

// held are the fields of a process's status about its own memory: pages, huge pages, and page tables. A mapped file of
// the scratch space is counted twice.
var held = [][]byte{[]byte("\nRssAnon:"), []byte("\nRssShmem:"), []byte("\nVmPTE:"), []byte("\nHugetlbPages:")}

// heldBy reads how much memory a process or thread holds, in bytes. The status of an ended one has no such fields.
func heldBy(dir string) (memory int64, holds bool, err error) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0, false, err
	}
	for _, key := range held {
		_, rest, ok := bytes.Cut(status, key)
		if !ok {
			continue
		}
		kb, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
		n, err := strconv.ParseInt(string(kb), 10, 64)
		if err != nil {
			return 0, false, err
		}
		memory, holds = memory+n<<10, true
	}
	return memory, holds, nil
}

// heldByOthers reads the memory from the first live thread of a process whose first thread has ended.
func heldByOthers(tasks string) (int64, error) {
	dir, err := os.Open(tasks)
	if err != nil {
		return 0, err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return 0, err
	}
	for _, name := range names {
		memory, holds, err := heldBy(tasks + "/" + name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil || holds {
			return memory, err
		}
	}
	return 0, nil
}

// handOverListener opens the proxy's port on the sandbox's own loopback and sends the socket to the worker, which
// serves on it: a socket stays in the network namespace in which it was made.
func (w *watch) handOverListener() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return at(err, "open the proxy's port")
	}
	defer func() { _ = unix.Close(fd) }()
	if err := at(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: ProxyPort}),
		"bind the proxy's port"); err != nil {
		return err
	}
	const backlog = 128
	if err := at(unix.Listen(fd, backlog), "listen on the proxy's port"); err != nil {
		return err
	}
	return at(unix.Sendmsg(Socket, []byte{0}, unix.UnixRights(fd), nil, 0), "hand the proxy's port over")
}
