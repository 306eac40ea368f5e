package credstore_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/keyringtest"
)

// Everything that holds over a store in plain holds over a sealed one: the
// whole suite is run again, as a process of its own, on files that are sealed
// with age, and on files whose key is in a real keyring. It is called a storm
// for the storms in it: what goes by that name is run in plain binaries too,
// with all its processes, kills and stops.
func TestStormAndSuitesHoldOverSealedStores(t *testing.T) {
	if os.Getenv(formVariable) != "" {
		return // this is that process
	}
	for _, form := range []string{keys.KindAge, keys.KindKeyring} {
		t.Run(form, func(t *testing.T) {
			env := []string{formVariable + "=" + form, identityVariable + "=" + identityFile(t)}
			if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
				env = append(env, "TMPDIR="+shm(t)) // what a real disk does was shown in plain
			}
			if form == keys.KindKeyring {
				keyringtest.Start(t)
			}
			everything := []string{"-test.run=.", "-test.short"}
			storm := []string{"-test.run=^TestStormOfExpiredTokens|^TestStormOfKillsAtEveryStepOfA(Refresh|Login)$"}
			switch {
			case os.Getenv("SPENDONCE_SOAK") == "1":
				everything = everything[:1]
			case raced: // the plain run does the rest
				everything = []string{"-test.run=TestStormOfExpired|TestStormOfOne|TestStormOfTokens|TestWhoever|TestRandom|TestInspect", "-test.short"}
				storm = nil
			case testing.Short():
				everything, storm = []string{"-test.run=TestStorm|TestNoFaultOfTheDiskHalvesAStaticWrite", "-test.short"}, nil
			}
			for _, args := range [][]string{everything, storm} {
				if args != nil {
					again(t, env, args)
				}
			}
		})
	}
}

// parentVariable tells a run of the suite that it is another test's, and ends
// with that one, also if that is killed: then the pipe at its standard input
// closes.
const parentVariable = "CREDSTORE_TEST_PARENT"

func endWithParent() {
	if os.Getenv(parentVariable) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
	}
}

// again runs this test binary.
func again(t *testing.T, env, args []string) {
	t.Helper()
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-10*time.Second))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, os.Args[0], append(args, "-test.v")...)
	cmd.Env = append(os.Environ(), append(env, parentVariable+"=1")...)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	out, err := cmd.CombinedOutput()
	passed := strings.Count(string(out), "\n--- PASS: ")
	if err != nil || passed == 0 {
		t.Errorf("%q: %v\n%s", args, err, failures(string(out)))
	}
	t.Logf("%q: %d tests passed", args, passed)
}

// failures is what such a run says without what went well.
func failures(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "--- PASS") && !strings.HasPrefix(line, "=== ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// identityFile is a new file with an age identity.
func identityFile(t *testing.T) string {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	path := shm(t) + "/identity.txt"
	putBytes(t, path, []byte(id.String()+"\n"))
	if err := os.Chmod(path, 0o644); err != nil { // tests as another user read it too
		t.Fatal(err)
	}
	return path
}

func shm(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "credstore") //nolint:usetesting // the memory, not the disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // tests as another user go there too
		t.Fatal(err)
	}
	return dir
}
