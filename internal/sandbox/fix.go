package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/toolyard/toolyard/internal/sandbox/stage"
)

// setupFailure is the error for a stage that could not be set up.
func setupFailure(backend string, f *stage.Failure) error {
	return fmt.Errorf("%w: %s: %s: %s; %s", ErrNoIsolation, backend, f.Step, f.Err, fix(f.Step, syscall.Errno(f.Errno)))
}

// setupError is the error for a sandbox that could not be started.
func setupError(backend, step string, err error) error {
	errno, _ := errors.AsType[syscall.Errno](err)
	return fmt.Errorf("%w: %s: %s: %w; %s", ErrNoIsolation, backend, step, err, fix(step, errno))
}

// fix says in one line what an operator can do.
func fix(step string, errno syscall.Errno) string {
	const manual = "see docs/sandbox.md"
	switch {
	case strings.HasPrefix(step, "show ") && (errno == syscall.EACCES || errno == syscall.ENOENT):
		return "whom commands run as cannot reach it: mend the permissions on the way, or the flag that names it"
	case strings.Contains(step, "proc") && errno == syscall.EPERM:
		return "/proc of this container is masked: run it with procMount: Unmasked (Kubernetes) or --security-opt " +
			"systempaths=unconfined (Docker); " + manual
	case errno == syscall.ENOSYS:
		return "the kernel is older than 5.12, or the container's seccomp profile hides calls from it; " + manual
	case errno == syscall.ENOSPC || errno == syscall.EUSERS:
		return "this machine allows no more namespaces: raise sysctl user.max_user_namespaces"
	case errno == syscall.EPERM || errno == syscall.EACCES:
		for _, s := range []struct{ file, bad, fix string }{
			{"/proc/sys/kernel/unprivileged_userns_clone", "0", "set sysctl kernel.unprivileged_userns_clone=1"},
			{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "install bubblewrap with its AppArmor " +
				"profile, or set sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
			{"/proc/sys/user/max_user_namespaces", "0", "raise sysctl user.max_user_namespaces"},
		} {
			if text, err := os.ReadFile(s.file); err == nil && strings.TrimSpace(string(text)) == s.bad {
				return s.fix
			}
		}
		return "a container's default seccomp profile forbids namespaces: run it with the one of docs/sandbox.md, or " +
			"run the worker outside of a container"
	}
	return manual
}
