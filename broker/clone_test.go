//go:build linux

package broker_test

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/proctest"
)

// rootOrders are those that only root can obey.
var rootOrders = map[string]func(order) (reply, error){
	"clone": func(o order) (reply, error) { // a child with this pid
		pid, err := proctest.Self(o.PID, []string{"actor"}, actorEnvironment(os.Getenv(lineVariable)))
		return reply{PID: pid}, err
	},
	"become": func(o order) (reply, error) { // another user
		if err := unix.Setresgid(o.N, o.N, o.N); err != nil {
			return reply{}, err
		}
		return reply{}, unix.Setresuid(o.N, o.N, o.N)
	},
}
