package a2a

import "net/netip"

// special are the networks that are not the public one, or that lead into
// others, beyond those that netip knows by name. Where IPv6 is concerned,
// 2000::/3 is what has been given out; the rest is refused as a whole.
var special = prefixes(
	"0.0.0.0/8",       // this network
	"100.64.0.0/10",   // behind a carrier's NAT
	"192.0.0.0/24",    // of the IETF
	"192.0.2.0/24",    // for documentation, as the next ones
	"192.88.99.0/24",  // relays of 6to4
	"198.18.0.0/15",   // for benchmarks
	"198.51.100.0/24", //
	"203.0.113.0/24",  //
	"240.0.0.0/4",     // reserved, and the broadcast address
	"2001::/23",       // of the IETF; Teredo above all, which holds an IPv4 address
	"2001:db8::/32",   // for documentation
	"2002::/16",       // 6to4, which holds an IPv4 address
	"3fff::/20",       // for documentation
)

// given is what has been given out of IPv6. NAT64, 64:ff9b::/96 and
// 64:ff9b:1::/48, is outside of it, as are mapped and compatible addresses.
var given = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// public reports whether ip is an address of the public network, and of nothing
// that stands for another one (C33).
func public(ip netip.Addr) bool {
	if !ip.IsValid() || ip.Zone() != "" || !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Is6() && !given.Contains(ip) {
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}
