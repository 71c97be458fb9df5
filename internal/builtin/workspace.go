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
	// dirs are the names that the directory has in absolute paths, split: with the symbolic links on the way to it
	// resolved, and as the worker is configured.
	dirs [][]string
	// hides reports what permission rules hide; nil: nothing. linked are hidden files that have other names, once they
	// were looked for.
	hides  func(path string) bool
	linked map[place.ID]bool
}

// held is the call's directory as the worker holds it. It is looked at once more whether it may be used.
func held(env tool.Env, what string) (*place.Root, error) {
	root, ok := env.Root.(*place.Root)
	if !ok {
		return nil, tool.SetupRequired("this worker serves no directory for workspace %q; %s can't be used in it",
			env.Workspace, what)
	}
	return root, root.Check()
}

// openWorkspace opens the call's directory. The caller closes it.
func openWorkspace(env tool.Env) (*workspace, error) {
	from, err := held(env, "this tool")
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
	w := &workspace{root: root, held: from, hides: env.Hidden}
	for _, dir := range from.Names() {
		w.dirs = append(w.dirs, splitNames(dir))
	}
	return w, nil
}

// close gives the directory back. It was only read through, so an error of closing it means nothing to the call.
func (w *workspace) close() { _ = w.root.Close() }

// splitNames splits a path at its slashes, without empty names and ".".
func splitNames(path string) []string {
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(s string) bool {
		return s == "" ||
			s == "."
	})
}

// inside turns an absolute path into the names below the workspace's directory. It compares names and looks at nothing.
func (w *workspace) inside(absolute string) (names []string, ok bool) {
	names = splitNames(absolute)
	for _, dir := range w.dirs {
		if len(names) >= len(dir) && slices.Equal(names[:len(dir)], dir) {
			return names[len(dir):], true
		}
	}
	return nil, false
}

// split checks what the model wrote as a path and returns its names below the workspace's directory; needsDir is set
// when the path ends in a slash. A path that climbs out by ".." is a violation however it goes on.
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
			return nil, false, leaves(field, written)
		}
	}
	depth := 0
	for _, name := range names {
		if depth++; name == ".." {
			if depth -= 2; depth < 0 {
				return nil, false, leaves(field, written)
			}
		}
	}
	if len(names) > MaxPathSteps {
		return nil, false, tooManyNames(field, written)
	}
	return names, strings.HasSuffix(written, "/"), nil
}

// tooManyNames is the error of a path that is longer than anybody can follow, also of one yet to be made.
func tooManyNames(field, written string) error {
	return tool.Invalid("%s %s has more than %d names on its way", field, show(written), MaxPathSteps)
}

// leaves is the violation of a path that leads out of the workspace. It repeats what the model wrote and nothing else:
// the same whether something is there or not.
func leaves(field, written string) error {
	return tool.Violation("%s %s leads out of the workspace; only paths inside it can be used", field, show(written))
}

// escaped reports whether err is the refusal of [os.Root] to leave its directory. The package does not export that
// error, so it is provoked: ".." is refused by its name alone.
func (w *workspace) escaped(err error) bool {
	_, refusal := w.root.Lstat("..")
	return errors.Is(err, errors.Unwrap(refusal))
}

// fault puts an error of the file system into the model's terms; doing says what was tried, such as "read". The cause,
// which holds paths of this machine, goes to the operator only.
func (w *workspace) fault(field, written, doing string, err error) error {
	message := func(code toolyard.Code, format string) error {
		return &tool.Error{Code: code, Message: fmt.Sprintf(format, field, show(written)), Err: err}
	}
	switch {
	case w.escaped(err):
		return leaves(field, written)
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
		why = errno.Error() // no space left on device, read-only file system: no name in it
	}
	return message(toolyard.ExecutionFailed, "%s %s: the worker failed to "+doing+" it: "+why)
}

// stopped is the error of a call whose context has ended: the reason why, for the worker to tell a timeout from a
// cancel. It is nil while the context goes on.
func stopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}
