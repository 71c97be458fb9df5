// Package archtest holds the repository's rules as tests, each with its reason: which package may import which, what
// pure code must not touch, how packages are named and documented, and that the paths, links and tests named in the
// documents exist. It has no code of its own.
//
// The rules are data, in rules_test.go. To add a package, give it a line in the table packages there; to let it import
// a package of its own layer, add a line with the reason to sameLayer.
//
// Each check is a function over a tree of files. It runs on the repository, and in the test beside it on a small
// tree in memory that breaks the rule: a check that cannot fail is none.
package archtest
