package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// OnTerminal starts a command on a new terminal of so many columns and lines. What is returned is who sits at it: what
// is written to it is typed, and a read gives what the command writes, with an error when the command has ended.
func OnTerminal(t testing.TB, cmd *exec.Cmd, columns, lines uint16) *os.File {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must.OK(t, err)
	t.Cleanup(func() { _ = main.Close() })
	fd := int(main.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must.OK(t, err)
	must.OK(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	must.OK(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns}))
	if err := syscall.SetNonblock(fd, true); err != nil { // so that a read ends when the file is closed
		t.Fatal(err)
	}
	other, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must.OK(t, err)
	defer func() { _ = other.Close() }()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = other, other, other
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return main
}
