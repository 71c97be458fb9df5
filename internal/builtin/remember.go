package builtin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/tool"
)

// remembers is what the model reads of a bash that remembers.
const remembers = " The session has one shell: its directory, the variables that a command exports and the files of " +
	"/tmp last from one command to the next. Functions, aliases, variables that are not exported and processes in the " +
	"background end with their command. The directory lasts inside the workspace only. A line [shell: ...] at the end " +
	"says what has become of the shell."

const (
	// startName is the file of a sandbox with which its shell begins: a secret, since variables may hold some.
	startName = "toolyard-shell"
	// noteName is the file of /tmp in which the shell notes at its end where it is and what it exports.
	noteName = ".toolyard-shell"
	// maxNote bounds the note, in bytes: what lasts, and as much again.
	maxNote = 2 * (shells.MaxEnvBytes + shells.MaxVariables + 2*MaxPathBytes)
	// emptyHome is the home of commands that only read: the shell's own may hold configuration that names programs.
	emptyHome = "/dev/shm"
)

// runRemembering runs a command in the shell of its session.
func (b *bashTool) runRemembering(ctx context.Context, env tool.Env, in bashInput, root *place.Root,
	limit time.Duration) (string, error) {
	r := shell.Remembering(in.Command)
	changes := r.Class != toolyard.ReadOnly
	key := shells.Key{Agent: string(env.Agent), Session: string(env.Session), Workspace: string(env.Workspace),
		Dir: root.Dir()}
	var news []string
	for {
		sh, err := b.shells.Open(ctx, key, fmt.Sprintf("call %s of batch %s", env.CallID, env.Batch), changes)
		if err != nil {
			return "", noShell(ctx, err)
		}
		sh.News = append(news, sh.News...)
		text, err := b.runIn(ctx, env, in, r, sh, root, limit)
		if !errors.Is(err, sandbox.ErrKeep) {
			return text, err
		}
		if news != nil { // a new shell has no archive
			return "", noShell(ctx, errors.Join(err, sh.Close(shells.Unused)))
		}
		if err := sh.Damaged(ctx); err != nil {
			return "", noShell(ctx, err)
		}
		news = []string{}
	}
}

// noShell is the error of a command whose shell cannot be had. The command was not started.
func noShell(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &tool.Error{Code: toolyard.DependencyUnavailable, Err: err, Retryable: true,
		Message: "what the session's shell remembers could not be read or kept; an operator can see why"}
}

// runIn runs a command in a shell and closes it, except with [sandbox.ErrKeep].
func (b *bashTool) runIn(ctx context.Context, env tool.Env, in bashInput, r shell.Remembered, sh *shells.Shell,
	root *place.Root, limit time.Duration) (text string, err error) {
	end := shells.Unused
	defer func() {
		if errors.Is(err, sandbox.ErrKeep) {
			return
		}
		if e := sh.Close(end); e != nil {
			text += told("what is no longer needed of it could not be removed on the worker")
		}
	}()
	if r.Top && sh.Dir != "" {
		return "", tool.Invalid("the shell is in %s, and in a directory below the workspace's own, git and go obey a "+
			"configuration that can name programs. Write cd . && in front of the command: it then runs alone, and may "+
			"need permission", sh.Dir)
	}
	p := b.policy
	p.Limits.Wall = limit
	p.Workspace = &sandbox.Workspace{Root: root, Writable: !r.Reads(), Hidden: env.Hidden}
	p.Env = maps.Clone(p.Env)
	if p.Env == nil {
		p.Env = map[string]string{}
	}
	p.Env["BASH_ENV"] = sandbox.SecretsDir + "/" + startName
	variables := sh.Env
	if r.Reads() {
		variables, p.Env["HOME"] = nil, emptyHome
	}
	p.Secrets = append(slices.Clone(p.Secrets),
		sandbox.Secret{Name: startName, Content: startScript(root.Dir(), sh.State, variables)})
	p.Keep = &sandbox.Keep{From: sh.From, To: sh.To, Note: noteName, MaxNote: maxNote, Bytes: shells.MaxTmpBytes,
		Names: shells.MaxTmpNames}
	out := output{tell: env.Progress}
	res, err := b.box.Run(ctx, p, sandbox.Command{Argv: []string{"bash", "-c", in.Command}},
		sandbox.Streams{Stdout: &out, Stderr: &out})
	switch {
	case errors.Is(err, sandbox.ErrKeep):
		return "", err
	case errors.Is(err, sandbox.ErrNotStarted):
		return "", tool.SetupRequired("this worker has no bash, and no other shell remembers anything")
	case err != nil:
		return "", refused(ctx, err)
	}
	news := sh.News
	if sh.To != nil {
		failpoint.Hit(failpoint.ShellRan)
		var more []string
		more, end = b.keep(ctx, env, sh, root.Dir(), &res, r.Reads())
		news = slices.Concat(news, more)
	}
	text, err = b.ended(ctx, env, in, res, p.Limits, limit, out.String())
	for _, n := range news {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += told(n)
	}
	return text, err
}

// told is a line for the model about its shell.
func told(news string) string { return "[shell: " + news + "]\n" }

// keep stores what the shell remembers after a command. news is for the model. directory says that the command only
// read, so that it can only have moved the shell.
func (b *bashTool) keep(ctx context.Context, env tool.Env, sh *shells.Shell, top string, res *sandbox.Result,
	directory bool) (news []string, end shells.End) {
	const asBefore = "directory, variables and /tmp are as before this command: "
	switch {
	case res.Reason == sandbox.Trespass, res.Kept == nil:
		return []string{asBefore + "it was stopped"}, shells.Told
	case res.Kept.Problem != "" && !directory:
		return []string{fmt.Sprintf(asBefore+"/tmp has more than %d MiB or %d names, or could not be kept",
			int64(shells.MaxTmpBytes)>>20, shells.MaxTmpNames)}, shells.Told
	}
	next := sh.State
	if res.Kept.Note == nil {
		news = append(news, "directory and variables are as before this command, since the shell did not come to its "+
			"end: exec, a trap for EXIT and signals keep it from that")
	} else {
		noted, problems := readNote(string(res.Kept.Note), top, res.Env)
		news = append(news, problems...)
		next.Before, next.Dir = noted.Before, noted.Dir
		if err := noted.Check(); err != nil {
			news = append(news, "the variables are as before this command: "+err.Error())
		} else if !directory {
			next.Env = noted.Env
		}
	}
	if next.Dir != sh.Dir {
		news = append(news, "its directory is now "+filepath.Join(top, next.Dir))
	}
	if left := res.Kept.Left; left > 0 && !directory {
		news = append(news, fmt.Sprintf("%d names of /tmp do not last: they cannot be read, are no files, or lie too deep",
			left))
	}
	if env.CommitPoint != nil && env.CommitPoint() != nil {
		// The call has been stopped, or another may act for it by now: the model may get nothing of this output.
		return news, shells.Lost
	}
	if err := sh.Commit(context.WithoutCancel(ctx), next, !directory); err != nil {
		return []string{asBefore + "the worker could not store them"}, shells.Told
	}
	return news, shells.Told
}

// atEnd has a shell write its note: the directory, the one before, and each exported variable, with a NUL behind each.
const atEnd = `trap '{ set +eux; } 2>/dev/null
unset IFS
{
	builtin printf "%%s\0" "$(builtin pwd -P)" "$OLDPWD"
	for __name in $(builtin compgen -e); do builtin printf "%%s=%%s\0" "$__name" "${!__name}"; done
} 2>/dev/null >|/tmp/%s' EXIT
`

// startScript is what a shell reads before its command: it goes where the shell was, exports what it had, and notes at
// its end where it is and what it exports. The note is whatever the command makes of it, and so is read with suspicion.
func startScript(top string, s shells.State, variables map[string]string) []byte {
	var b strings.Builder
	b.WriteString("unset BASH_ENV\n")
	fmt.Fprintf(&b, atEnd, noteName)
	if s.Dir != "" {
		gone := fmt.Sprintf("[shell: its directory %s cannot be entered any more; nothing was run]", s.Dir)
		fmt.Fprintf(&b, "builtin cd -- %s 2>/dev/null || { builtin printf '%%s\\n' %s; exit 126; }\n",
			shell.Quote(filepath.Join(top, s.Dir)), shell.Quote(gone))
	}
	fmt.Fprintf(&b, "OLDPWD=%s\n", shell.Quote(filepath.Join(top, s.Before)))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, shell.Quote(variables[name]))
	}
	return []byte(b.String())
}

// readNote reads the note of a shell: its directory, the one before, and what it exports. given is the environment with
// which it began, of which only changes last. What cannot last is left out, and the model is told of directories.
func readNote(note, top string, given []string) (s shells.State, problems []string) {
	fields := strings.Split(strings.TrimSuffix(note, "\x00"), "\x00")
	inside := func(dir string) (string, bool) {
		rel, err := filepath.Rel(top, dir)
		ok := err == nil && filepath.IsAbs(dir) && filepath.IsLocal(rel) && utf8.ValidString(rel) &&
			len(rel) <= MaxPathBytes
		if !ok || rel == "." {
			return "", ok
		}
		return rel, true
	}
	var ok bool
	if s.Dir, ok = inside(fields[0]); !ok {
		problems = append(problems, "the next command begins at the top of the workspace, since a directory outside of it "+
			"does not last")
	}
	if len(fields) > 1 {
		s.Before, _ = inside(fields[1])
		fields = fields[2:]
	} else {
		fields = nil
	}
	for _, f := range fields {
		name, value, ok := strings.Cut(f, "=")
		if ok && shells.Lasts(name) && utf8.ValidString(value) && !slices.Contains(given, f) {
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			s.Env[name] = value
		}
	}
	return s, problems
}
