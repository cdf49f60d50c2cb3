package doctor

// fewFree is the part of a range of which an alert warns, too (DelegatedIPAMRangeAlmostFull).
const fewFree = 0.1

// checkFreeAddresses checks that the ranges of a pool have free addresses. Nothing is known without a daemon, and of
// plugins whose ranges are unknown.
func checkFreeAddresses(_ *Observations, p pool, r *report) {
	const remedy = "release what no owner uses (`delegated-ipam list`, and the leases without an owner above), extend the range, or run fewer pods on this node"
	known := 0
	for _, a := range p.status.Addresses {
		if a.Total == nil || a.Free == nil {
			continue
		}
		known++
		switch {
		case *a.Free < 1:
			r.fail(remedy, "all %.0f %s addresses are used", *a.Total, a.Family)
		case *a.Free < fewFree**a.Total:
			r.warn(remedy, "%.0f of %.0f %s addresses are free", *a.Free, *a.Total, a.Family)
		}
	}
	if known > 0 && r.clean() {
		r.ok("at least a tenth of the addresses of each family is free")
	}
}
