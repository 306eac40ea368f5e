package credstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
)

// damages are the forms in which a file comes back from the field, and the
// byte at which each is noticed.
var damages = map[string]struct {
	content string
	at      int
}{
	"empty":                  {"", 0},
	"blank":                  {" \n\t ", 0},
	"truncated in a name":    {`{"bo`, 4},
	"truncated in a token":   {`{"box":{"kind":"oidc","refreshToken":"R0`, 41},
	"truncated at the end":   {`{"box":{"kind":"static","token":"S"}`, 36},
	"zeros":                  {"\x00\x00\x00\x00", 0},
	"a byte order mark":      {"\xef\xbb\xbf" + `{"box":{"kind":"static","token":"S"}}`, 0},
	"an array":               {` [{"box":{"kind":"static","token":"S"}}]`, 1},
	"a string":               {`"S"`, 0},
	"null":                   {`null`, 0},
	"a tail of older text":   {`{"box":{"kind":"static","token":"S"}}"}}`, 37},
	"two objects":            {`{"box":{"kind":"static","token":"S"}}{}`, 37},
	"a target twice":         {`{"box":{"kind":"static","token":"S"},"box":{"kind":"static","token":"S2"}}`, 37},
	"a member twice":         {`{"box":{"kind":"static","token":"S","token":"S2"}}`, 36},
	"a name in another case": {`{"box":{"kind":"static","token":"S"},}`, 37},
	"invalid UTF-8":          {"{\"box\":{\"kind\":\"static\",\"token\":\"S\xff\"}}", 33},
	"a comment":              {`{"box":{"kind":"static","token":"S"} /* mine */}`, 37},
	"HTML":                   {`<html>`, 0},
}

func TestADamagedStoreIsNeitherReadAsEmptyNorWrittenOver(t *testing.T) {
	for name, tt := range damages {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putBytes(t, storePath(dir), []byte(tt.content))
			a := &authority{}
			s := open(t, credstore.Config{Dir: dir})
			_, err := get(sourceOf(t, s, box, a), credstore.Request{})
			_, listed := s.List()
			for what, err := range map[string]error{
				"get":      err,
				"list":     listed,
				"static":   s.SetStatic(t.Context(), box, secret.New("S-new")),
				"login":    onlyError(s.Login(t.Context(), box, signedIn("R-new", "A-new"))),
				"remove":   onlyError(s.Remove(t.Context(), box)),
				"writable": s.Writable(t.Context(), box),
			} {
				if !errors.Is(err, credstore.ErrDamaged) || errors.Is(err, credstore.ErrNoCredential) {
					t.Errorf("%s: %v", what, err)
					continue
				}
				for _, part := range []string{storePath(dir), "byte ", "move it aside", "mv "} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s: %v: says nothing of %q", what, err, part)
					}
				}
				var at int
				_, rest, _ := strings.Cut(err.Error(), "at byte ")
				if _, err := fmt.Sscan(rest, &at); err != nil || at < tt.at-1 || at > tt.at+1 {
					t.Errorf("%s: byte %d, the damage is at %d", what, at, tt.at)
				}
				for _, token := range []string{"R0", "S2", `"S`} {
					if strings.Contains(err.Error(), token) {
						t.Errorf("%s: %v: shows what the file holds", what, err)
					}
				}
			}
			if bytesOf(t, storePath(dir)) != tt.content {
				t.Error("the file has changed")
			}
			mustHaveSent(t, a)
			if got := temps(namesIn(t, dir)); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func TestADamagedSessionFileStopsSendsAndNothingElse(t *testing.T) {
	contents := map[string]string{
		"another version":     `{"version":2}`,
		"no version":          `{}`,
		"a wrong type":        `{"version":1,"failures":"many"}`,
		"a wrong time":        `{"version":1,"notBefore":"yesterday"}`,
		"a secret of no text": `{"version":1,"pin":{"clientSecret":7}}`,
	}
	for name, tt := range damages {
		contents[name] = tt.content
	}
	delete(contents, "a name in another case")
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(30*time.Second)), other: oidc("R9", "A9", in(-time.Hour))})
			putBytes(t, sessionPath(dir, box), []byte(content))
			a := &authority{}
			var told warnings
			s := open(t, credstore.Config{Dir: dir, Warn: told.warn})
			src := sourceOf(t, s, box, a)
			// Valid tokens are served, whatever is asked of them.
			mustGive(t, src, credstore.Request{}, "A0")
			if !strings.Contains(told.all(), sessionPath(dir, box)) {
				t.Errorf("no warning names the file: %q", told.all())
			}
			mustGive(t, src, credstore.Request{MinValid: 10 * time.Second}, "A0")
			mustGive(t, src, credstore.Request{Rejected: secret.New("A-old")}, "A0")
			mustRefuse(t, src, credstore.Request{MinValid: 50 * time.Second}, credstore.ErrDamaged)
			err := mustRefuse(t, src, credstore.Request{Rejected: secret.New("A0")}, credstore.ErrDamaged)
			for _, part := range []string{sessionPath(dir, box), "at byte ", "mv "} {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("%v: says nothing of %q", err, part)
				}
			}
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(time.Hour)), other: oidc("R9", "A9", in(-time.Hour))})
			mustGive(t, src, credstore.Request{MinValid: 30 * time.Minute}, "A0")
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Second)), other: oidc("R9", "A9", in(-time.Hour))})
			mustRefuse(t, src, credstore.Request{}, credstore.ErrDamaged)
			mustHaveSent(t, a)
			if err := onlyError(s.Login(t.Context(), box, signedIn("R-login", "A-login"))); !errors.Is(err, credstore.ErrDamaged) {
				t.Errorf("a login: %v", err)
			}
			if storeOf(t, dir)[box]["refreshToken"] != "R0" {
				t.Error("the login was half stored")
			}
			if bytesOf(t, sessionPath(dir, box)) != content {
				t.Error("the file has changed")
			}
			// It is one target's trouble.
			mustGive(t, sourceOf(t, s, other, a), credstore.Request{}, "A-new-1")
			entries, err := s.List()
			if err != nil || len(entries) != 2 || !errors.Is(entries[0].Err, credstore.ErrDamaged) || entries[1].Err != nil {
				t.Errorf("listed: %v, %v", entries, err)
			}
			// The way out.
			if err := os.Rename(sessionPath(dir, box), sessionPath(dir, box)+".damaged"); err != nil {
				t.Fatal(err)
			}
			if err := onlyError(s.Login(t.Context(), box, signedIn("R-login", "A-login"))); err != nil {
				t.Error(err)
			}
		})
	}
}

// Other programs read a record back from these members, and write others.
func TestRecordsAreReadInTheOrderOfTheRules(t *testing.T) {
	for name, tt := range map[string]struct {
		raw         string
		kind        credstore.Kind
		refreshable bool
	}{
		"static":                             {`{"kind":"static","token":"S"}`, credstore.KindStatic, false},
		"oidc":                               {`{"kind":"oidc","refreshToken":"R","accessJwt":"A","expiresAt":""}`, credstore.KindOIDC, true},
		"no kind, both tokens":               {`{"refreshToken":"R","accessJwt":"A","token":"S"}`, credstore.KindOIDC, true},
		"no kind, one of them":               {`{"refreshToken":"R"}`, credstore.KindUnknown, false},
		"no kind, a token":                   {`{"token":"S"}`, credstore.KindStatic, false},
		"no kind, a token and one of them":   {`{"token":"S","refreshToken":"R"}`, credstore.KindStatic, false},
		"oidc and a token":                   {`{"kind":"oidc","token":"S","refreshToken":"R"}`, credstore.KindOIDC, true},
		"oidc with an empty access token":    {`{"kind":"oidc","refreshToken":"R","accessJwt":""}`, credstore.KindOIDC, true},
		"oidc with an access token alone":    {`{"kind":"oidc","accessJwt":"A"}`, credstore.KindOIDC, false},
		"an unusable oidc and a token":       {`{"kind":"oidc","token":"S"}`, credstore.KindStatic, false},
		"an unusable oidc":                   {`{"kind":"oidc"}`, credstore.KindUnknown, false},
		"another kind and a token":           {`{"kind":"saml","token":"S"}`, credstore.KindStatic, false},
		"another kind":                       {`{"kind":"saml","refreshToken":"R","accessJwt":"A"}`, credstore.KindUnknown, false},
		"static with the other's members":    {`{"kind":"static","token":"S","refreshToken":"R","accessJwt":"A"}`, credstore.KindStatic, false},
		"static without a token":             {`{"kind":"static","refreshToken":"R","accessJwt":"A"}`, credstore.KindUnknown, false},
		"members of other types":             {`{"kind":"oidc","refreshToken":["R"],"accessJwt":{"A":1}}`, credstore.KindUnknown, false},
		"names in another case":              {`{"Kind":"static","TOKEN":"S"}`, credstore.KindUnknown, false},
		"a text":                             {`"S"`, credstore.KindUnknown, false},
		"null":                               {`null`, credstore.KindUnknown, false},
		"a number that no float holds":       {`{"kind":"static","token":"S","n":123456789012345678901234567890}`, credstore.KindStatic, false},
		"escaped":                            {`{"kind":"st\u0061tic","token":"\u0053"}`, credstore.KindStatic, false},
		"an expiry that is no time":          {`{"kind":"oidc","refreshToken":"R","accessJwt":"A","expiresAt":"soon"}`, credstore.KindOIDC, true},
		"an expiry that is a number":         {`{"kind":"oidc","refreshToken":"R","accessJwt":"A","expiresAt":1700000000}`, credstore.KindOIDC, true},
		"an expiry in the past, other zones": {`{"kind":"oidc","refreshToken":"R","accessJwt":"A","expiresAt":"2001-01-01T00:00:00+14:00"}`, credstore.KindOIDC, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putBytes(t, storePath(dir), []byte(`{"box":`+tt.raw+`}`))
			entries, err := open(t, credstore.Config{Dir: dir}).List()
			if err != nil || len(entries) != 1 {
				t.Fatalf("%v, %v", entries, err)
			}
			e := entries[0]
			if e.Kind != tt.kind || e.Refreshable != tt.refreshable || e.Usable != (tt.kind != credstore.KindUnknown) {
				t.Errorf("read as %+v", e)
			}
		})
	}
}

// What we do not know survives every rewrite, at the top, in records, in
// session files, byte for byte.
func TestWhatWeDoNotKnowSurvivesEveryRewrite(t *testing.T) {
	const unknown = `"x-note":{"a":[1.50,2e400,{"z":null}],"\u00e9":"\u2028\\"},"x-big":123456789012345678901234567890`
	dir := stateDir(t)
	putBytes(t, storePath(dir), []byte(`{
 "x-first":[1,2,{"deep":true}],
 "box":{"x-before":1,"kind":"oidc","refreshToken":"R0","accessJwt":"A0","expiresAt":"2020-01-01T00:00:00Z","org":"acme",`+unknown+`},
 "still":{"kind":"static","token":"S","x-kept":"yes"},
 "alien":{"kind":"saml","assertion":"<x>"},
 "not a name":{"token":"T"},
 "x-last":null}`))
	putBytes(t, sessionPath(dir, box), []byte(`{"version":1,"x-session":{"b":1},"url":"https://rs.example","loginId":"L","pin":{"tokenEndpoint":"https://as.example/token","clientId":"cid","x-pin":[1]},"lastOutcome":{"id":"o","time":"2020-01-01T00:00:00Z","refreshToken":"","class":"success"}}`))
	before := rawStore(t, dir)
	s := open(t, credstore.Config{Dir: dir})
	a := &authority{}
	src := sourceOf(t, s, box, a)
	check := func(what string) {
		t.Helper()
		now := rawStore(t, dir)
		for _, name := range []string{"x-first", "still", "alien", "not a name", "x-last"} {
			if now[name] == nil || compacted(t, now[name]) != compacted(t, before[name]) {
				t.Errorf("%s: %q has not survived", what, name)
			}
		}
		if r := compacted(t, now[box]); !strings.Contains(r, unknown) || !strings.Contains(r, `"x-before":1,`) {
			t.Errorf("%s: unknown members of the record have not survived: %s", what, r)
		}
		if got := sessionOf(t, dir, box); fmt.Sprint(got["x-session"]) != "map[b:1]" {
			t.Errorf("%s: unknown members of the session have not survived: %v", what, got)
		}
	}
	mustGive(t, src, credstore.Request{}, "A-new-1")
	check("a refresh")
	if pin := sessionOf(t, dir, box)["pin"].(map[string]any); pin["x-pin"] == nil {
		t.Error("unknown members of the pin have not survived")
	}
	a.answer = failing(credstore.Failure{Class: credstore.ClassTemporary})
	mustRefuse(t, src, credstore.Request{Refresh: true}, credstore.ErrTemporary)
	check("a failure")
	if err := s.SetStatic(t.Context(), other, secret.New("S")); err != nil {
		t.Fatal(err)
	}
	check("a static write beside it")
	if err := onlyError(s.Remove(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
	check("a logout beside it")
	if err := onlyError(s.Login(t.Context(), box, signedIn("R-login", "A-login"))); err != nil {
		t.Fatal(err)
	}
	check("a login")
	if err := s.SetStatic(t.Context(), box, secret.New("S2")); err != nil {
		t.Fatal(err)
	}
	check("a static write")
	if r := compacted(t, rawStore(t, dir)[box]); strings.Contains(r, "R-login") || strings.Contains(r, "A-login") || !strings.Contains(r, `"token":"S2"`) {
		t.Error("the session's tokens stay beside the static one")
	}
	if order := topNames(t, dir); !slices.Equal(order, []string{"x-first", "box", "still", "alien", "not a name", "x-last"}) {
		t.Errorf("the order has changed: %q", order)
	}
}

func rawStore(t *testing.T, dir string) map[string]json.RawMessage {
	t.Helper()
	var raw map[string]json.RawMessage
	decode(t, opened(t, storePath(dir), storeRole), &raw)
	return raw
}

func compacted(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func topNames(t *testing.T, dir string) []string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(opened(t, storePath(dir), storeRole)))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		names = append(names, name.(string))
	}
	return names
}

// A store that is a link stays one; what the link leads to is replaced, and
// everything that is shared stands beside that.
func TestAStoreBehindALinkIsReplacedWhereItIs(t *testing.T) {
	for name, link := range map[string]func(t *testing.T, dir, actual string){
		"absolute": func(t *testing.T, dir, actual string) {
			symlink(t, filepath.Join(actual, "creds.json"), storePath(dir))
		},
		"relative": func(t *testing.T, dir, _ string) { symlink(t, "../dotfiles/creds.json", storePath(dir)) },
		"chained": func(t *testing.T, dir, actual string) {
			symlink(t, "../dotfiles/second", storePath(dir))
			symlink(t, "creds.json", filepath.Join(actual, "second"))
		},
		"through a linked directory": func(t *testing.T, dir, actual string) {
			deep := filepath.Join(filepath.Dir(dir), "a", "b")
			if err := os.MkdirAll(deep, 0o700); err != nil {
				t.Fatal(err)
			}
			symlink(t, deep, filepath.Join(dir, "elsewhere"))
			symlink(t, "elsewhere/hop", storePath(dir))
			symlink(t, "../../dotfiles/creds.json", filepath.Join(deep, "hop"))
		},
	} {
		for _, dangling := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dangling %t", name, dangling), func(t *testing.T) {
				dir := stateDir(t)
				actual := filepath.Join(filepath.Dir(dir), "dotfiles")
				for _, d := range []string{dir, actual} {
					if err := os.MkdirAll(d, 0o700); err != nil {
						t.Fatal(err)
					}
				}
				link(t, dir, actual)
				first, err := os.Readlink(storePath(dir))
				if err != nil {
					t.Fatal(err)
				}
				s := open(t, credstore.Config{Dir: dir})
				a := &authority{}
				if dangling {
					mustRefuse(t, sourceOf(t, s, box, a), credstore.Request{}, credstore.ErrNoCredential)
					if err := onlyError(s.Login(t.Context(), box, signedIn("R0", "A0"))); err != nil {
						t.Fatal(err)
					}
				} else {
					put(t, filepath.Join(actual, "creds.json"), storeRole, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
				}
				token, err := whileRefreshing(t, dir, a, credstore.Request{Refresh: true}, func() {
					// The scope is the store: its lock is held throughout, beside the file.
					if _, err := os.Lstat(filepath.Join(actual, "creds.json.lock")); err != nil {
						t.Error(err)
					}
				})
				if token != "A-new-1" || err != nil {
					t.Errorf("got %q, %v", token, err)
				}
				if again, err := os.Readlink(storePath(dir)); err != nil || again != first {
					t.Errorf("the link is now %q, %v", again, err)
				}
				if !strings.Contains(string(opened(t, filepath.Join(actual, "creds.json"), storeRole)), "R-new-1") {
					t.Error("the file behind the link was not replaced")
				}
				want := []string{"creds.json", "creds.json.lock.guard", "locks", "locks/box.lock.guard"}
				if os.Getenv(formVariable) == "keyring" {
					want = slices.Insert(want, 1, "creds.json.keys")
				}
				if name == "chained" {
					want = append(want, "second")
				}
				if got := namesIn(t, actual); !slices.Equal(got, want) {
					t.Errorf("beside the file: %q", got)
				}
				if slices.Contains(namesIn(t, dir), "remote-credentials.json.lock.guard") {
					t.Error("the lock was taken beside the link")
				}
			})
		}
	}
}

func symlink(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

func TestALinkThatLeadsNowhereIsSaidToBeOne(t *testing.T) {
	dir := stateDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	symlink(t, "remote-credentials.json", storePath(dir))
	s := open(t, credstore.Config{Dir: dir})
	for _, err := range []error{s.SetStatic(t.Context(), box, secret.New("S")), onlyError(s.Remove(t.Context(), box))} {
		if !errors.Is(err, credstore.ErrDamaged) || !strings.Contains(err.Error(), "circle") {
			t.Errorf("%v", err)
		}
	}
	if err := os.Remove(storePath(dir)); err != nil {
		t.Fatal(err)
	}
	symlink(t, "no/such/dir/creds.json", storePath(dir))
	if err := s.SetStatic(t.Context(), box, secret.New("S")); err == nil || errors.Is(err, credstore.ErrNoCredential) {
		t.Errorf("a link into a directory that is missing: %v", err)
	}
	if to, err := os.Readlink(storePath(dir)); err != nil || to != "no/such/dir/creds.json" {
		t.Errorf("the link is now %q, %v", to, err)
	}
}

// Two state directories whose stores are one file share its lock.
func TestTwoWaysToOneStoreShareItsLock(t *testing.T) {
	root := t.TempDir()
	actual := filepath.Join(root, "actual")
	putStore(t, actual, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	one, two := filepath.Join(root, "one"), filepath.Join(root, "two")
	for _, dir := range []string{one, two} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		symlink(t, storePath(actual), storePath(dir))
	}
	a := &authority{}
	var token string
	var err error
	done := make(chan struct{})
	sent, err1 := whileRefreshing(t, one, a, credstore.Request{}, func() {
		staged := make(chan struct{})
		var once sync.Once
		src := sourceOf(t, open(t, credstore.Config{Dir: two, Stage: func(text string) {
			if strings.Contains(text, "waiting") {
				once.Do(func() { close(staged) })
			}
		}}), box, a)
		go func() { defer close(done); token, err = get(src, credstore.Request{}) }()
		<-staged
	})
	<-done
	if sent != "A-new-1" || err1 != nil || token != "A-new-1" || err != nil {
		t.Errorf("got %q, %v and %q, %v", sent, err1, token, err)
	}
	mustHaveSent(t, a, "R0")
}

// Whatever the umask, files are private from the moment they exist.
func TestFilesArePrivateWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o777} {
		t.Run(fmt.Sprintf("%03o", umask), func(t *testing.T) {
			dir := filepath.Join(stateDir(t), "deep", "er")
			old := unix.Umask(umask)
			defer unix.Umask(old)
			var loose []string
			disk := steps{}
			d := disk.disk()
			hook := d.Hook
			d.Hook = func(step durable.Step, do func() error) error {
				err := hook(step, do)
				if step.Op == "create" && err == nil {
					// The umask may take bits away, never leave one that others have.
					if info, err := os.Lstat(step.Path); err == nil && info.Mode().Perm()&0o077 != 0 {
						loose = append(loose, step.Path)
					}
				}
				return err
			}
			s := open(t, credstore.Config{Dir: dir, Disk: d})
			if err := onlyError(s.Login(context.Background(), box, signedIn("R0", "A0"))); err != nil {
				t.Fatal(err)
			}
			mustGive(t, sourceOf(t, s, box, &authority{}), credstore.Request{Refresh: true}, "A-new-1")
			unix.Umask(old)
			if len(loose) != 0 {
				t.Errorf("created for others: %q", loose)
			}
			err := filepath.WalkDir(filepath.Dir(dir), func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				want := fs.FileMode(0o600)
				if e.IsDir() {
					want = 0o700
				}
				if info.Mode().Perm() != want {
					t.Errorf("%s has mode %04o", path, info.Mode().Perm())
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestALooseModeIsWarnedAboutAndRepairedByTheNextWrite(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(time.Hour))})
	if err := os.Chmod(storePath(dir), 0o644); err != nil {
		t.Fatal(err)
	}
	var told warnings
	s := open(t, credstore.Config{Dir: dir, Warn: told.warn})
	src := sourceOf(t, s, box, &authority{})
	mustGive(t, src, credstore.Request{}, "A0")
	mustGive(t, src, credstore.Request{}, "A0")
	if got := told.all(); !strings.Contains(got, "0644") || !strings.Contains(got, storePath(dir)) || strings.Contains(got, "\n") {
		t.Errorf("said: %q", got)
	}
	mustGive(t, src, credstore.Request{Refresh: true}, "A-new-1")
	if info, err := os.Stat(storePath(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAPlaceThatOthersMayChangeIsRefused(t *testing.T) {
	for _, sub := range []string{"", "sessions", "locks"} {
		for _, mode := range []fs.FileMode{0o777, 0o720, 0o702} {
			t.Run(fmt.Sprintf("%q %04o", sub, mode), func(t *testing.T) {
				dir := stateDir(t)
				putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
				before := bytesOf(t, storePath(dir))
				path := filepath.Join(dir, sub)
				if err := os.MkdirAll(path, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
				a := &authority{}
				s := open(t, credstore.Config{Dir: dir})
				err := mustRefuse(t, sourceOf(t, s, box, a), credstore.Request{}, credstore.ErrUnsafe)
				if err != nil && !strings.Contains(err.Error(), path) {
					t.Errorf("%v", err)
				}
				if err := s.SetStatic(t.Context(), box, secret.New("S")); !errors.Is(err, credstore.ErrUnsafe) {
					t.Errorf("static: %v", err)
				}
				mustHaveSent(t, a)
				if bytesOf(t, storePath(dir)) != before {
					t.Error("the store has changed")
				}
			})
		}
	}
}

func TestWhatIsNoFileInAFilesPlaceIsRefusedAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		path string
		want error
	}{
		"the store":        {"remote-credentials.json", credstore.ErrUnsafe},
		"the session file": {"sessions/box.json", credstore.ErrUnsafe},
		"the target lock":  {"locks/box.lock", credstore.ErrLocked},
		"its guard":        {"locks/box.lock.guard", credstore.ErrLocked},
		"the store lock":   {"remote-credentials.json.lock", credstore.ErrLocked},
		"the other guard":  {"remote-credentials.json.lock.guard", credstore.ErrLocked},
	} {
		for kind, build := range map[string]func(path string) error{
			"FIFO":      func(path string) error { return unix.Mkfifo(path, 0o600) },
			"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		} {
			t.Run(name+" a "+kind, func(t *testing.T) {
				dir := stateDir(t)
				putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
				putSession(t, dir, box, session{})
				path := filepath.Join(dir, tt.path)
				_ = os.Remove(path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := build(path); err != nil {
					t.Fatal(err)
				}
				a := &authority{}
				s := open(t, credstore.Config{Dir: dir})
				err := mustRefuse(t, sourceOf(t, s, box, a), credstore.Request{}, tt.want)
				if err != nil && !strings.Contains(err.Error(), path) {
					t.Errorf("%v", err)
				}
				mustHaveSent(t, a)
				if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
					t.Error("it was replaced")
				}
			})
		}
	}
}
