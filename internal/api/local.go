package api

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// A listener on this machine alone is still within reach of every web page that a browser here has open: a page may
// send requests to it, and a name that its owner points at 127.0.0.1 makes the answers readable too. Neither gets past
// these.

// checkLocal refuses what a loopback listener must not answer.
func checkLocal(r *http.Request) *Problem {
	if !IsLoopbackHost(r.Host) {
		return newProblem(http.StatusForbidden, "Host",
			"this server is for its own machine: ask for localhost, 127.0.0.1 or [::1]")
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !IsLoopbackHost(u.Host) {
			return newProblem(http.StatusForbidden, "Origin", "this server answers no page of another site")
		}
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return newProblem(http.StatusForbidden, "Sec-Fetch-Site", "this server answers no page of another site")
	}
	return nil
}

// otherOrigin reports whether a request is of a page that another server has sent: one on another port of this machine
// is of the same site, and may send anything that forms can.
func otherOrigin(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	return false
}

// IsLoopbackHost reports whether HOST or HOST:PORT names this machine and nothing that others decide: a loopback
// address, or localhost.
func IsLoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
