package shell

import (
	"fmt"
	"strings"
)

// options lists a program's options that are known to only read. Every word that begins with "-" must be one of them,
// in every position: also after "--", and where it would be another option's value. So no word that the program might
// read as an option is skipped. Long names must be complete, since GNU programs and git accept abbreviations of options
// that are not listed.
type options struct {
	flags  string          // short options without a value; they may be joined: -la
	values string          // short options with a value: the rest of the word, or the next word
	long   map[string]bool // long options, without the dashes; any may have "=value"
	number bool            // -20 is an option
}

// check returns an error for a word that is not known to only read.
func (o *options) check(args []Word) error {
	for _, a := range args {
		if a.operand() || a.Literal && o.known(a.Text) {
			continue
		}
		return notKnown(a)
	}
	return nil
}

func (o *options) known(word string) bool {
	if word == "--" {
		return true
	}
	if name, ok := strings.CutPrefix(word, "--"); ok {
		name, _, _ = strings.Cut(name, "=")
		return o.long[name]
	}
	short := strings.TrimPrefix(word, "-")
	if o.number && digits(short) {
		return true
	}
	for _, c := range short {
		switch {
		case strings.ContainsRune(o.values, c):
			return true // the rest is its value
		case !strings.ContainsRune(o.flags, c):
			return false
		}
	}
	return true
}

// Excluded: -o, --output, --compress-program, -T (it writes temporary files to a given directory).
var sortOptions = options{
	flags: "bcCdfghiMmnRrsuVz", values: "ktS",
	long: set(`buffer-size check debug dictionary-order field-separator general-numeric-sort help human-numeric-sort ignore-case
		ignore-leading-blanks ignore-nonprinting key merge month-sort numeric-sort parallel random-sort reverse sort stable
		unique version version-sort zero-terminated`),
}

var uniqOptions = options{
	flags: "cdDiuz", values: "fsw",
	long: set("all-repeated check-chars count group help ignore-case repeated skip-chars skip-fields unique version " +
		"zero-terminated"),
}

// Excluded: -o and --output, which write a file in some systems.
var base64Options = options{flags: "d", values: "w", long: set("decode ignore-garbage wrap help version")}

// Excluded: -o and --output, and -R, which writes files with -H. Values are words of their own: tree takes the letters
// behind an option for more options.
var treeOptions = options{
	flags: "adfilpsugDFqNQrtUvcnACJSXLIPhx",
	long: set(`dirsfirst filesfirst du si inodes device noreport gitignore ignore-case matchdirs prune metafirst
		filelimit charset sort timefmt help version`),
}

// Excluded: -C and --compile (they write), -p (it resets times), -z and -Z (they run decompressors).
var fileOptions = options{
	flags: "0bhiklLNrv", values: "eFm",
	long: set("brief dereference extension help keep-going mime mime-encoding mime-type no-dereference no-pad print0 " +
		"raw separator version"),
}

// Excluded: -s and --set, and -f, whose meaning differs between systems. The function date checks the operands.
var dateOptions = options{
	flags: "uR", values: "dIr",
	long: set("date help iso-8601 reference rfc-3339 rfc-email universal utc version"),
}

// Excluded: --pre and --hostname-bin run programs, -z and --search-zip run decompressors.
var rg = options{
	flags: ".0acFhHiIlLnNopPqsSuUvVwx", values: "ABCdeEfgjmMrtT",
	long: set(`after-context before-context case-sensitive color column context count count-matches crlf encoding engine file files
		files-with-matches files-without-match fixed-strings follow glob glob-case-insensitive heading help hidden iglob
		ignore-case ignore-file invert-match json line-number line-regexp max-columns max-count max-depth max-filesize multiline
		multiline-dotall no-column no-config no-filename no-heading no-hidden no-ignore no-ignore-parent no-ignore-vcs
		no-line-number no-messages null one-file-system only-matching passthru path-separator pcre2 pretty quiet regexp replace
		smart-case sort sortr stats text threads trim type type-list type-not unrestricted version vimgrep with-filename
		word-regexp`),
}

func (o *options) checkNone(args []Word) error {
	if err := o.check(args); err != nil {
		return err
	}
	for _, a := range args {
		if a.operand() {
			return fmt.Errorf("%s is an operand, and it may act on that", a.Text)
		}
	}
	return nil
}
