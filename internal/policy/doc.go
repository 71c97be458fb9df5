// Package policy decides one call's permission from rules, the session's mode and the tool's declaration.
//
// The order is fixed, and no rule's place or precision changes it ([Decide]):
//
//  1. a deny rule matches: denied
//  2. the tool itself refuses the call: denied
//  3. the tool talks to a person and there is none: denied
//  4. the mode is plan and the call is not read-only: denied
//  5. an ask rule matches, or the tool itself asks: ask
//  6. allow rules cover the call: allowed
//  7. the mode allows it: accept_edits, for tools that only edit the workspace
//  8. the flags allow it: a read-only call in the workspace, or a tool that needs no permission
//  9. a hook of the operator allows it
//  10. undecided: ask, but bypass allows
//
// A command line is covered part by part: each of its simple commands matches an allow rule or only reads, in a
// directory of the workspace. "cd src && npm test | head" and "timeout 60 npm test" need no other rule than "npm test".
//
// Under dont_ask every ask becomes a denial. Where nobody can be asked, the caller turns the ask into one.
//
// Doubt goes one way. What a rule's specifier is matched against may be unknown: the input has no such field, a command
// does not parse, a path or host is odd, the specifier itself makes no sense for the tool. A deny or ask rule then
// matches and an allow rule does not.
//
// Names are ours or those of Claude Code, and a rule that can be about no tool is an error where it is given
// ([Rules.CheckNames]).
//
// A deny rule for commands is a guard against accidents and plain misuse, no wall: it sees through the wrappers and
// shells that it knows ("sudo rm", "sh -c 'rm x'"), but not into scripts, aliases and other languages. The sandbox is
// the wall.
//
// The package is pure: no file is looked at. Paths come in resolved by the caller.
package policy
