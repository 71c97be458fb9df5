package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// ownSession starts a program in a new session: it has no terminal of ours, and signals to its group reach only it.
func ownSession(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}

// tellGroup sends SIGTERM to a program's process group.
func tellGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

// killWithin bounds the search for a program's remaining processes. It takes one or two rounds of a few milliseconds,
// unless a process forks all the time.
const killWithin = 5 * time.Second

// killPause is the time between two rounds of the search.
const killPause = time.Millisecond

// killTree kills a program's process group, every process with its mark, also in other sessions, and of its session
// those whose environment cannot be read. It searches until a round proves that none is left.
func killTree(pid int, id string) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) { // gone, or only a zombie remains
		err = nil
	}
	s := search{mark: id, session: strconv.Itoa(pid), others: map[string]bool{strconv.Itoa(os.Getpid()): true}}
	for began := time.Now(); time.Since(began) < killWithin; time.Sleep(killPause) {
		done, e := s.round()
		if done || e != nil {
			return errors.Join(err, s.refused, e)
		}
	}
	return errors.Join(err, s.refused, errors.New("a launched program forks faster than it can be killed"))
}

// search finds the processes with a mark. The mark is in their environment, which children inherit.
type search struct {
	mark string
	// session is the program's. It finds processes whose environment cannot be read: of another user, or of a program
	// that this user may run and not read.
	session string
	// others are the processes, by number, that are known not to have the mark: their children do not have it either.
	// So are those that may not be killed.
	others map[string]bool
	// refused says which process may not be killed.
	refused error
}

// round kills every process with the mark. It is done if no process had the mark, and no process ended between the
// listing and the reading: such a process may have had the mark and left a child that is not in the list.
func (s *search) round() (done bool, err error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	done = true
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || s.others[d.Name()] {
			continue
		}
		env, err := os.ReadFile("/proc/" + d.Name() + "/environ")
		unreadable := errors.Is(err, os.ErrPermission)
		switch {
		case hasEntry(env, s.mark), unreadable && s.inSession(d.Name()):
			done = false
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				s.others[d.Name()], s.refused = true, fmt.Errorf("kill process %d: %w", pid, err)
			}
		case len(env) > 0 || unreadable:
			s.others[d.Name()] = true
		default:
			ended, empty := whyEmpty(d.Name())
			done = done && empty
			s.others[d.Name()] = ended || empty // a process that has ended starts nothing from now on
		}
	}
	return done, nil
}

// The fields of /proc/PID/stat that are read, counted from the first after the name. See proc_pid_stat(5).
const (
	statState    = 0
	statSession  = 3
	statFlags    = 6
	statEnvStart = 47
	kernelThread = 0x200000 // PF_KTHREAD
)

// whyEmpty says why a process shows no environment: it has ended, or its environment is empty. If neither is true, it
// is just executing another program, whose environment is not set yet.
func whyEmpty(pid string) (ended, empty bool) {
	fields := statOf(pid)
	if hasEnded(fields) {
		return true, false
	}
	flags, err := strconv.ParseUint(string(fields[statFlags]), 10, 64)
	return false, err == nil && flags&kernelThread != 0 || string(fields[statEnvStart]) != "0"
}

// inSession reports whether a process is in the program's session and has not ended.
func (s *search) inSession(pid string) bool {
	fields := statOf(pid)
	return !hasEnded(fields) && string(fields[statSession]) == s.session
}

// statOf reads the fields of /proc/PID/stat; none if the process is gone.
func statOf(pid string) [][]byte {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	return bytes.Fields(rest)
}

func hasEnded(stat [][]byte) bool {
	return len(stat) <= statEnvStart || string(stat[statState]) == "Z" || string(stat[statState]) == "X"
}

func hasEntry(env []byte, entry string) bool {
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}
