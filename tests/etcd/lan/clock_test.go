//go:build linux

package lan_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/etcd/lan"
)

func TestTheClockOfAHostIsItsOwn(t *testing.T) {
	l := lan.New(t, 1)
	for _, ahead := range []int64{0, 3600, -86400} {
		l.Hosts[0].SetClock(time.Duration(ahead) * time.Second)
		for _, program := range []string{os.Args[0], "date"} {
			before := time.Now().Unix()
			told := tell(t, l.Hosts[0], program)
			after := time.Now().Unix()
			if told < before+ahead || told > after+ahead {
				t.Errorf("%s: between %d and %d it was %d, ahead should be %d", program, before, after, told, ahead)
			}
		}
	}
}

// tell is the time that a program prints.
func tell(t *testing.T, h *lan.Host, program string) int64 {
	t.Helper()
	cmd := exec.Command(program, "+%s")
	var out strings.Builder
	cmd.Env = append(os.Environ(), part+"=clock")
	cmd.Stdout = &out
	if err := h.Run(cmd); err != nil {
		t.Fatal(err)
	}
	told, err := strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return told
}
