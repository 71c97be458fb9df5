package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/natsd"
)

// reachWarn is how long before its end something is warned about without which no new connection to NATS is made. A
// cluster's certificates often run out together, and someone has to copy new ones to each node. What is valid for a
// short time only is warned about in the last quarter of it: something renews it by itself.
const reachWarn = 30 * 24 * time.Hour

// end is when something is valid no longer, without which no new connection to NATS is made.
type end struct {
	what        string
	from, until time.Time
}

// near reports whether the end is to be warned about now.
func (e *end) near(now time.Time) bool {
	return !e.until.IsZero() && e.until.Sub(now) < min(reachWarn, e.until.Sub(e.from)/4)
}

// WarnOfEnds logs, now and once a day until ctx ends, what runs out soon without which no new connection to NATS is
// made: certificates of the server and of those that have signed it, the client's own one, and the credentials. The
// connection that is there stays, so nothing else tells before it is lost.
func (r *Reach) WarnOfEnds(ctx context.Context, nc *nats.Conn, url string, p access.Principal, log *slog.Logger) {
	tick := time.NewTicker(certificateWarnAgain)
	defer tick.Stop()
	for {
		r.warnOfEnds(nc, url, p, time.Now(), log)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *Reach) warnOfEnds(nc *nats.Conn, url string, p access.Principal, now time.Time, log *slog.Logger) {
	ends := append(r.ownEnds(url, p), r.serverEnds(nc, url, p, now, log)...)
	for _, e := range ends {
		if !e.near(now) {
			continue
		}
		text := "what a connection to NATS needs runs out soon: renew it"
		if !now.Before(e.until) {
			text = "what a connection to NATS needs has run out: renew it"
		}
		log.Warn(text, "what", e.what, "until", e.until)
	}
}

// ownEnds are those of what the client shows a server. What cannot be read is said when it is shown.
func (r *Reach) ownEnds(url string, p access.Principal) (ends []end) {
	if r.Cert != "" {
		if pair, err := tls.LoadX509KeyPair(r.Cert, r.Key); err == nil {
			ends = append(ends, end{"the certificate in " + r.Cert, pair.Leaf.NotBefore, pair.Leaf.NotAfter})
		}
	}
	if file, _, err := r.Shown(url, p); err == nil && r.Context == "" && r.NKey == "" && file != "" {
		if have, err := natsd.ReadCreds(file); err == nil {
			ends = append(ends, end{"the credentials in " + file, have.Issued, have.Expires})
		}
	}
	return ends
}

// serverEnds are those of the server's certificate and of those that have signed it. A server may show another one by
// now than when the connection was made: before one is warned about, a new connection says which.
func (r *Reach) serverEnds(nc *nats.Conn, url string, p access.Principal, now time.Time, log *slog.Logger) []end {
	ends := shownBy(nc)
	for _, e := range ends {
		if !e.near(now) {
			continue
		}
		again, err := r.Connect(url, p, "toolyard certificates", slog.New(slog.DiscardHandler))
		if err == nil {
			defer again.Close()
			return shownBy(again)
		}
		if Refused(err) {
			log.Warn("a new connection to NATS would not be made", "error", err)
			return nil
		}
	}
	return ends
}

// shownBy are the ends of the certificates that a server has shown, and of those that have signed it.
func shownBy(nc *nats.Conn) (ends []end) {
	state, err := nc.TLSConnectionState()
	if err != nil { // it has no TLS, or is lost
		return nil
	}
	for _, c := range Chain(&state) {
		ends = append(ends, end{"the certificate " + names(c) + " of the NATS server", c.NotBefore, c.NotAfter})
	}
	return ends
}

// Chain is a server's certificate and those that have signed it, as far as is known.
func Chain(state *tls.ConnectionState) []*x509.Certificate {
	if len(state.VerifiedChains) > 0 {
		return state.VerifiedChains[0]
	}
	return state.PeerCertificates
}
