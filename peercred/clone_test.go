//go:build linux

package peercred_test

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/spendonce/spendonce/internal/proctest"
)

// aLine is what a peer says that only has to be there.
const aLine = "x\n"

// cloneMember makes a member of the family with this pid.
func cloneMember(pid int, line string) (int, error) {
	return proctest.Self(pid, []string{"kin"}, append(environment("kin"), lineVariable+"="+line))
}

// clone obeys the orders that end in a process with a pid of the test's
// choice, which takes root.
func (*kinsman) clone(order, arg string) (string, error) {
	first, path, _ := strings.Cut(arg, " ")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return "", err
	}
	switch order {
	case "clone": // a member with this pid
		pid, err = cloneMember(pid, os.Getenv(lineVariable))
	case "clone-idle":
		pid, err = proctest.Idle(pid)
	case "clone-caller": // one with this pid that calls at a path
		pid, err = proctest.Caller(pid, path, aLine)
	case "clone-pair":
		pid, err = proctest.Pair(path, aLine)
	default:
		err = errors.New("no such order: " + order)
	}
	return strconv.Itoa(pid), err
}
