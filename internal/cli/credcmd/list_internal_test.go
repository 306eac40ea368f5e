package credcmd

import (
	"testing"
	"time"
)

func TestTheListSaysHowFarAwayAnExpiryIs(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0:                               "in 0s",
		59 * time.Second:                "in 59s",
		time.Minute:                     "in 1m",
		59*time.Minute + 59*time.Second: "in 59m",
		time.Hour + 5*time.Minute:       "in 1h05m",
		47*time.Hour + 59*time.Minute:   "in 47h59m",
		48 * time.Hour:                  "in 2d",
		9000 * time.Hour:                "in 375d",
		-time.Second:                    "1s ago",
		-3 * time.Hour:                  "3h00m ago",
		-72 * time.Hour:                 "3d ago",
	} {
		if got := relative(now.Add(d), now); got != want {
			t.Errorf("%s away is %q, want %q", d, got, want)
		}
	}
}
