//go:build linux

package conformance_test

import (
	"os"
	"testing"

	"github.com/spendonce/spendonce/internal/conformance"
)

func TestABrokerThatKeepsTheRulesPassesEveryCheck(t *testing.T) {
	report, err := conformance.Run(t.Context(), conformance.Config{Socket: serve(t, ""), Actor: actor(), Quick: testing.Short()})
	if err != nil {
		t.Fatal(err)
	}
	if broken := report.Broken(); len(broken) > 0 {
		broken.Table(os.Stderr)
		t.Errorf("%d checks do not hold", len(broken))
	}
}
