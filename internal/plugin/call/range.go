package call

// Range is where addresses are, compared with the ranges from which a pool's plugin allocates now. It
// is empty if they are inside, or if the ranges are not known.
type Range string

const (
	// RangeOutside: an address is outside. Another node may have it.
	RangeOutside Range = "outside"
	// RangeUnconfigured: the pool has no CNI configuration now.
	RangeUnconfigured Range = "unconfigured"
)
