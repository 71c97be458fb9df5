package shell

import (
	"fmt"
	"regexp"
)

// git allows a few subcommands, each with the options that are known to only read. Of git's own options only --no-pager
// is allowed: -c and --config-env set configuration, which can name programs, and -C, --git-dir and --exec-path change
// which configuration is read.
//
// The repository's configuration and attributes are assumed to be harmless. Both can name programs that status, diff
// and log run (fsmonitor, textconv, filters). Who may write .git/config is decided by rules on writing files.
// Refreshing the index, which status and diff do, does not count as a write: git does it with a lock, and skips it if
// it cannot.
func git(args []Word) error {
	for len(args) > 0 && args[0].Literal && args[0].Text == "--no-pager" {
		args = args[1:]
	}
	if len(args) == 1 && args[0].Literal && args[0].Text == "--version" {
		return nil
	}
	if len(args) == 0 || !args[0].Literal {
		return fmt.Errorf("its subcommand is not literal")
	}
	name, args := args[0].Text, args[1:]
	reads, ok := gitLists[name]
	if o := gitSubcommands[name]; !ok && o != nil {
		reads, ok = o.check, true
	}
	if !ok {
		return fmt.Errorf("%s is not known to only read", name)
	}
	err := reads(args)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// signatures are placeholders of a format that verify a signature. A sign may stand in each.
var signatures = regexp.MustCompile(`%[-+ ]?G`)

var gitSubcommands = map[string]*options{
	"status": {
		flags: "bsvz", values: "uM",
		long: set(`ahead-behind branch column find-renames ignore-submodules ignored long no-ahead-behind no-column no-renames null
			porcelain renames short show-stash untracked-files verbose`),
	},
	// rev-parse prints its arguments; no option writes. But the words must be known.
	"rev-parse": {
		flags: "q",
		long: set(`abbrev-ref abbrev absolute-git-dir all branches default end-of-options flags git-common-dir git-dir
			git-path is-bare-repository is-inside-git-dir is-inside-work-tree is-shallow-repository no-flags no-revs path-format
			prefix quiet remotes revs-only shared-index-path short show-cdup show-object-format show-prefix
			show-superproject-working-tree show-toplevel sq symbolic symbolic-full-name tags verify`),
	},
	"ls-files": {
		flags: "cdfikmorstuvz", values: "xX",
		long: set(`abbrev cached debug deduplicate deleted directory empty-directory eol error-unmatch exclude exclude-from
			exclude-per-directory exclude-standard full-name ignored killed modified no-empty-directory others
			recurse-submodules resolve-undo sparse stage unmerged with-tree`),
	},
	"rev-list": {
		values: "n", number: true,
		long: set(`abbrev abbrev-commit after all ancestry-path author before boundary branches children committer count
			date-order first-parent grep left-right max-count merges no-merges no-walk parents remotes reverse right-only since
			skip tags topo-order until`),
	},
	"merge-base": {flags: "a", long: set("all fork-point independent is-ancestor octopus")},
	// Excluded: --broken runs git once more.
	"describe": {
		long: set("abbrev all always candidates contains debug dirty exact-match exclude first-parent long match tags"),
	},
	// Excluded: formats, which can verify signatures.
	"shortlog":      {flags: "cens", long: set("all committer email no-merges numbered since summary until")},
	"show-ref":      {flags: "dqs", long: set("abbrev dereference hash head heads quiet tags verify")},
	"check-ignore":  {flags: "nqvz", long: set("no-index non-matching quiet stdin verbose")},
	"count-objects": {flags: "Hv", long: set("human-readable verbose")},
	"ls-tree":       {flags: "dlrtz", long: set("abbrev full-name full-tree long name-only name-status object-only")},
	// Excluded: --textconv and --filters run programs.
	"cat-file": {flags: "epst"},
	// Excluded: options of git diff that are not listed. blame passes unknown options on, including --output.
	"blame": {
		flags: "beflnpstw", values: "CLM",
		long: set(`abbrev color-by-age color-lines date first-parent ignore-rev ignore-revs-file incremental line-porcelain
			porcelain root show-email show-name show-number show-stats since`),
	},
	// Excluded: -O and --open-files-in-pager run a program, --textconv may.
	"grep": {
		flags: "acEFGhHiIlLnopPqrvwWz", values: "ABCefm", number: true,
		long: set(`after-context all-match and before-context break cached color column context count exclude-standard
			extended-regexp files-with-matches files-without-match fixed-strings full-name function-context heading ignore-case
			invert-match line-number max-count max-depth name-only no-color no-index no-recursive not null only-matching or
			perl-regexp quiet recursive recurse-submodules show-function text threads untracked word-regexp`),
	},
}

// gitHistory is for log, show and diff. Excluded: --output writes, --ext-diff and --textconv run programs,
// --show-signature runs gpg, -O reads an order file here but opens a pager elsewhere, -c is too similar to git's own.
var gitHistory = options{
	flags: "abEFgiPpqRrstuwWz", values: "BCGlLMnSUX", number: true,
	long: set(`abbrev abbrev-commit after all all-match ancestry-path author author-date-order before binary boundary branches cached
		cc check cherry cherry-mark cherry-pick color color-words combined-all-paths committer compact-summary cumulative
		date date-order decorate decorate-refs decorate-refs-exclude diff-algorithm diff-filter dirstat dst-prefix exclude
		exit-code extended-regexp find-copies find-copies-harder find-object find-renames first-parent fixed-strings follow format
		full-diff full-history full-index function-context glob graph grep grep-reflog histogram ignore-all-space
		ignore-blank-lines ignore-cr-at-eol ignore-matching-lines ignore-space-at-eol ignore-space-change ignore-submodules
		inter-hunk-context invert-grep irreversible-delete left-only left-right log-size mailmap max-count max-parents merge-base
		merges min-parents minimal name-only name-status no-abbrev no-abbrev-commit no-color no-decorate no-ext-diff no-index
		no-mailmap no-merges no-notes no-patch no-prefix no-renames no-textconv no-walk not numstat oneline parents patch
		patch-with-raw patch-with-stat patience perl-regexp pickaxe-all pickaxe-regex pretty quiet raw
		regexp-ignore-case relative relative-date remotes remove-empty reverse right-only shortstat since
		simplify-by-decoration simplify-merges skip source sparse src-prefix staged stat staged submodule summary tags text
		topo-order unified until use-mailmap walk-reflogs word-diff word-diff-regex ws-error-highlight`),
}

var gitRemote = options{flags: "v", long: set("verbose")}

// gitBranch allows the listing forms. A bare operand creates a branch. So an operand is allowed only with --list, which
// makes it a pattern, or directly after an option that takes a commit and lists.
func gitBranch(args []Word) error {
	if err := branchOptions.check(args); err != nil {
		return err
	}
	list := false
	for _, a := range args {
		if a.Text == "--" { // a following --list is a name
			break
		}
		list = list || a.Text == "--list"
	}
	if err := sortsOnly(args); err != nil { // --sort alone would take a following --list as its value
		return err
	}
	for i, a := range args {
		takes := i > 0 && args[i-1].Literal && branchCommits[args[i-1].Text]
		switch {
		case takes && !(a.Literal && a.operand()):
			return notKnown(a) // the option would take it as its value, and the next word would be an operand
		case !takes && !list && (a.operand() || a.Text == "--"):
			return fmt.Errorf("%s may be the name of a branch to make", a.Text)
		}
	}
	return nil
}

var (
	branchCommits = set("--contains --no-contains --merged --no-merged --points-at")
	branchOptions = options{
		flags: "airv",
		long: set(`abbrev all color column contains format ignore-case list merged no-abbrev no-color no-column no-contains no-merged
			omit-empty points-at remotes show-current sort verbose`),
	}
)
