// Package access is who may do what on a NATS system, as values: principals, and what each is granted.
//
// Dispatchers and operators share the platform's account, where the streams are. Each pool of workers, and each agent,
// has an account of its own, in which there is nothing but what is granted: subjects that lead into the platform's
// account, one by one. Permissions within one account would not do: a publish that is allowed, with a reply address,
// has the server put its answer on any subject of the account.
//
// Authority: none of its own. Package broker has the table of grants, package natsd makes accounts and credentials of
// it.
//
// Ordering and failure: none; it is pure.
package access

import (
	"fmt"
	"strings"
)

// Role is what a principal does.
type Role string

// The roles.
const (
	Operator   Role = "operator"   // looks at everything, and decides for people
	Dispatcher Role = "dispatcher" // runs batches
	Worker     Role = "worker"     // runs the calls of one pool
	Agent      Role = "agent"      // hands in batches of one name
)

// Roles are all of them.
var Roles = []Role{Operator, Dispatcher, Worker, Agent}

// Principal is who has credentials: a role, and for workers the pool and for agents the name, as a token of a subject.
type Principal struct {
	Role Role
	Name string
}

// Platform reports whether the principal is of the platform's own account, where everything is allowed.
func (p Principal) Platform() bool { return p.Role == Operator || p.Role == Dispatcher }

// Check says what is wrong with a principal.
func (p Principal) Check() error {
	switch p.Role {
	case Operator, Dispatcher:
		if p.Name != "" {
			return fmt.Errorf("the role %s has no name, and this one is %q", p.Role, p.Name)
		}
		return nil
	case Worker, Agent:
		if p.Name == "" || strings.ContainsFunc(p.Name, outsideTokens) {
			return fmt.Errorf("the name %q of a principal of the role %s is no token of a subject", p.Name, p.Role)
		}
		return nil
	}
	return fmt.Errorf("there is no role %q; use one of %q", p.Role, Roles)
}

// outsideTokens reports whether a character stands in no token that is made of a name.
func outsideTokens(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '='
}

// String is the principal in words.
func (p Principal) String() string {
	switch p.Role {
	case Worker:
		return fmt.Sprintf("workers of pool %q", p.Name)
	case Agent:
		return fmt.Sprintf("agent %q", p.Name)
	}
	return string(p.Role)
}

// Way is how messages go over a grant.
type Way int

// The ways.
const (
	// Ask: the principal publishes, and gets one answer if it asks for one.
	Ask Way = iota
	// AskMany: the principal publishes, and gets any number of answers.
	AskMany
	// Hear: the principal subscribes.
	Hear
)

// Grant lets a principal use one subject of the platform's account.
type Grant struct {
	Way Way
	// Subject is the platform's, and Local the principal's name for it; the same when it is empty.
	Subject, Local string
}
