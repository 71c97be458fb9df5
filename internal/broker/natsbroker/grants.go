package natsbroker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

// lanes in the table stands for each consumer of a pool, and routes for its class and lane.
const lanes, routes = "{lanes}", "{routes}"

// anyShard in the table stands for the first token of subjects of streams: ty, or ty and a number. No other subjects of
// the platform have the rest, and no other stream has consumers with the names of lanes.
const anyShard = "*."

// own in the table stands for the name of the principal: the agent, or the pool.
const own = "{own}"

// grants is the table of the platform's subjects that each role may use. Dispatchers and operators may use all of them.
// The table contains no access to read or change a stream.
var grants = []struct {
	role access.Role
	way  access.Way
	// subject is the platform's, with own in it. local is the principal's name for it; the same if it is empty.
	subject, local string
	why            string
}{
	{access.Agent, access.Ask, anyShard + "batch." + own + ".*", "", "hands in batches"},
	{access.Agent, access.Ask, anyShard + "wake." + own + ".*", "", "wakes its parked batches"},
	{access.Agent, access.Ask, anyShard + "event." + own + ".*." + broker.NoPool +
		".input", "", "appends calls to open batches, and closes them"},
	{access.Agent, access.Ask, anyShard + "event." + own + ".*." + broker.NoPool + ".control", "", "cancels"},
	{access.Agent, access.Hear, prefixLiveReply + own + ".>", "", "hears its results"},
	{access.Agent, access.Hear, prefixLiveEvent + own + ".>", "", "hears what happens in its batches"},
	{access.Agent, access.Hear, prefixProgress + own + ".>", "", "hears how its calls go on"},
	{access.Agent, access.Ask, subjectRoom, "", "asks why nothing is stored"},
	{access.Agent, access.AskMany, prefixGet + own + ".*", "", "asks for the replies of its batches"},
	{access.Agent, access.AskMany, prefixAsk + "agent." + own + ".*", prefixAsk +
		"*", "asks dispatchers for what stands in its batches"},

	{access.Worker, access.Ask, anyShard + "event.*.*." + own + ".*", "", "claims calls of its pool, and ends them"},
	{access.Worker, access.Ask, prefixTold + "*.*", prefixProgress + "*.*", "tells how calls go on"},
	{access.Worker, access.Ask, prefixBeat + own + ".*", "", "says that it lives"},
	{access.Worker, access.Ask, prefixAnswer + own + ".*", "", "answers what dispatchers ask its pool"},
	{access.Worker, access.Ask, "$JS.ACK.*." + lanes +
		".>", "", "acknowledges calls of its pool, and keeps them"},
	{access.Worker, access.AskMany, "$JS.API.CONSUMER.MSG.NEXT.*." + lanes, prefixNext +
		routes + ".*", "takes calls of its pool"},
	{access.Worker, access.AskMany, prefixAsk + "worker." + own + ".*", prefixAsk +
		"*", "asks dispatchers for what its calls need"},
	{access.Worker, access.Hear, subjectAbort, "", "hears which calls are to stop"},
	{access.Worker, access.Hear, prefixJudge + own, "", "is asked to judge inputs"},
	{access.Worker, access.Hear, prefixHolder + own + ".*", "", "is asked whether it has a call"},
}

// Grants returns the platform's subjects that a principal may use, according to the table. The platform itself needs
// none.
func Grants(p access.Principal) []access.Grant {
	if p.Check() != nil || p.Role == access.Worker && broker.CheckPool(toolyard.Pool(p.Name)) != nil {
		return nil
	}
	var out []access.Grant
	for _, g := range grants {
		switch {
		case g.role != p.Role:
		case strings.Contains(g.subject, lanes):
			for _, class := range toolyard.Classes {
				for lane := range broker.Lanes {
					out = append(out, access.Grant{
						Way: g.way, Subject: strings.ReplaceAll(g.subject, lanes,
							consumerCalls(batch.Route{Class: class, Pool: toolyard.Pool(p.Name)}, lane)),
						Local: strings.ReplaceAll(g.local, routes, string(class)+"."+strconv.Itoa(lane)),
					})
				}
			}
		default:
			out = append(out, access.Grant{Way: g.way, Subject: strings.ReplaceAll(g.subject, own, p.Name),
				Local: g.local})
		}
	}
	return out
}

// Exports returns the platform's exports: everything that the table grants to anyone.
func Exports() []access.Grant {
	var out []access.Grant
	for _, g := range grants {
		one := access.Grant{Way: g.way, Subject: strings.NewReplacer(own, "*", lanes, "*").Replace(g.subject)}
		within := func(wide, narrow access.Grant) bool {
			return wide.Way == narrow.Way && covered(wide.Subject, narrow.Subject)
		}
		if !slices.ContainsFunc(out, func(o access.Grant) bool { return within(o, one) }) {
			out = append(slices.DeleteFunc(out, func(o access.Grant) bool { return within(one, o) }), one)
		}
	}
	return out
}

// covered reports whether every subject that matches narrow matches wide.
func covered(wide, narrow string) bool {
	w, n := strings.Split(wide, "."), strings.Split(narrow, ".")
	for i, t := range w {
		if t == ">" {
			return len(n) > i
		}
		if i >= len(n) || n[i] == ">" || t != "*" && t != n[i] {
			return false
		}
	}
	return len(w) == len(n)
}
