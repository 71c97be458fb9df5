package api

import (
	"cmp"
	"context"
	"time"

	"github.com/toolyard/toolyard/internal/recall"
	"github.com/toolyard/toolyard/internal/report"
)

type reportInput struct {
	Agent string `query:"agent" doc:"Only batches of this agent."`
	Since string `query:"since" doc:"Only batches that were submitted at this time or later, or at most so long ago, as in 36h. Left out: 24 hours before until."`
	Until string `query:"until" doc:"Only batches that were submitted before this time, or longer ago. Left out: now."`
}

// report adds up batches: the newest of a period, as many as there is time for. A caller gets what it may list.
func (s *Server) report(ctx context.Context, x *exchange, in *reportInput) (*struct{ Body report.Report }, error) {
	sum := recall.Sum{Most: MaxReportBatches}
	var err error
	if sum.Agent, err = x.who.listed(in.Agent); err != nil {
		return nil, err
	}
	now := time.Now()
	if sum.Since, sum.Until, err = report.Between("", in.Since, in.Until, now); err != nil {
		return nil, err
	}
	if in.Since == "" {
		sum.Since = cmp.Or(sum.Until, now).Add(-ReportPeriod)
	}
	leave, err := enter(s.reports, x.who)
	if err != nil {
		return nil, err
	}
	defer leave()
	alive, end := s.alive(x) // a server that stops answers with what it has
	defer end()
	enough, cancel := context.WithTimeout(alive, reportTime)
	defer cancel()
	sum.Enough = enough.Done()
	out, err := recall.AddUp(ctx, recall.InTurns(s.cfg.Reader), sum)
	return &struct{ Body report.Report }{out}, err
}
