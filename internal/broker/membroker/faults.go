package membroker

type partyFault struct{ cut, deaf bool }

func (*conn) shape(*outgoing) bool { return true }
