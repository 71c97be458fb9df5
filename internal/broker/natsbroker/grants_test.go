package natsbroker

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
)

func TestGrants(t *testing.T) {
	for _, p := range []access.Principal{{Role: access.Worker, Name: broker.NoPool}, {Role: access.Worker, Name: "*"},
		{Role: access.Agent, Name: ">"}, {Role: access.Agent}, {Role: access.Operator}, {Role: "other", Name: "a"}} {
		if got := Grants(p); len(got) > 0 {
			t.Errorf("%q %q is granted %v; want nothing", p.Role, p.Name, got)
		}
	}
	exports := Exports()
	for i, e := range exports {
		for j, o := range exports {
			if i != j && e.Way == o.Way && covered(e.Subject, o.Subject) {
				t.Errorf("the export %s has another one in it: %s", e.Subject, o.Subject)
			}
		}
	}
	for _, p := range []access.Principal{{Role: access.Worker, Name: "pool"},
		{Role: access.Agent, Name: "an=20agent"}} {
		grants := Grants(p)
		if len(grants) < 5 {
			t.Fatalf("%s is granted %d subjects", p, len(grants))
		}
		for _, g := range grants {
			offered := false
			for _, e := range exports {
				offered = offered || e.Way == g.Way && covered(e.Subject, g.Subject)
			}
			if !offered {
				t.Errorf("%s is granted %s, which nobody offers", p, g.Subject)
			}
			// No read of a stream, and no change of one.
			if strings.HasPrefix(g.Subject, "$JS.API.") &&
				!strings.HasPrefix(g.Subject, "$JS.API.CONSUMER.MSG.NEXT.*.call_") ||
				strings.HasPrefix(g.Subject, "$KV.") || strings.HasPrefix(g.Subject, "$O.") ||
				strings.HasPrefix(g.Subject, "$SYS.") {
				t.Errorf("%s is granted %s", p, g.Subject)
			}
			// Every subject except broadcasts has the name in it.
			if !strings.Contains(g.Subject, p.Name) && g.Subject != subjectAbort && g.Subject != subjectRoom &&
				g.Subject != prefixTold+"*.*" {
				t.Errorf("%s is granted %s, which is not its own", p, g.Subject)
			}
		}
	}
}

func TestCovered(t *testing.T) {
	for _, c := range []struct {
		wide, narrow string
		want         bool
	}{
		{"a.*", "a.b", true}, {"a.*", "a.*", true}, {"a.b", "a.*", false}, {"a.>", "a.b.c", true}, {"a.>", "a.>", true},
		{"a.>", "a", false},
		{"a.*", "a.>", false}, {"a.*", "a.b.c", false}, {"a.b.*", "a.b", false}, {"*.b", "a.b", true},
	} {
		if got := covered(c.wide, c.narrow); got != c.want {
			t.Errorf("%s covers %s: %v", c.wide, c.narrow, got)
		}
	}
}
