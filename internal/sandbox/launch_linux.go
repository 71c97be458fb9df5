package sandbox

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// ownSession puts a program into a session of its own: it has no terminal of ours, and signals to it meet only it.
func ownSession(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}

// tellGroup tells a program's process group to stop.
func tellGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

// killRounds bounds how often the processes are looked through: one round is enough unless somebody is forking.
const killRounds = 50

// killTree kills a program's process group, and whatever carries its mark, also in sessions of their own.
func killTree(pid int, id string) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) { // gone, or only a zombie is left
		err = nil
	}
	for range killRounds {
		found, e := killMarked(id)
		if !found || e != nil {
			return errors.Join(err, e)
		}
		time.Sleep(time.Millisecond)
	}
	return errors.Join(err, errors.New("a launched program forks faster than it can be killed"))
}

// killMarked kills every process with an environment entry, and says whether there was one.
func killMarked(id string) (found bool, err error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Other users' are not readable, and not ours.
		env, err := os.ReadFile("/proc/" + d.Name() + "/environ")
		if err != nil || !hasEntry(env, id) {
			continue
		}
		found = true
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return found, err
		}
	}
	return found, nil
}

func hasEntry(env []byte, entry string) bool {
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}
