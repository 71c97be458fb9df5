package sandbox

import "net/netip"

// notPublic are the unicast ranges that do not lead to the public internet, from IANA's special-purpose registries. It
// includes ranges that map or tunnel IPv4 addresses, since these could lead to any of the others.
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

// globalUnicast is the only IPv6 range that is routed publicly. Outside it are loopback, link-local, unique local,
// multicast, IPv4-mapped and NAT64 addresses.
var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, t := range texts {
		ps = append(ps, netip.MustParsePrefix(t))
	}
	return ps
}

// PublicAddress reports whether an address belongs to the public internet. An IPv4 address mapped into IPv6 does not.
func PublicAddress(ip netip.Addr) bool {
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
