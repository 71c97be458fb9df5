package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// workspace is the directory that a call acts on, open for one call.
type workspace struct {
	root *os.Root
	held *place.Root
	// dirs are the names of the directory in absolute paths, split: with the symbolic links on the way to it resolved,
	// and as the worker is configured.
	dirs [][]string
	// hides reports what permission rules hide; nil: nothing. linked are hidden files with other names, after they were
	// searched for.
	hides  func(path string) bool
	linked map[place.ID]bool
	// locks are the names that the call has in place of the whole workspace; none: it has the whole.
	locks []tool.Lock
	clean cleaner
}

// heldRoot is the call's directory, which the worker holds open. It checks again whether the directory may be used.
func heldRoot(env tool.Env, what string) (*place.Root, error) {
	root, ok := env.Root.(*place.Root)
	if !ok {
		return nil, tool.SetupRequired("this worker serves no directory for workspace %q; %s can't be used in it",
			env.Workspace, what)
	}
	return root, root.Check()
}

// openWorkspace opens the call's directory. The caller closes it.
func openWorkspace(env tool.Env) (*workspace, error) {
	from, err := heldRoot(env, "this tool")
	if err != nil {
		return nil, err
	}
	root, err := from.Open()
	if err != nil {
		return nil, &tool.Error{
			Code: toolyard.SetupRequired,
			Message: fmt.Sprintf("this worker cannot open the directory of workspace %q; an operator must mend it",
				env.Workspace),
			Err: err,
		}
	}
	w := &workspace{root: root, held: from, hides: env.Hidden, locks: env.Locks, clean: env.Redact}
	for _, dir := range from.Names() {
		w.dirs = append(w.dirs, splitNames(dir))
	}
	return w, nil
}

// close closes the directory. It was only used for reading, so an error is ignored.
func (w *workspace) close() { _ = w.root.Close() }

// splitNames splits a path at its slashes, without empty names and ".".
func splitNames(path string) []string {
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(s string) bool {
		return s == "" ||
			s == "."
	})
}

// inside turns an absolute path into the names below the workspace's directory. It only compares names.
func (w *workspace) inside(absolute string) (names []string, ok bool) {
	names = splitNames(absolute)
	for _, dir := range w.dirs {
		if len(names) >= len(dir) && slices.Equal(names[:len(dir)], dir) {
			return names[len(dir):], true
		}
	}
	return nil, false
}

// split checks the path that the model wrote and returns its names below the workspace's directory; needsDir is set if
// the path ends in a slash. A path that leaves by ".." is a violation whatever follows.
func (w *workspace) split(field, written string) (names []string, needsDir bool, err error) {
	switch {
	case written == "":
		return nil, false, tool.Invalid("%s is empty; give a path inside the workspace", field)
	case len(written) > MaxPathBytes:
		return nil, false, tool.Invalid("%s is %d bytes long; a path has at most %d", field, len(written), MaxPathBytes)
	case !utf8.ValidString(written):
		return nil, false, tool.Invalid("%s is not valid UTF-8", field)
	case strings.ContainsRune(written, 0):
		return nil, false, tool.Invalid("%s holds a NUL character, which no path can", field)
	}
	names = splitNames(written)
	if strings.HasPrefix(written, "/") {
		var ok bool
		if names, ok = w.inside(written); !ok {
			return nil, false, leavesError(field, written)
		}
	}
	depth := 0
	for _, name := range names {
		if depth++; name == ".." {
			if depth -= 2; depth < 0 {
				return nil, false, leavesError(field, written)
			}
		}
	}
	if len(names) > MaxPathSteps {
		return nil, false, tooManyNames(field, written)
	}
	return names, strings.HasSuffix(written, "/"), nil
}

// tooManyNames is the error of a path with too many names, also of one that does not exist yet.
func tooManyNames(field, written string) error {
	return tool.Invalid("%s %s has more than %d names on its way", field, show(written), MaxPathSteps)
}

// leavesError is the error of a path that leads out of the workspace. It repeats only what the model wrote, so that it
// does not reveal whether something exists there.
func leavesError(field, written string) error {
	return tool.Violation("%s %s leads out of the workspace; only paths inside it can be used", field, show(written))
}

// escaped reports whether err is the refusal of [os.Root] to leave its directory. The package does not export that
// error, so this provokes one: ".." is refused by its name alone.
func (w *workspace) escaped(err error) bool {
	_, refusal := w.root.Lstat("..")
	return errors.Is(err, errors.Unwrap(refusal))
}

// fault turns a file system error into one for the model; doing says what was tried, such as "read". Only the operator
// sees the cause, which contains paths of this machine.
func (w *workspace) fault(field, written, doing string, err error) error {
	message := func(code toolyard.Code, format string) error {
		return &tool.Error{Code: code, Message: fmt.Sprintf(format, field, show(written)), Err: err}
	}
	switch {
	case w.escaped(err):
		return leavesError(field, written)
	case errors.Is(err, fs.ErrNotExist):
		return message(toolyard.InvalidArguments, "%s %s is not there any more; look again")
	case errors.Is(err, fs.ErrPermission):
		return message(toolyard.InvalidArguments, "%s %s: the worker has no permission to "+doing+" it")
	case isNameTooLong(err):
		return message(toolyard.InvalidArguments, "%s %s holds a name that is too long for the file system")
	case isNotDirectory(err):
		return message(toolyard.InvalidArguments, "%s %s goes through something that is not a directory")
	}
	why := "an operator can see why"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		why = errno.Error() // no space left on device, read-only file system: it contains no name
	}
	return message(toolyard.ExecutionFailed, "%s %s: the worker failed to "+doing+" it: "+why)
}

// stopped returns the cause if the call's context has ended, so that the worker can tell a timeout from a cancel.
func stopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}
