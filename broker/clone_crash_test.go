//go:build crash && linux

package broker_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/proctest"
)

// another is a user who is not root, and whom nobody else is.
const another = 54321

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can choose a pid, a uid or a mount")
	}
}

// clone makes a child of a with the pid of a process that has ended.
func (a *actor) clone(pid int) *actor {
	a.t.Helper()
	a.tell(order{Do: "clone", PID: pid})
	return a.cast.meet(pid)
}

// clone makes a child of the test with such a pid.
func (c *cast) clone(pid int) *actor {
	c.t.Helper()
	if _, err := proctest.Self(pid, []string{"actor"}, actorEnvironment(c.path)); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		proctest.Reap(c.t, pid)
	})
	return c.meet(pid)
}
