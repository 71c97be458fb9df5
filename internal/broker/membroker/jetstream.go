package membroker

type jetStream struct{ down bool }

func newJetStream(*Server) *jetStream        { return &jetStream{} }
func (*jetStream) take(*conn, *message) bool { return false }
func (*jetStream) interestCame()             {}
func (*jetStream) interestGone()             {}
