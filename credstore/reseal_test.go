package credstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/keyringtest"
	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

const clientSecret = "client-secret-55555555"

// sealGround is a store in plain, with what must never be seen of it: a
// session with a client's secret, a neighbour, and what a writer that died
// left behind.
func sealGround(t *testing.T) string {
	t.Helper()
	return sealGroundIn(t, t.TempDir())
}

func sealGroundIn(t *testing.T, below string) string {
	t.Helper()
	dir := sweepGroundIn(t, below)
	putSession(t, dir, box, session{
		"url": "https://rs.example", "loginId": "L-old", "x-session": "kept", "refreshToken": secret.New(oldRefresh).Fingerprint(),
		"pin": session{"tokenEndpoint": oldServer, "clientId": "cid", "clientSecret": clientSecret},
	})
	for _, name := range []string{".remote-credentials.json.AAAAAAAAAAAAAAAAAAAAAAAAAA.tmp", "sessions/.box.json.BBBBBBBBBBBBBBBBBBBBBBBBBB.tmp"} {
		putBytes(t, filepath.Join(dir, name), []byte(oldRefresh+clientSecret))
	}
	return dir
}

var sealCanaries = []canary.Value{
	canary.Of("refresh token", oldRefresh), canary.Of("access token", oldAccess),
	canary.Of("static token", "static-neighbour"), canary.Of("client secret", clientSecret),
}

// ageKeys are keys with an identity of their own.
func ageKeys(t *testing.T) *keys.Keys {
	t.Helper()
	return keysWith(keys.Config{Key: "age:" + identityFile(t)})
}

func keyringKeys() *keys.Keys { return keysWith(keys.Config{Key: keys.KindKeyring}) }

func mustReseal(t *testing.T, dir string, k credstore.Keys, do credstore.Sealing) credstore.Resealed {
	t.Helper()
	r, err := open(t, credstore.Config{Dir: dir, Keys: k, StaleAfter: sweepStale}).Reseal(t.Context(), credstore.Reseal{Do: do})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refOf is the key that a file names; the zero value if it is in plain.
func refOf(t *testing.T, path string) sealed.Ref {
	t.Helper()
	b := []byte(bytesOf(t, path))
	if !sealed.Is(b) {
		return sealed.Ref{}
	}
	f, err := sealed.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return f.Ref
}

// allUnder fails the test unless both files name the same key of that kind,
// and returns its id.
func allUnder(t *testing.T, dir, kind string) string {
	t.Helper()
	store, session := refOf(t, storePath(dir)), refOf(t, sessionPath(dir, box))
	if store.Kind != kind || session.Kind != kind || store.ID != session.ID {
		t.Errorf("the store is under %q %q, the session file under %q %q, want one key of the kind %q", store.Kind, store.ID, session.Kind, session.ID, kind)
	}
	return store.ID
}

// unharmed fails the test unless everything that was in the ground is there.
func unharmed(t *testing.T, dir string, k credstore.Keys) {
	t.Helper()
	var raw map[string]any
	decode(t, opened(t, storePath(dir), storeRole, k), &raw)
	r, _ := raw[box].(map[string]any)
	if r["refreshToken"] != oldRefresh || r["accessJwt"] != oldAccess || r["x-note"] == nil || raw["x-top"] == nil || !strings.Contains(fmt.Sprint(raw[other]), "static-neighbour") {
		t.Errorf("the store holds %v", raw)
	}
	var s map[string]any
	decode(t, opened(t, sessionPath(dir, box), sessionRole(box), k), &s)
	if pin, _ := s["pin"].(map[string]any); s["x-session"] != "kept" || s["loginId"] != "L-old" || pin["clientSecret"] != clientSecret {
		t.Errorf("the session file holds %v", s)
	}
}

func TestAStoreIsSealedRekeyedAndOpenedAgain(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	keyringtest.Start(t)
	for kind, k := range map[string]*keys.Keys{keys.KindAge: ageKeys(t), keys.KindKeyring: keyringKeys()} {
		t.Run(kind, func(t *testing.T) {
			dir := sealGround(t)
			places := canary.Places{Dirs: []string{dir}, Cmdlines: true}

			r := mustReseal(t, dir, k, credstore.Encrypt)
			if r.From != "" || r.To != kind || len(r.Files) != 2 || r.DropErr != nil {
				t.Errorf("encrypt: %+v", r)
			}
			first := allUnder(t, dir, kind)
			unharmed(t, dir, k)
			canary.Absent(t, sealCanaries, places)
			if r := mustReseal(t, dir, k, credstore.Encrypt); len(r.Files) != 0 || refOf(t, storePath(dir)).ID != first {
				t.Errorf("encrypt again: %+v", r)
			}

			r = mustReseal(t, dir, k, credstore.Rekey)
			if second := allUnder(t, dir, kind); second == first || len(r.Files) != 2 || r.DropErr != nil {
				t.Errorf("rekey left the key %s: %+v", second, r)
			}
			unharmed(t, dir, k)
			canary.Absent(t, sealCanaries, places)
			if kind == keys.KindKeyring {
				if got := keyringtest.Items(t, "spendonce"); !slices.Equal(got, []string{refOf(t, storePath(dir)).ID}) || r.Dropped != 1 {
					t.Errorf("the keyring holds %q after %+v", got, r)
				}
			}

			// A token is got, saved, and seen by nobody.
			as := newStrict(t, map[string]string{oldRefresh: oldServer})
			s := open(t, credstore.Config{Dir: dir, Keys: k})
			mustGive(t, sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange}), credstore.Request{}, "access-new-00000001")
			allUnder(t, dir, kind)
			canary.Absent(t, append(sealCanaries, canary.Of("new", "refresh-new-00000001"), canary.Of("new", "access-new-00000001")), places)

			if r := mustReseal(t, dir, k, credstore.Decrypt); r.From != kind || r.To != "" || len(r.Files) != 2 {
				t.Errorf("decrypt: %+v", r)
			}
			if got := boxIn(t, dir)["refreshToken"]; got != "refresh-new-00000001" || sealed.Is([]byte(bytesOf(t, sessionPath(dir, box)))) {
				t.Errorf("in plain, the store holds %v", got)
			}
			if kind == keys.KindKeyring {
				if got := keyringtest.Items(t, "spendonce"); len(got) != 0 {
					t.Errorf("the keyring still holds %q", got)
				}
			}
		})
	}
}

// Not one byte of what a file holds is touched.
func TestADecryptedStoreIsByteForByteWhatWasEncrypted(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), ageKeys(t)
	store, session := bytesOf(t, storePath(dir)), bytesOf(t, sessionPath(dir, box))
	mustReseal(t, dir, k, credstore.Encrypt)
	mustReseal(t, dir, k, credstore.Rekey)
	mustReseal(t, dir, k, credstore.Decrypt)
	if bytesOf(t, storePath(dir)) != store || bytesOf(t, sessionPath(dir, box)) != session {
		t.Error("the files have changed")
	}
}

func TestAKeyOfAnotherKindIsChangedToByRekey(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	keyringtest.Start(t)
	dir, identity := sealGround(t), identityFile(t)
	mustReseal(t, dir, keyringKeys(), credstore.Encrypt)
	k := keysWith(keys.Config{Key: "age:" + identity})
	s := open(t, credstore.Config{Dir: dir, Keys: k})
	if _, err := s.Reseal(t.Context(), credstore.Reseal{Do: credstore.Encrypt}); !errors.Is(err, credstore.ErrConfig) || !strings.Contains(err.Error(), "rekey") {
		t.Errorf("encrypt: %v", err)
	}
	mustReseal(t, dir, k, credstore.Rekey)
	allUnder(t, dir, keys.KindAge)
	unharmed(t, dir, k)
	if got := keyringtest.Items(t, "spendonce"); len(got) != 0 {
		t.Errorf("the keyring still holds %q", got)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir := sealGround(t)
	before := namesIn(t, dir)
	var disk steps
	s := open(t, credstore.Config{Dir: dir, Keys: ageKeys(t), Disk: disk.disk()})
	r, err := s.Reseal(t.Context(), credstore.Reseal{Do: credstore.Encrypt, DryRun: true})
	if err != nil || len(r.Files) != 2 || r.To != keys.KindAge {
		t.Errorf("%+v, %v", r, err)
	}
	if got := disk.changes(); len(got) != 0 || !slices.Equal(namesIn(t, dir), before) {
		t.Errorf("it did %q", got)
	}
	if _, err := open(t, credstore.Config{Dir: stateDir(t), Keys: ageKeys(t)}).Reseal(t.Context(), credstore.Reseal{Do: credstore.Encrypt, DryRun: true}); err != nil {
		t.Errorf("with nothing there: %v", err)
	}
}

// Copies that people make are theirs; that they hold tokens is said.
func TestFilesThatAreNotTheStoresAreNamed(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir := sealGround(t)
	copies := []string{filepath.Join(dir, "remote-credentials.json.damaged"), filepath.Join(dir, "sessions", "box.json.bak")}
	for _, path := range copies {
		putBytes(t, path, []byte("x"))
	}
	r := mustReseal(t, dir, ageKeys(t), credstore.Encrypt)
	slices.Sort(r.Beside)
	if !slices.Equal(r.Beside, copies) {
		t.Errorf("named: %q", r.Beside)
	}
}

func TestAStoreThatIsSharedIsNotSealed(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	for name, tt := range map[string]struct {
		pin  string
		set  credstore.Settings
		want string
	}{
		"by its dialect":               {pin: "hypaware", want: "hypaware"},
		"by its configured dialect":    {set: credstore.Settings{Pin: credstore.Pin{Dialect: "hypaware"}}, want: "hypaware"},
		"by its scope":                 {set: credstore.Settings{Scope: credstore.ScopeStore}, want: "lock_scope"},
		"not, by a scope that says so": {pin: "hypaware", set: credstore.Settings{Scope: credstore.ScopeTarget}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, k := sealGround(t), ageKeys(t)
			s := sessionOf(t, dir, box)
			pin, _ := s["pin"].(map[string]any)
			pin["dialect"] = tt.pin
			putSession(t, dir, box, s)
			before := bytesOf(t, storePath(dir))
			how := credstore.Reseal{Do: credstore.Encrypt, Settings: func(target string) (credstore.Settings, error) {
				if target == box {
					return tt.set, nil
				}
				return credstore.Settings{}, nil
			}}
			_, err := open(t, credstore.Config{Dir: dir, Keys: k}).Reseal(t.Context(), how)
			if tt.want == "" {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			if !errors.Is(err, credstore.ErrConfig) || !strings.Contains(err.Error(), tt.want) || bytesOf(t, storePath(dir)) != before {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestASealedStoreThatIsSharedSendsNothing(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), ageKeys(t)
	mustReseal(t, dir, k, credstore.Encrypt)
	a := &authority{}
	src := sourceWith(t, open(t, credstore.Config{Dir: dir, Keys: k}), credstore.SourceConfig{
		Target: box, Exchange: a.exchange,
		Settings: func() (credstore.Settings, error) { return credstore.Settings{Scope: credstore.ScopeStore}, nil },
	})
	if err := mustRefuse(t, src, credstore.Request{}, credstore.ErrConfig); !strings.Contains(err.Error(), "store decrypt") {
		t.Errorf("%v", err)
	}
	mustHaveSent(t, a)
}

// What cannot be opened is neither empty nor anybody's to overwrite.
func TestASealedStoreThatCannotBeOpenedIsLeftAsItIs(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	right := ageKeys(t)
	t.Setenv(keyringtest.AddressVariable, "unix:path=/nowhere")
	for name, tt := range map[string]struct {
		keys   credstore.Keys
		spoil  func(t *testing.T, dir string)
		want   error
		saying string
	}{
		"without keys":         {nil, nil, credstore.ErrKey, "no way to get keys"},
		"with another one":     {ageKeys(t), nil, credstore.ErrKey, "opens it"},
		"with no bus":          {keyringKeys(), func(t *testing.T, dir string) { sealWithKey(t, dir, keys.KindKeyring) }, credstore.ErrKey, "session bus"},
		"cut short":            {right, func(t *testing.T, dir string) { cut(t, storePath(dir)) }, credstore.ErrDamaged, "whole"},
		"altered":              {right, func(t *testing.T, dir string) { alter(t, storePath(dir)) }, credstore.ErrDamaged, "not what was sealed"},
		"another file":         {right, func(t *testing.T, dir string) { move(t, sessionPath(dir, box), storePath(dir)) }, credstore.ErrDamaged, "not what was sealed"},
		"another program's":    {right, func(t *testing.T, dir string) { rewritten(t, storePath(dir)) }, credstore.ErrDamaged, "not a JSON object"},
		"of a newer version":   {right, func(t *testing.T, dir string) { newer(t, storePath(dir)) }, credstore.ErrDamaged, "newer version"},
		"of an unknown kind":   {right, func(t *testing.T, dir string) { sealWithKey(t, dir, "abc") }, credstore.ErrKey, `"abc"`},
		"with a foreign label": {right, func(t *testing.T, dir string) { label(t, storePath(dir)) }, credstore.ErrKey, "another key"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := sealGround(t)
			mustReseal(t, dir, right, credstore.Encrypt)
			if tt.spoil != nil {
				tt.spoil(t, dir)
			}
			before := bytesOf(t, storePath(dir))
			a := &authority{}
			var told warnings
			s := open(t, credstore.Config{Dir: dir, Keys: tt.keys, Warn: told.warn})
			src := sourceWith(t, s, credstore.SourceConfig{Target: box, Settings: pinned, Exchange: a.exchange})
			said := ""
			for what, call := range map[string]func() error{
				"token":   func() error { _, err := get(src, credstore.Request{}); return err },
				"refresh": func() error { _, err := get(src, credstore.Request{Refresh: true}); return err },
				"login":   func() error { return onlyError(s.Login(t.Context(), box, signedIn("R1", "A1"))) },
				"static":  func() error { return s.SetStatic(t.Context(), box, secret.New("S1")) },
				"logout":  func() error { return onlyError(s.Remove(t.Context(), box)) },
				"ready":   func() error { return s.Writable(t.Context(), box) },
				"list":    func() error { return onlyError(s.List()) },
				"rekey":   func() error { return onlyError(s.Reseal(t.Context(), credstore.Reseal{Do: credstore.Rekey})) },
				"decrypt": func() error { return onlyError(s.Reseal(t.Context(), credstore.Reseal{Do: credstore.Decrypt})) },
				"inspect": func() error { return s.Inspect(nil).StoreErr },
			} {
				err := call()
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.saying) {
					t.Errorf("%s: %v, and should be %q with %q", what, err, tt.want, tt.saying)
				}
				said += fmt.Sprintln(err)
			}
			mustHaveSent(t, a)
			if bytesOf(t, storePath(dir)) != before {
				t.Error("the store was written")
			}
			canary.Absent(t, sealCanaries, canary.Places{Outputs: map[string][]byte{"errors": []byte(said + told.all())}})
			// What the environment says needs no store.
			t.Setenv(credstore.OverrideVariable(box), "from-the-environment")
			mustGive(t, src, credstore.Request{}, "from-the-environment")
		})
	}
}

func change(t *testing.T, path string, how func(string) string) {
	t.Helper()
	putBytes(t, path, []byte(how(bytesOf(t, path))))
}

func cut(t *testing.T, path string) {
	t.Helper()
	change(t, path, func(s string) string { return s[:len(s)/2] })
}

func alter(t *testing.T, path string) {
	t.Helper()
	change(t, path, func(s string) string {
		at := strings.Index(s, `"},"`) + 40
		return s[:at] + map[bool]string{true: "B", false: "A"}[s[at] == 'A'] + s[at+1:]
	})
}

func move(t *testing.T, from, to string) {
	t.Helper()
	putBytes(t, to, []byte(bytesOf(t, from)))
}

// rewritten is what a program leaves that knows nothing of sealed files and
// sets the JSON anew.
func rewritten(t *testing.T, path string) {
	t.Helper()
	change(t, path, func(s string) string {
		return "[\n  " + strings.TrimPrefix(s, "[")
	})
}

func newer(t *testing.T, path string) {
	t.Helper()
	change(t, path, func(s string) string { return strings.Replace(s, ",1,", ",2,", 1) })
}

func label(t *testing.T, path string) {
	t.Helper()
	id := refOf(t, path).ID
	change(t, path, func(s string) string { return strings.Replace(s, id, sealed.NewKey().ID(), 1) })
}

// sealWithKey seals the store with a key that is nowhere to be had.
func sealWithKey(t *testing.T, dir, kind string) {
	t.Helper()
	key := sealed.NewKey()
	b, err := sealed.Seal(sealed.Ref{Kind: kind, ID: key.ID()}, storeRole, key, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	putBytes(t, storePath(dir), b)
	if err := os.Remove(sessionPath(dir, box)); err != nil {
		t.Fatal(err)
	}
}

// A token that is valid without its session file is served without its key.
func TestASessionFileWithoutItsKeyKeepsNoValidTokenBack(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), ageKeys(t)
	plain := bytesOf(t, storePath(dir))
	mustReseal(t, dir, k, credstore.Encrypt)
	putBytes(t, storePath(dir), []byte(plain)) // as after an encrypt that was cut short
	a := &authority{}
	src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
	mustRefuse(t, src, credstore.Request{}, credstore.ErrKey)
	mustHaveSent(t, a)
	putStore(t, dir, map[string]record{box: oidc(oldRefresh, "A-valid", in(45e9))})
	mustGive(t, src, credstore.Request{}, "A-valid")
	mustHaveSent(t, a)
	// And logging out needs no session file.
	if err := onlyError(open(t, credstore.Config{Dir: dir}).Remove(t.Context(), box)); err != nil {
		t.Errorf("logout: %v", err)
	}
}

func TestANewStoreHasTheConfiguredForm(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	keyringtest.Start(t)
	for kind, k := range map[string]*keys.Keys{keys.KindAge: ageKeys(t), keys.KindKeyring: keyringKeys()} {
		t.Run(kind, func(t *testing.T) {
			dir := stateDir(t)
			s := open(t, credstore.Config{Dir: dir, Keys: k})
			if err := s.Writable(t.Context(), box); err != nil {
				t.Fatal(err)
			}
			if err := onlyError(s.Login(t.Context(), box, signedIn("R1-canary-0000", "A1-canary-0000"))); err != nil {
				t.Fatal(err)
			}
			id := allUnder(t, dir, kind)
			canary.Absent(t, []canary.Value{canary.Of("refresh", "R1-canary-0000"), canary.Of("access", "A1-canary-0000")}, canary.Places{Dirs: []string{dir}})
			// The next writer keeps the key.
			if err := onlyError(open(t, credstore.Config{Dir: dir, Keys: k}).Login(t.Context(), box, signedIn("R2", "A2"))); err != nil {
				t.Fatal(err)
			}
			if allUnder(t, dir, kind) != id {
				t.Error("a second key was made")
			}
			if kind == keys.KindKeyring && !slices.Equal(keyringtest.Items(t, "spendonce"), []string{id}) {
				t.Errorf("the keyring holds %q", keyringtest.Items(t, "spendonce"))
			}
		})
	}
	// A store in plain stays so until somebody says otherwise.
	dir := sealGround(t)
	if err := open(t, credstore.Config{Dir: dir, Keys: ageKeys(t)}).SetStatic(t.Context(), "third", secret.New("S")); err != nil {
		t.Fatal(err)
	}
	if refOf(t, storePath(dir)).Kind != "" {
		t.Error("a store in plain was sealed by a write")
	}
}

// Another process changes the key between our looking and our writing.
func TestAKeyThatIsChangedMeanwhileIsFetched(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), ageKeys(t)
	mustReseal(t, dir, k, credstore.Encrypt)
	s := open(t, credstore.Config{Dir: dir, Keys: k})
	as := newStrict(t, map[string]string{oldRefresh: oldServer})
	src := sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange})
	mustGive(t, src, credstore.Request{}, "access-new-00000001")
	mustReseal(t, dir, k, credstore.Rekey)
	mustGive(t, src, credstore.Request{Refresh: true}, "access-new-00000002")
	mustReseal(t, dir, k, credstore.Rekey)
	if err := s.SetStatic(t.Context(), "third", secret.New("S")); err != nil {
		t.Error(err)
	}
	// Between the look at the store and the lock of the target.
	once := false
	late := sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange, Settings: func() (credstore.Settings, error) {
		if !once {
			once = true
			mustReseal(t, dir, k, credstore.Rekey)
		}
		return credstore.Settings{}, nil
	}})
	rekeyed := refOf(t, storePath(dir)).ID
	mustGive(t, late, credstore.Request{Refresh: true}, "access-new-00000003")
	if refOf(t, storePath(dir)).ID == rekeyed {
		t.Error("the key was not changed")
	}
	mustReseal(t, dir, k, credstore.Decrypt)
	mustGive(t, src, credstore.Request{Refresh: true}, "access-new-00000004")
	if refOf(t, storePath(dir)).Kind != "" {
		t.Error("it was sealed again")
	}
}

// The form does not change under an exchange.
func TestNoStoreIsResealedDuringAnExchange(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), ageKeys(t)
	a := &authority{}
	answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil })
	a.answer = answer
	got := make(chan error, 1)
	src := sourceWith(t, open(t, credstore.Config{Dir: dir, Keys: k}), credstore.SourceConfig{Target: box, Exchange: a.exchange})
	go func() { got <- onlyError(get(src, credstore.Request{})) }()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan string, 8)
	s := open(t, credstore.Config{Dir: dir, Keys: k, Stage: func(text string) {
		if strings.Contains(text, "another process") {
			cancel()
			waiting <- text
		}
	}})
	if _, err := s.Reseal(ctx, credstore.Reseal{Do: credstore.Encrypt}); !errors.Is(err, context.Canceled) {
		t.Errorf("it did not wait: %v", err)
	}
	if len(waiting) == 0 || refOf(t, storePath(dir)).Kind != "" {
		t.Error("the store was sealed under the exchange")
	}
	close(proceed)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	mustReseal(t, dir, k, credstore.Encrypt)
	if got := string(opened(t, storePath(dir), storeRole, k)); !strings.Contains(got, "R-new-1") {
		t.Errorf("sealed: %s", got)
	}
}

// A key in the keyring that was made for a store which is now gone from it is
// used by nobody: whoever made it sees that under the lock.
func TestAKeyThatWasDroppedBeforeItsFirstUseIsNotUsed(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	keyringtest.Start(t)
	dir := stateDir(t)
	early, late := open(t, credstore.Config{Dir: dir, Keys: keyringKeys()}), open(t, credstore.Config{Dir: dir, Keys: keyringKeys()})
	if err := early.Writable(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	unused := keyringtest.Items(t, "spendonce")
	if err := late.SetStatic(t.Context(), other, secret.New("S")); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Reseal(t.Context(), credstore.Reseal{Do: credstore.Rekey}); err != nil {
		t.Fatal(err)
	}
	if got := keyringtest.Items(t, "spendonce"); len(got) != 1 || slices.Contains(got, unused[0]) {
		t.Errorf("the keyring holds %q, and %q is used by nobody", got, unused)
	}
	if err := os.Remove(storePath(dir)); err != nil {
		t.Fatal(err)
	}
	if err := onlyError(early.Login(t.Context(), box, signedIn("R1", "A1"))); err != nil {
		t.Fatal(err)
	}
	id := allUnder(t, dir, keys.KindKeyring)
	if id == unused[0] || !slices.Contains(keyringtest.Items(t, "spendonce"), id) {
		t.Errorf("the store is sealed with %s, the keyring holds %q", id, keyringtest.Items(t, "spendonce"))
	}
}

// Two state directories lead to one store: the one does not see what the
// other's files name.
func TestNoKeyOfASharedStoreIsDropped(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	keyringtest.Start(t)
	dir, linked := sealGround(t), stateDir(t)
	if err := os.MkdirAll(linked, 0o700); err != nil {
		t.Fatal(err)
	}
	symlink(t, storePath(dir), storePath(linked))
	k := keyringKeys()
	mustReseal(t, dir, k, credstore.Encrypt)
	if err := onlyError(open(t, credstore.Config{Dir: linked, Keys: k}).Login(t.Context(), "theirs", signedIn("R1", "A1"))); err != nil {
		t.Fatal(err)
	}
	mustReseal(t, dir, k, credstore.Rekey)
	a := &authority{}
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: linked, Keys: keyringKeys()}), "theirs", a), credstore.Request{Refresh: true}, "A-new-1")
}

func TestAFullSweepOfFaultsOverEachChangeOfForm(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	for i, do := range []credstore.Sealing{credstore.Encrypt, credstore.Rekey, credstore.Decrypt} {
		if i >= chosen(3, 3, 1) || raced && i > 0 {
			break
		}
		t.Run(string(do), func(t *testing.T) {
			var dir string
			var k *memoryKeys
			var told *warnings
			memory := shm(t)
			store := func(disk durable.Disk) *credstore.Store {
				s, err := credstore.Open(credstore.Config{Dir: dir, StaleAfter: sweepStale, Disk: disk, Warn: told.warn, Keys: k})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			steps := durabletest.Sweep(t, func(disk durable.Disk) error {
				dir, told, k = sealGroundIn(t, memory), &warnings{}, &memoryKeys{kept: map[string]sealed.Key{}}
				if do != credstore.Encrypt {
					if _, err := store(durable.Disk{}).Reseal(context.Background(), credstore.Reseal{Do: credstore.Encrypt}); err != nil {
						t.Fatal(err)
					}
				}
				return onlyError(store(disk).Reseal(context.Background(), credstore.Reseal{Do: do}))
			}, func(f *durabletest.Fault, err error) {
				unharmed(t, dir, k)
				text := told.all()
				if err != nil {
					text += err.Error()
				}
				canary.Absent(t, sealCanaries, canary.Places{Outputs: map[string][]byte{"said": []byte(text)}})
				// A half-changed store serves.
				if f.At%7 == 0 {
					as := newStrict(t, map[string]string{oldRefresh: oldServer})
					s := store(durable.Disk{})
					mustGive(t, sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange}), credstore.Request{}, "access-new-00000001")
					closed(t, s)
				}
				// And the next call finishes it.
				if do == credstore.Rekey && refOf(t, storePath(dir)).Kind == "" {
					t.Error("a rekey opened the store")
				}
				if _, err := store(durable.Disk{}).Reseal(context.Background(), credstore.Reseal{Do: do}); err != nil {
					t.Errorf("afterwards: %v", err)
				}
				whole(t, dir, k.items(), do)
				_ = os.RemoveAll(dir)
			})
			t.Logf("%d steps", steps)
		})
	}
}

// whole checks that a change of form was finished: the files, what the
// keyring holds, and that no secret shows.
func whole(t *testing.T, dir string, keyring []string, do credstore.Sealing) {
	t.Helper()
	want := []string{}
	if do == credstore.Decrypt {
		allUnder(t, dir, "")
	} else {
		want = append(want, allUnder(t, dir, keys.KindKeyring))
		canary.Absent(t, sealCanaries, canary.Places{Dirs: []string{dir}})
	}
	if !slices.Equal(keyring, want) {
		t.Errorf("the keyring holds %q, files name %q", keyring, want)
	}
	if got := temps(namesIn(t, dir)); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// Killed at every step, with a real keyring: the session is there, the next
// call finishes, and the keyring holds the one key that files name.
func TestStormOfKillsAtEveryStepOfAChangeOfForm(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	for _, do := range []credstore.Sealing{credstore.Encrypt, credstore.Rekey, credstore.Decrypt} {
		t.Run(string(do), func(t *testing.T) {
			keyringtest.Start(t)
			k := keyringKeys()
			ground := func() string {
				dir := sealGround(t)
				if do != credstore.Encrypt {
					mustReseal(t, dir, k, credstore.Encrypt)
				}
				return dir
			}
			change := job{Do: string(do), Dir: ground(), Target: box, StaleAfter: stale, Keyring: true}
			steps := run(t, change)[0].Steps
			if len(steps) < 40 {
				t.Fatalf("only %d steps: %v", len(steps), steps)
			}
			mustReseal(t, change.Dir, k, credstore.Decrypt)
			kills := 0
			for i := range steps {
				if i%chosen(1, 5, 25) != 0 || raced && i%25 != 0 {
					continue // the sweep of faults takes them all
				}
				kills++
				change.Dir, change.StaleAfter, change.KillAt = ground(), staleAt(steps[i]), i+1
				workers, open := startAll(t, change)
				open()
				if !workers[0].killed(t) {
					t.Errorf("it was not killed at step %d", i)
				}
				unharmed(t, change.Dir, k)
				again := change
				again.KillAt = 0
				recovered(t, steps[i], run(t, again)[0])
				unharmed(t, change.Dir, k)
				whole(t, change.Dir, keyringtest.Items(t, "spendonce"), do)
				if t.Failed() {
					t.Fatalf("killed at %v", steps[i])
				}
				mustReseal(t, change.Dir, k, credstore.Decrypt)
			}
			t.Logf("%d steps, %d kills", len(steps), kills)
		})
	}
}

// Changes of form and refreshes at once: every token is got, one exchange is
// made, and the files have one form in the end.
func TestStormOfRefreshesAndChangesOfForm(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	keyringtest.Start(t)
	s := server(t, spendoncetest.TokenServerConfig{})
	for range chosen(50, 3, 1) {
		g := newGround(t, s)
		before := s.Counters().TokenPosts
		token := g.token()
		token.Keyring = true
		encrypt, rekey := token, token
		encrypt.Do, rekey.Do = "encrypt", "rekey"
		mustReseal(t, g.dir, keyringKeys(), credstore.Encrypt)
		jobs := append(times(6, token), rekey, encrypt, rekey, rekey)
		for i, r := range run(t, jobs...) {
			if r.Err != "" {
				t.Errorf("%s: %+v", jobs[i].Do, r)
			}
		}
		if n := s.Counters().TokenPosts - before; n != 1 {
			t.Errorf("%d requests", n)
		}
		mustReseal(t, g.dir, keyringKeys(), credstore.Decrypt)
		g.settled(t)
		if got := keyringtest.Items(t, "spendonce"); len(got) != 0 {
			t.Errorf("the keyring still holds %q", got)
		}
	}
}

// What is reserved before a token is spent is enough for the sealed file.
func TestTheRoomThatIsReservedIsEnoughForASealedStore(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	dir, k := sealGround(t), ageKeys(t)
	mustReseal(t, dir, k, credstore.Encrypt)
	var reserved, size int64
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		err := do()
		if s.Op == "reserve" && strings.Contains(s.Path, ".remote-credentials.json.") {
			var st unix.Stat_t
			if err := unix.Stat(s.Path, &st); err == nil {
				reserved = st.Blocks * 512
			}
		}
		return err
	}}
	long := strings.Repeat("x", 8000) // twice, in a margin of 16 KiB
	a := &authority{answer: func(context.Context, int, credstore.Grant) (credstore.Tokens, error) {
		return credstore.Tokens{AccessToken: secret.New("A" + long), RefreshToken: secret.New("R" + long), ExpiresAt: in(3600e9)}, nil
	}}
	src := sourceWith(t, open(t, credstore.Config{Dir: dir, Keys: k, Disk: disk}), credstore.SourceConfig{Target: box, Exchange: a.exchange})
	mustGive(t, src, credstore.Request{}, "A"+long)
	if size = int64(len(bytesOf(t, storePath(dir)))); reserved < size {
		t.Errorf("%d bytes were reserved and %d written", reserved, size)
	}
}

// The kernel sees the same calls whatever the form.
func TestASealedRefreshDoesWhatAPlainOneDoes(t *testing.T) {
	onlyInPlain(t, "it says itself what it seals with")
	did := func(k credstore.Keys) []string {
		dir := sealGround(t)
		if k != nil {
			mustReseal(t, dir, k, credstore.Encrypt)
			mustReseal(t, dir, k, credstore.Rekey)
		} else {
			k := ageKeys(t) // its locks are there too
			mustReseal(t, dir, k, credstore.Encrypt)
			mustReseal(t, dir, k, credstore.Decrypt)
		}
		as := newStrict(t, map[string]string{oldRefresh: oldServer})
		s := open(t, credstore.Config{Dir: dir, Keys: k})
		_, _ = get(sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange}), credstore.Request{MinValid: 1})
		var disk steps
		s = open(t, credstore.Config{Dir: dir, Keys: k, Disk: disk.disk()})
		_ = onlyError(s.List()) // the key is in memory
		disk.mu.Lock()
		disk.all = nil
		disk.mu.Unlock()
		mustGive(t, sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange}), credstore.Request{Refresh: true}, "access-new-00000002")
		var ops []string
		for _, step := range disk.all {
			ops = append(ops, step.Op)
		}
		return ops
	}
	if plain, sealed := did(nil), did(ageKeys(t)); !slices.Equal(plain, sealed) {
		t.Errorf("in plain %q\nsealed   %q", plain, sealed)
	}
}
