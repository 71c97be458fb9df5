// Package policy decides one call's permission from rules, the session's mode and the tool's declaration.
//
// The order is fixed. Neither a rule's position nor its precision changes it ([Decide]):
//
//  1. a deny rule matches: denied
//  2. the tool itself refuses the call: denied
//  3. the tool talks to a person and there is none: denied
//  4. the mode is plan and the call is not read-only: denied
//  5. an ask rule matches, or the tool itself asks: ask
//  6. allow rules cover the call: allowed
//  7. the mode allows it: accept_edits, for tools that only edit the workspace
//  8. the flags allow it: a read-only call in the workspace, or a tool that needs no permission, unless the call may
//     do what cannot be undone
//  9. a hook of the operator allows it
//  10. undecided: ask, but bypass allows
//
// What may do what cannot be undone is asked about where [Rules.Confirm] says so, unless a precise allow rule covers
// it: then steps 7 to 10 do not hold for it, nor do broad rules in step 6.
//
// A command line is covered part by part: each of its simple commands matches an allow rule, or only reads in a
// directory of the workspace. "cd src && npm test | head" and "timeout 60 npm test" need no other rule than "npm test".
//
// Under dont_ask every ask becomes a denial. If nobody can be asked, the caller turns the ask into a denial.
//
// What a rule's specifier is matched against may be unknown: the input has no such field, a command does not parse, a
// path or host is odd, or the specifier makes no sense for the tool. Then a deny or ask rule matches and an allow rule
// does not.
//
// Names are ours or those of Claude Code. A rule that no tool can match is an error where it is given
// ([Rules.CheckNames]).
//
// A deny rule for commands guards against accidents and plain misuse. It sees through the wrappers and shells that it
// knows ("sudo rm", "sh -c 'rm x'"), but not into scripts, aliases and other languages. Only the sandbox is a security
// boundary.
//
// The package is pure: it opens no files. The caller resolves paths.
package policy
