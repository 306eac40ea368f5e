//go:build crash && linux

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Where /proc hides what is not dumpable, the commands that ask the broker let
// it see them; who does not is refused, and the doctor knows why.
func TestWhatProcHidesIsToldAndOurCommandsAreServed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts /proc, which takes root")
	}
	bin, err := binary()
	must(t, err)
	for _, c := range []struct {
		options string
		hidden  bool
	}{
		{"hidepid=0", false}, {"hidepid=1", true}, {"hidepid=2", true}, {"hidepid=4,gid=4711", true}, {"hidepid=2,gid=4711", false},
	} {
		t.Run(c.options, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "hide") //nolint:usetesting // its name has to be short, and the user must get there
			must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			must(t, os.Chown(dir, 4711, 4711))
			run := func(command string) (string, bool) {
				cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c",
					`mount -t proc -o "$1" proc /proc && exec setpriv --reuid 4711 --regid 4711 --clear-groups sh -c "$2"`, "sh", c.options, command)
				cmd.Dir = dir
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "BIN=" + bin}
				out, err := cmd.CombinedOutput()
				return string(out), err == nil
			}
			out, well := run(`exec "$BIN" doctor`)
			if says := strings.Contains(out, "note     /proc is mounted with hidepid="); says || !well { // nobody has used a broker yet
				t.Errorf("the doctor: %v\n%s", well, out)
			}
			out, well = run(`"$BIN" lease serve & broker=$!; trap 'kill $broker' EXIT
				while [ ! -S spendonce/broker.sock ]; do kill -0 $broker || exit 1; done
				"$BIN" lease run --no-start -- "$BIN" lease auth`)
			if !well {
				t.Errorf("a session: %v\n%s", well, out)
			}
			out, well = run(`exec "$BIN" doctor`)
			if says := strings.Contains(out, "note     /proc is mounted with hidepid="); says != c.hidden || !well {
				t.Errorf("the doctor of who has used a broker: %v\n%s", well, out)
			}
			if _, err := os.Stat(filepath.Join(dir, "spendonce")); err != nil {
				t.Errorf("no broker was there: %v", err)
			}
		})
	}
}
