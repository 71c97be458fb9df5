//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// hogs take as much as they get of something that the machine has only so much of, up to a good deal more than
// [hogLimits] allow. What they return is how much they got; they keep it until the process ends.
var hogs = map[string]struct {
	take func() (int, error)
	// most is what a command may get under [hogLimits], where it is told no instead of being stopped.
	most int
}{
	"page tables":                    {takePageTables, 0},
	"memory of a leaderless process": {takeBehindALeader, 0},
	"files of scratch and memory":    {takeScratch, 0},
	"inodes in /tmp":                 {func() (int, error) { return takeInodes("/tmp") }, 4 * scratchFilesPerMiB},
	"inodes in /dev/shm":             {func() (int, error) { return takeInodes("/dev/shm") }, 4 * scratchFilesPerMiB},
	"inotify instances":              {takeInotify, maxInotifyInstances},
	"sockets":                        {takeSockets, 0},
	"sockets of many processes":      {takeSocketsOfMany, 0},
}

// hogLimits are those of the commands below.
var hogLimits = Limits{Memory: 64 << 20, Scratch: 4 << 20, Wall: 60 * time.Second, Files: 2000}

func init() {
	if len(os.Args) == 3 && os.Args[1] == "hog" {
		runtime.LockOSThread() // to the process's first thread
	}
}

func hog(name string) int {
	got, err := hogs[name].take()
	fmt.Printf("got %d (%v)\n", got, err)
	time.Sleep(10 * tick) // to be seen
	fmt.Println("kept", got)
	return 0
}

// TestHogs: what a command takes of the kernel's own memory and tables has an end, of which others do not notice.
func TestHogs(t *testing.T) {
	bin, err := os.Executable()
	must.OK(t, err)
	for name, h := range hogs {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			each(t, func(t *testing.T, box Sandbox) {
				var out bytes.Buffer
				limits := hogLimits
				if name == "files of scratch and memory" {
					limits.Scratch = 96 << 20
				}
				res, err := box.Run(t.Context(), Policy{Read: []string{filepath.Dir(bin)}, Limits: limits},
					Command{Argv: []string{bin, "hog", name}}, Streams{Stdout: &out, Stderr: &out})
				must.OK(t, err)
				stopped := res.Reason == OutOfMemory || res.Reason == ObjectLimit
				if h.most > 0 {
					var got int
					if _, err := fmt.Sscanf(out.String(), "got %d", &got); err != nil || got == 0 || got > h.most ||
						res.Reason != Exited {
						t.Errorf("it got %d, and may have %d (%v): %+v %s", got, h.most, err, res, out.String())
					}
				} else if !stopped || strings.Contains(out.String(), "kept") {
					t.Errorf("nobody stopped it: %+v\n%s", res, out.String())
				}
			})
			t.Run("control", func(t *testing.T) {
				if strings.Contains(name, "inodes") {
					t.Log("the machine's own /tmp is no place to fill: the test without the limit is the other " +
						"backend's")
					return
				}
				cmd := exec.Command(bin, "hog", name)
				cmd.Env = append(os.Environ(), actorVar+"=hog", "TMPDIR=/tmp")
				out, err := cmd.CombinedOutput()
				if err != nil || !bytes.Contains(out, []byte("kept")) {
					t.Errorf("without a sandbox it does not get it either: %v\n%s", err, out)
				}
			})
		})
	}
}

// takePageTables reads one byte in each two megabytes of an address space: the pages are the one of zeros, their tables
// are not.
func takePageTables() (int, error) {
	const region, each, enough = 8 << 30, 2 << 20, 160 << 20
	for {
		m, err := unix.Mmap(-1, 0, region, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			if held := pageTables(); held < int(hogLimits.Memory) {
				return held, takeByChildren(err)
			}
			return pageTables(), err
		}
		_ = unix.Madvise(m, unix.MADV_NOHUGEPAGE)
		for i := 0; i < region; i += each {
			sum += int(m[i])
		}
		if held := pageTables(); held > enough {
			return held, nil
		}
	}
}

// takeByChildren goes on in other processes: the limit of one address space is not theirs.
func takeByChildren(why error) error {
	if os.Getenv("TOOLYARD_TEST_CHILD") != "" {
		time.Sleep(time.Minute)
	}
	for range 8 {
		cmd := exec.Command("/proc/self/exe", "hog", "page tables")
		cmd.Env = append(os.Environ(), "TOOLYARD_TEST_CHILD=1")
		if err := cmd.Start(); err != nil {
			return errors.Join(why, err)
		}
	}
	time.Sleep(3 * time.Second)
	return why
}

// sum keeps the compiler from leaving reads out.
var sum int

func pageTables() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmPTE:"))
	kb, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		return 0
	}
	return kb << 10
}

// takeBehindALeader ends the first thread of this process, which its files in /proc are about, and takes memory in
// another.
func takeBehindALeader() (int, error) {
	const enough = 256 << 20
	go func() {
		time.Sleep(20 * time.Millisecond) // the leader is gone
		memory, err := unix.Mmap(-1, 0, enough, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		time.Sleep(10 * tick)
		fmt.Println("kept", len(memory), err)
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0) // the runtime would wait for the first thread
	}()
	if unix.Gettid() == unix.Getpid() {
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	return 0, errors.New("this is not the first thread")
}

func takeScratch() (int, error) {
	const enough = 80 << 20
	f, err := os.CreateTemp("", "toolyard-hog-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err := io.CopyN(f, zeros{}, enough); err != nil {
		return 0, err
	}
	time.Sleep(10 * tick)
	return enough, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func takeInodes(dir string) (int, error) {
	for n := 0; ; n++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(n)))
		if err != nil || n > 20*scratchFilesPerMiB {
			return n, err
		}
		if err := f.Close(); err != nil {
			return n, err
		}
	}
}

func takeInotify() (int, error) {
	const enough = maxInotifyInstances + 8
	for n := 0; ; n++ {
		if _, err := unix.InotifyInit1(0); err != nil || n == enough {
			return n, err
		}
	}
}

func takeSockets() (int, error) {
	for n := 0; ; n++ {
		if _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); err != nil || n == maxSockets+64 {
			return n, err
		}
	}
}

// takeSocketsOfMany fills pairs in several processes.
func takeSocketsOfMany() (int, error) {
	if os.Getenv("TOOLYARD_TEST_CHILD") != "" {
		for n := 0; n < maxSockets/4; n++ {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return n, err
			}
			_, _ = unix.Write(pair[0], make([]byte, 1000)) // what fits
		}
		time.Sleep(20 * tick)
		return maxSockets / 2, nil
	}
	var children []*exec.Cmd
	for range 4 {
		cmd := exec.Command("/proc/self/exe", "hog", "sockets of many processes")
		cmd.Env = append(os.Environ(), "TOOLYARD_TEST_CHILD=1")
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		children = append(children, cmd)
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			return 0, err
		}
	}
	return 2 * maxSockets, nil
}
