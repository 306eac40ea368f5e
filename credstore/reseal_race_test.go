package credstore_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/sealed"
)

// Who logs out during an exchange takes the target from among those for which
// a change of the key waits: the exchange ends over files with another key,
// while its own is gone.
func TestAKeyThatChangesUnderAnExchangeAfterALogout(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	refused := failing(credstore.Failure{Class: credstore.ClassTemporary, Status: 503, Text: "busy"})
	for name, tt := range map[string]struct {
		login  string // the refresh token of a new login; "": none
		access string // its access token
		fails  bool
		want   string // the token that the caller gets
	}{
		"an answer, and nobody signed in again":    {want: "A-new-1"},
		"an answer, and somebody signed in again":  {login: "R-other", access: "A-login", want: "A-new-1"},
		"a failure, and somebody signed in again":  {login: "R-other", access: "A-login", fails: true, want: "A-login"},
		"a failure, and the same session is there": {login: oldRefresh, access: oldAccess, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, k := sealGround(t), &memoryKeys{kept: map[string]sealed.Key{}}
			mustReseal(t, dir, k, credstore.Encrypt)
			a := &authority{}
			then := func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil }
			if tt.fails {
				then = refused
			}
			answer, arrived, proceed := held(then)
			a.answer = answer
			var told warnings
			src := sourceWith(t, open(t, credstore.Config{Dir: dir, Keys: k, Warn: told.warn}), credstore.SourceConfig{Target: box, Exchange: a.exchange})
			type result struct {
				token string
				err   error
			}
			got := make(chan result, 1)
			go func() {
				token, err := get(src, credstore.Request{})
				got <- result{token, err}
			}()
			<-arrived
			other := open(t, credstore.Config{Dir: dir, Keys: k})
			if err := onlyError(other.Remove(t.Context(), box)); err != nil {
				t.Fatal(err)
			}
			mustReseal(t, dir, k, credstore.Rekey)
			if tt.login != "" {
				if err := onlyError(other.Login(t.Context(), box, signedIn(tt.login, tt.access))); err != nil {
					t.Fatal(err)
				}
			}
			close(proceed)
			if r := <-got; r.token != tt.want || (r.err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", r.token, r.err, tt.want)
			}
			if tt.fails && tt.login == oldRefresh { // what everybody else is to know
				if s := string(opened(t, sessionPath(dir, box), sessionRole(box), k)); !strings.Contains(s, "503") {
					t.Errorf("the failure is not recorded: %s", s)
				}
			}
			if told.all() != "" {
				t.Errorf("warned: %s", told.all())
			}
			// All that is there opens with keys that are still kept.
			fresh := open(t, credstore.Config{Dir: dir, Keys: k})
			r := fresh.Inspect(nil)
			for _, target := range r.Targets {
				if target.Err != nil || target.Target == box && target.Stored != (tt.login != "") {
					t.Errorf("afterwards: %+v", target)
				}
			}
			if r.StoreErr != nil {
				t.Error(r.StoreErr)
			}
		})
	}
}

// Nobody gives up on a target whose lock is held while a change of form waits
// for the next one.
func TestAChangeOfFormShowsThatItIsAliveWhileItWaits(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), ageKeys(t)
	const last = "zebra"
	putStore(t, dir, map[string]record{box: oidc(oldRefresh, oldAccess, in(-3600e9)), last: oidc("R-last", "A-last", in(-3600e9))})
	a := &authority{}
	answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil })
	a.answer = answer
	got := make(chan error, 1)
	src := sourceOf(t, open(t, credstore.Config{Dir: dir, Keys: k}), last, a)
	go func() { got <- onlyError(get(src, credstore.Request{})) }()
	<-arrived
	shown := make(chan struct{}, 100)
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op == "record" && strings.HasSuffix(s.Path, "/"+box+".lock.guard") {
			select {
			case shown <- struct{}{}:
			default:
			}
		}
		return do()
	}}
	resealed := make(chan error, 1)
	s := open(t, credstore.Config{Dir: dir, Keys: k, Disk: disk, StaleAfter: 2e9})
	go func() { resealed <- onlyError(s.Reseal(t.Context(), credstore.Reseal{Do: credstore.Encrypt})) }()
	for range 5 { // the first is its acquisition
		select {
		case <-shown:
		case err := <-resealed:
			t.Errorf("it ended without a sign of life: %v", err)
			resealed <- nil
			close(shown)
		}
	}
	close(proceed)
	for _, end := range []chan error{got, resealed} {
		if err := <-end; err != nil {
			t.Error(err)
		}
	}
}

// Notes are a file that anybody may edit, and newer versions may write.
func TestNotesThatAreNotOursDoNoHarm(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), &memoryKeys{kept: map[string]sealed.Key{}}
	notes := storePath(dir) + ".keys"
	const strange = "dropped abc\nkey \nfuture thing\n"
	id := sealed.NewKey().ID()
	putBytes(t, notes, []byte(strange+"dropped "+id+"\n"))
	// A program without a keyring leaves what it cannot remove.
	if err := onlyError(open(t, credstore.Config{Dir: dir}).Reseal(t.Context(), credstore.Reseal{Do: credstore.Decrypt})); err != nil {
		t.Error(err)
	}
	if got := bytesOf(t, notes); !strings.Contains(got, id) || !strings.Contains(got, strange) {
		t.Errorf("the notes are %q", got)
	}
	r := mustReseal(t, dir, k, credstore.Encrypt)
	if got := bytesOf(t, notes); r.DropErr != nil || r.Dropped != 1 || strings.Contains(got, id) || !strings.Contains(got, strange) {
		t.Errorf("%+v, and the notes are %q", r, got)
	}
}

// Who looks into a backup, or decrypts a copy, must not lock the original.
func TestAChangeOfFormOfACopyKeepsTheKeysOfTheOriginal(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"of all of it":      func(*testing.T, string) {},
		"without the notes": func(t *testing.T, dir string) { must(t, os.Remove(storePath(dir)+".keys")) },
	} {
		for _, do := range []credstore.Sealing{credstore.Decrypt, credstore.Rekey} {
			t.Run(name+", "+string(do), func(t *testing.T) {
				dir, k := sealGround(t), &memoryKeys{kept: map[string]sealed.Key{}}
				mustReseal(t, dir, k, credstore.Encrypt)
				backup := t.TempDir()
				must(t, os.CopyFS(backup, os.DirFS(dir)))
				must(t, os.Chmod(backup, 0o700))
				spoil(t, backup)
				mustReseal(t, backup, k, do)
				unharmed(t, backup, k)
				unharmed(t, dir, k)
				// And the original still removes what it replaces.
				mustReseal(t, dir, k, credstore.Rekey)
				if r := mustReseal(t, dir, k, credstore.Decrypt); r.Dropped != 1 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
