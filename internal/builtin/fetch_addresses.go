package builtin

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/toolyard/toolyard/internal/sandbox"
)

// allowed is what an operator lets web_fetch reach beside public addresses. The zero value allows nothing more.
type allowed struct {
	prefixes []netip.Prefix
	hosts    []string // lower case; one that begins with a dot means every name under it
}

// parseAllowed reads [Options.AllowPrivateAddresses].
func parseAllowed(entries []string) (a allowed, err error) {
	for _, e := range entries {
		if p, err := netip.ParsePrefix(e); err == nil {
			a.prefixes = append(a.prefixes, p.Masked())
			continue
		}
		if ip, err := netip.ParseAddr(e); err == nil {
			a.prefixes = append(a.prefixes, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			continue
		}
		if e == "" || e == "." || strings.ContainsAny(e, "/: \t*") {
			return a,
				fmt.Errorf("%q is no address (127.0.0.1), prefix (10.0.0.0/8) or host name (wiki.internal, .internal)",
					e)
		}
		a.hosts = append(a.hosts, canonicalHost(e))
	}
	return a, nil
}

// canonicalHost is the form in which host names are compared: lower case, without the final dot.
func canonicalHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// host reports whether a name is allowed with any address.
func (a allowed) host(name string) bool {
	name = canonicalHost(name)
	for _, h := range a.hosts {
		if name == h || h[0] == '.' && strings.HasSuffix(name, h) {
			return true
		}
	}
	return false
}

// address reports whether an address may be dialed for a host.
func (a allowed) address(host string, ip netip.Addr) bool {
	if a.host(host) {
		return true
	}
	for _, p := range a.prefixes {
		if p.Contains(ip) || p.Contains(ip.Unmap()) {
			return true
		}
	}
	return sandbox.PublicAddress(ip)
}
