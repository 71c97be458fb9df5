package membroker

type partyFault struct{ cut, deaf bool }

type streamFault struct {
	stalled, leaderless bool
	lag                 int
}

func (*conn) shape(*outgoing) bool { return true }
