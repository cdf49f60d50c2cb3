# Changes the patches of v1.20 to those of v1.19 (generate.sh): sources and context.
# IPs are net.IP there.
s/netip\.MustParseAddr(/net.ParseIP(/g
s/net\.IP(result\.IP\.AsSlice())\.To16()/result.IP/g
s/iputil\.AddrFromIP(\([a-zA-Z0-9]*\))/\1/g
s/netip\.Addr\b/net.IP/g
s/ip, err := netip\.ParseAddr(addr)/ip := net.ParseIP(addr)/
s/if err != nil || DeriveFamily(ip)/if ip == nil || DeriveFamily(ip)/
# Their package is imported once.
/^+	"net"$/d
s/^\([ +]\)	"net\/netip"$/\1	"net"/
# Its generator of the API ends these comments without a period.
s/^\([ +]\/\/ \(With\|Set\)[A-Za-z]* adds the .* params\)\.$/\1/
# Another import follows there.
/^+	"github.com\/cilium\/cilium\/daemon\/k8s"$/{
n
s/^ 	"github.com\/cilium\/cilium\/pkg\/common"$/ 	"github.com\/cilium\/cilium\/pkg\/byteorder"/
}
