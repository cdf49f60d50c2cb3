package doctor

import (
	"fmt"
	"net"
	"os"

	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// Place is from where one looks, compared with where the sidecar is.
type Place struct {
	// Known tells that the process behind the socket could be seen.
	Known bool
	// Peer is that process, PID 0 if it is in another PID namespace.
	Peer unixsock.Peer
	// UID is our own user.
	UID int
	// OtherFiles tells that it has another mount namespace than we.
	OtherFiles bool
}

// lookAtPlace asks the kernel who listens on a socket, if anybody does.
func lookAtPlace(socket string, served bool) Place {
	p := Place{UID: os.Geteuid()}
	if !served {
		return p
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return p // said of the sidecar
	}
	defer conn.Close()
	peer, err := unixsock.PeerOf(conn)
	if err != nil {
		return p
	}
	p.Known, p.Peer = true, peer
	if ours, err := os.Stat("/proc/self/ns/mnt"); err == nil {
		theirs, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", peer.PID))
		p.OtherFiles = err == nil && !os.SameFile(ours, theirs) // another user's cannot be seen
	}
	return p
}

// sameUser tells whether we are the sidecar's user, as far as that is known.
func (p Place) sameUser() bool { return !p.Known || p.Peer.UID == p.UID }

func (p Place) findings() []Finding {
	found := Finding{Check: CheckPlace, State: OK}
	switch {
	case !p.Known:
		found.Seen = fmt.Sprintf("doctor looks as user %d; where and as whom the sidecar runs could not be told", p.UID)
		return []Finding{found}
	case p.Peer.PID == 0, p.OtherFiles:
		found.State = Warning
		found.Seen = "the sidecar is in another container than doctor: the files that doctor sees need not be the sidecar's"
		found.Do = "run doctor in the sidecar's container (kubectl exec)"
	case !p.sameUser():
		found.State = Warning
		found.Seen = fmt.Sprintf("the sidecar (PID %d) runs as user %d and doctor as user %d: whether the sidecar may read and write its folders is not known", p.Peer.PID, p.Peer.UID, p.UID)
		found.Do = fmt.Sprintf("run doctor as user %d", p.Peer.UID)
	default:
		found.Seen = fmt.Sprintf("doctor sees the files of the sidecar (PID %d) as its user %d", p.Peer.PID, p.Peer.UID)
	}
	return []Finding{found}
}
