package dispatchercmd

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/recall"
	"github.com/toolyard/toolyard/internal/report"
)

// period says which batches of history are meant.
type period struct {
	agent        string
	since, until string
	of           recall.Period // what they say
}

func (p *period) add(f *pflag.FlagSet) {
	f.StringVar(&p.agent, "agent", "", "only batches of this agent")
	f.StringVar(&p.since, "since", "",
		"only batches that were submitted at this `TIME` or later, or at most so long ago")
	f.StringVar(&p.until, "until", "", "only batches that were submitted before this `TIME`, or longer ago")
}

func (p *period) check(now time.Time) (err error) {
	if p.agent != "" {
		if err := toolyard.CheckName("--agent", p.agent); err != nil {
			return err
		}
	}
	p.of.Agent = toolyard.Agent(p.agent)
	p.of.Since, p.of.Until, err = report.Between("--", p.since, p.until, now)
	return err
}
