package builtin

import (
	"fmt"
	"net/netip"
	"strings"
)

// allowed is what an operator lets web_fetch reach beside public addresses. The zero value allows nothing more.
type allowed struct {
	prefixes []netip.Prefix
	hosts    []string // lower case; one that begins with a dot stands for every name under it
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
			return a, fmt.Errorf("%q is no address (127.0.0.1), prefix (10.0.0.0/8) or host name (wiki.internal, .internal)", e)
		}
		a.hosts = append(a.hosts, canonicalHost(e))
	}
	return a, nil
}

// canonicalHost is a host name as it is compared: lower case, without the dot at the end.
func canonicalHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// host reports whether a name is allowed whatever address it has.
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
	return public(ip)
}

// notPublic are the ranges inside the unicast space that do not lead to the public internet, from the special-purpose
// registries of IANA. What maps or tunnels an IPv4 address is among them: it could lead to any of the others.
var notPublic = prefixes(
	"0.0.0.0/8",       // this network
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carrier-grade NAT
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local, with the metadata services of clouds
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/3",     // multicast, reserved, broadcast
	"2001::/23",       // protocol assignments, with Teredo
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4
	"3fff::/20",       // documentation
)

// globalUnicast is the one IPv6 range that is routed in public. Outside it are loopback, link-local, unique local,
// multicast, IPv4-mapped and NAT64 addresses.
var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, t := range texts {
		ps = append(ps, netip.MustParsePrefix(t))
	}
	return ps
}

// public reports whether an address is one of the public internet. An IPv4 address in IPv6 clothes is not.
func public(ip netip.Addr) bool {
	if !ip.IsValid() || ip.Zone() != "" || !ip.Is4() && !globalUnicast.Contains(ip) {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}
