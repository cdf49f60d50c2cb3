package uninstall

import (
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// A clock that was set back does not extend the time of a late DEL.
func TestLateUntil(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		late attachment.LateDel
		want time.Time
	}{
		{attachment.LateDel{}, time.Time{}},
		{attachment.LateDel{Until: now.Add(time.Minute), Seconds: 3600}, now.Add(time.Minute)},
		{attachment.LateDel{Until: now.Add(24 * time.Hour), Seconds: 60}, now.Add(time.Minute)},
	} {
		got := lateUntil(tt.late, now)
		check.True(t, got.Equal(tt.want), "%+v: %v; want %v", tt.late, got, tt.want)
	}
}
