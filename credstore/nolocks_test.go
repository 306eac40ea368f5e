package credstore_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
)

// On a file system without kernel locks the older rules must do: the scope is
// the store, lock files carry no mark, and one exchange is still one.
func TestWithoutKernelLocksTheOlderRulesServe(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOLCK, unix.EOPNOTSUPP, unix.ENOSYS} {
		t.Run(errno.Error(), func(t *testing.T) {
			noLocks := func() durable.Disk {
				s := &steps{fail: func(s durable.Step) error {
					if s.Op == "flock" {
						return errno
					}
					return nil
				}}
				return s.disk()
			}
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			a := &authority{}
			answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil })
			a.answer = answer
			type result struct {
				token string
				err   error
			}
			results := make(chan result, 4)
			call := func(staged chan struct{}) {
				first := true
				s := open(t, credstore.Config{Dir: dir, Disk: noLocks(), Stage: func(text string) {
					if staged != nil && first && strings.HasPrefix(text, "waiting") {
						first = false
						close(staged)
					}
				}})
				src := sourceOf(t, s, box, a)
				go func() { token, err := get(src, credstore.Request{}); results <- result{token, err} }()
			}
			call(nil)
			<-arrived
			names := namesIn(t, dir)
			for _, lock := range []string{"locks/box.lock", "remote-credentials.json.lock"} {
				if !slices.Contains(names, lock) {
					t.Errorf("%s is not held: %q", lock, names)
				} else if strings.Contains(bytesOf(t, filepath.Join(dir, lock)), "guarded") {
					t.Errorf("%s carries a mark that no kernel stands for", lock)
				}
			}
			for range 3 {
				staged := make(chan struct{})
				call(staged)
				<-staged
			}
			close(proceed)
			for range 4 {
				if r := <-results; r.token != "A-new-1" || r.err != nil {
					t.Errorf("got %q, %v", r.token, r.err)
				}
			}
			mustHaveSent(t, a, "R0")
			for _, name := range namesIn(t, dir) {
				if strings.HasSuffix(name, ".lock") {
					t.Errorf("%s was left", name)
				}
			}
		})
	}
}

// A lock file without a mark is broken by age alone, after a look that is
// long enough, and not behind the back of a living process.
func TestALockFileOfAnotherProgramIsBrokenByAgeAlone(t *testing.T) {
	const staleAfter = 300 * time.Millisecond
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	lock := filepath.Join(dir, "remote-credentials.json.lock")
	putBytes(t, lock, []byte("0a1b2c3d"))
	a := &authority{}
	began := time.Now()
	s := open(t, credstore.Config{Dir: dir, StaleAfter: staleAfter})
	mustGive(t, sourceOf(t, s, box, a), credstore.Request{}, "A-new-1")
	if waited := time.Since(began); waited < staleAfter*9/10 {
		t.Errorf("it was broken after %s", waited)
	}
	mustHaveSent(t, a, "R0")
}
