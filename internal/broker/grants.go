package broker

import (
	"strings"

	"github.com/toolyard/toolyard/internal/access"
)

// own stands in the table for the name of the principal: the agent, or the pool.
const own = "{own}"

// grants is the table: what each role may use of the platform's subjects. Dispatchers and operators use all of them. There
// is no read of a stream in it, and no change of one.
var grants = []struct {
	role access.Role
	way  access.Way
	// subject is the platform's, with own in it. local is what the principal calls it; the same when empty.
	subject, local string
	why            string
}{
	{access.Agent, access.Ask, prefixBatch + own + ".*", "", "hands in batches"},
	{access.Agent, access.Ask, prefixWake + own + ".*", "", "wakes its parked batches"},
	{access.Agent, access.Ask, prefixEvent + own + ".*." + noPool + ".input", "", "appends calls to open batches, and closes them"},
	{access.Agent, access.Ask, prefixEvent + own + ".*." + noPool + ".control", "", "cancels"},
	{access.Agent, access.Hear, prefixLiveReply + own + ".>", "", "hears its results"},
	{access.Agent, access.Hear, prefixLiveEvent + own + ".>", "", "hears what happens in its batches"},
	{access.Agent, access.Hear, prefixProgress + own + ".>", "", "hears how its calls go on"},
}

// Grants are what a principal may use of the platform's subjects, by the table. Those of the platform itself need none.
func Grants(p access.Principal) []access.Grant {
	var out []access.Grant
	for _, g := range grants {
		if g.role == p.Role {
			out = append(out, access.Grant{Way: g.way, Subject: strings.ReplaceAll(g.subject, own, p.Name), Local: strings.ReplaceAll(g.local, own, p.Name)})
		}
	}
	return out
}

// Exports are what the platform offers: all that the table grants to anybody.
func Exports() []access.Grant {
	var out []access.Grant
	for _, g := range grants {
		out = append(out, access.Grant{Way: g.way, Subject: strings.ReplaceAll(g.subject, own, "*")})
	}
	return out
}
