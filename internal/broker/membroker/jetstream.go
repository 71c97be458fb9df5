package membroker

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// jetStream is the streams of a server, and their API.
type jetStream struct {
	s       *Server
	streams []*stream // in the order of their names

	clustered  bool
	advisories int // so many were sent

	down bool // the server is stopped
	full bool // its disk is full
	// leaderless is that the cluster has no leader: nothing is made or deleted.
	leaderless bool
}

func newJetStream(s *Server) *jetStream { return &jetStream{s: s, clustered: s.opts.Clustered} }

// stream returns one by name, or nil.
func (js *jetStream) stream(name string) *stream {
	i, ok := js.find(name)
	if !ok {
		return nil
	}
	return js.streams[i]
}

func (js *jetStream) find(name string) (int, bool) {
	return slices.BinarySearchFunc(js.streams, name, func(st *stream, name string) int {
		return cmp.Compare(st.name(), name)
	})
}

const (
	prefixAPI    = "$JS.API."
	prefixDirect = "$JS.API.DIRECT.GET."
	prefixAck    = "$JS.ACK."
	prefixFlow   = "$JS.FC."
)

// take takes in a message that a client has published, and reports whether it was for JetStream.
func (js *jetStream) take(from *conn, m *message) bool {
	switch {
	case strings.HasPrefix(m.subject, prefixAck):
		return js.ack(m)
	case strings.HasPrefix(m.subject, prefixFlow):
		t := strings.Split(m.subject, ".")
		o := js.consumer(t, 2)
		if o != nil {
			o.flows(m.subject)
		}
		return o != nil
	case strings.HasPrefix(m.subject, prefixAPI):
		return js.api(from, m)
	}
	taken := false
	for _, st := range js.streams {
		if st.takes(m.subject) && (!st.fault.leaderless || st.fault.closed) {
			taken = true
			st.ingest(from, m)
		}
	}
	return taken
}

// consumer returns the consumer whose stream's name is a token of a subject, and whose own name is the next one; nil
// when there is none.
func (js *jetStream) consumer(tokens []string, i int) *consumer {
	if len(tokens) < i+2 {
		return nil
	}
	st := js.stream(tokens[i])
	if st == nil || st.fault.leaderless {
		return nil
	}
	return st.consumer(tokens[i+1])
}

// ack takes in what a client says of a delivery: $JS.ACK.<stream>.<consumer>.<delivery>.<sseq>.<dseq>.<time>.<left>
func (js *jetStream) ack(m *message) bool {
	t := strings.Split(m.subject, ".")
	o := js.consumer(t, 2)
	if o == nil || len(t) != 9 || o.cfg.AckPolicy == server.AckNone { // who wants no acks does not listen for any
		return false
	}
	var n [3]uint64
	for i := range n {
		n[i], _ = strconv.ParseUint(t[4+i], 10, 64) // one that is none stands for no message
	}
	o.answered(n[1], n[2], n[0], m)
	return true
}

// interestCame and interestGone are called when somebody has begun or ceased to listen.
func (js *jetStream) interestCame() { js.listen() }
func (js *jetStream) interestGone() { js.listen() }

func (js *jetStream) listen() {
	for _, st := range js.streams {
		for _, o := range slices.Clone(st.consumers) {
			o.listen()
		}
	}
}

// cluster is what the server says of where a stream is kept.
func (js *jetStream) cluster() *server.ClusterInfo {
	if !js.clustered {
		return nil
	}
	return &server.ClusterInfo{Name: serverName, Leader: serverName}
}
