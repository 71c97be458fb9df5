package sandbox

import "github.com/toolyard/toolyard/internal/sandbox/stage"

// protection is one path of a workspace that a command must not write, since something else would run or obey it: git at
// the next commit, an editor when the directory is opened, a shell.
type protection struct {
	Path string
	// Make says what to put there while the command runs if it is missing, for else the command would be the first to
	// make it. Empty: nothing; what then appears is taken away when the command has ended.
	Make    missing
	Content string
}

// missing is what is made in place of a protected path that is missing.
type missing string

const (
	makeDir  missing = "directory"
	makeFile missing = "file"
)

// protections is what is protected in a workspace. A missing .git is made as an empty directory, which git itself does
// not take for a repository: "git init" is for who owns the workspace.
var protections = []protection{
	{Path: ".git", Make: makeDir},
	{Path: ".git/hooks", Make: makeDir},
	{Path: ".git/config", Make: makeFile},
	{Path: ".git/config.worktree", Make: makeFile},
	{Path: ".git/commondir", Make: makeFile, Content: ".\n"}, // it would move config and hooks elsewhere; this one leaves them
	{Path: ".git/info/attributes"}, {Path: ".git/modules"}, {Path: ".git/worktrees"},
	{Path: ".hg/hgrc"}, {Path: ".envrc"}, {Path: ".mcp.json"}, {Path: ".vscode"}, {Path: ".idea"}, {Path: ".claude"},
	{Path: ".bashrc"}, {Path: ".bash_profile"}, {Path: ".profile"}, {Path: ".zshrc"}, {Path: ".zprofile"}, {Path: ".gitconfig"},
}

// leased is a workspace that is ready for one run.
type leased struct {
	dir      string // with no symbolic link in it
	dev, ino uint64
	writable bool
	// fd is a mount that was prepared for it; 0: the stage mounts dir itself.
	fd      int
	protect []stage.Protected
	masks   []stage.Mask // what is hidden from the command
}
