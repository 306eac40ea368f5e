package credstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

// What needs no refresh touches neither a lock nor the network, and makes no
// file.
func TestWhatIsFreshIsServedWithoutALockOrTheNetwork(t *testing.T) {
	for name, tt := range map[string]struct {
		record   record
		session  session
		req      credstore.Request
		variable string
		want     string
	}{
		"an override":                               {record: oidc("R0", "A0", in(-time.Hour)), variable: " token-from-outside\n", want: "token-from-outside"},
		"a static token":                            {record: record{"kind": "static", "token": "S"}, want: "S"},
		"a static token, whatever D":                {record: record{"kind": "static", "token": "S"}, req: credstore.Request{MinValid: time.Hour}, want: "S"},
		"another one than the rejected static":      {record: record{"kind": "static", "token": "S"}, req: credstore.Request{Rejected: secret.New("X")}, want: "S"},
		"a fresh one":                               {record: oidc("R0", "A0", in(2*time.Minute)), want: "A0"},
		"one of unknown expiry":                     {record: oidc("R0", "A0", time.Time{}), want: "A0"},
		"one of unknown expiry, whatever D":         {record: oidc("R0", "A0", time.Time{}), req: credstore.Request{MinValid: 1000 * time.Hour}, want: "A0"},
		"one that lives as long as asked":           {record: oidc("R0", "A0", in(2*time.Hour)), req: credstore.Request{MinValid: time.Hour}, want: "A0"},
		"another one than the rejected":             {record: oidc("R0", "A0", in(2*time.Minute)), req: credstore.Request{Rejected: secret.New("A-old")}, want: "A0"},
		"a short-lived one in its first half":       {record: oidc("R0", "A0", in(40*time.Second)), session: session{"lifetimeSeconds": 60}, want: "A0"},
		"one without a refresh token":               {record: oidc("", "A0", in(time.Hour)), want: "A0"},
		"one beside a session that needs a login":   {record: oidc("R0", "A0", in(time.Hour)), session: session{"refreshToken": secret.New("R0").Fingerprint(), "loginRequired": "refused"}, want: "A0"},
		"one whose settings nobody needs to read":   {record: oidc("R0", "A0", in(time.Hour)), want: "A0"},
		"an override beside nothing that is stored": {variable: "token-from-outside", want: "token-from-outside"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			if tt.record != nil {
				putStore(t, dir, map[string]record{box: tt.record})
			}
			if tt.session != nil {
				putSession(t, dir, box, tt.session)
			}
			if tt.variable != "" {
				t.Setenv(credstore.OverrideVariable(box), tt.variable)
			}
			before := namesIn(t, dir)
			var disk steps
			a := &authority{}
			asked := false
			src := sourceWith(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), credstore.SourceConfig{
				Target: box, Exchange: a.exchange,
				Settings: func() (credstore.Settings, error) {
					asked = true
					return credstore.Settings{}, errors.New("not to be read")
				},
			})
			mustGive(t, src, tt.req, tt.want)
			mustHaveSent(t, a)
			if asked {
				t.Error("the settings were read")
			}
			if got := disk.changes(); got != nil {
				t.Errorf("the disk was touched: %q", got)
			}
			if got := namesIn(t, dir); len(got) != len(before) {
				t.Errorf("files were made: %q, had %q", got, before)
			}
		})
	}
}

func TestWhatIsNotFreshIsRefreshed(t *testing.T) {
	for name, tt := range map[string]struct {
		record  record
		session session
		req     credstore.Request
	}{
		"expired":                               {record: oidc("R0", "A0", in(-time.Second))},
		"without an access token":               {record: oidc("R0", "", in(time.Hour))},
		"near its expiry":                       {record: oidc("R0", "A0", in(50*time.Second))},
		"short-lived, in its second half":       {record: oidc("R0", "A0", in(25*time.Second)), session: session{"lifetimeSeconds": 60}},
		"rejected":                              {record: oidc("R0", "A0", in(time.Hour)), req: credstore.Request{Rejected: secret.New("A0")}},
		"of unknown expiry and rejected":        {record: oidc("R0", "A0", time.Time{}), req: credstore.Request{Rejected: secret.New("A0")}},
		"to be refreshed anyway":                {record: oidc("R0", "A0", in(time.Hour)), req: credstore.Request{Refresh: true}},
		"shorter than asked":                    {record: oidc("R0", "A0", in(20*time.Minute)), req: credstore.Request{MinValid: 30 * time.Minute}},
		"without a kind":                        {record: record{"refreshToken": "R0", "accessJwt": "A0", "expiresAt": stamp(in(-time.Hour))}},
		"expired, as another program writes it": {record: record{"kind": "oidc", "refreshToken": "R0", "accessJwt": "A0", "expiresAt": "2020-01-02T03:04:05+01:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: tt.record})
			if tt.session != nil {
				putSession(t, dir, box, tt.session)
			}
			a := &authority{}
			src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
			mustGive(t, src, tt.req, "A-new-1")
			mustHaveSent(t, a, "R0")
			r := storeOf(t, dir)[box]
			if r["refreshToken"] != "R-new-1" || r["accessJwt"] != "A-new-1" || r["kind"] != "oidc" {
				t.Error("the new pair is not what stands in the store")
			}
			mustGive(t, src, credstore.Request{}, "A-new-1")
			mustHaveSent(t, a, "R0")
			if got := temps(namesIn(t, dir)); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func TestWhatCannotBeRefreshedIsRefusedWithTheReason(t *testing.T) {
	notBefore := stamp(in(5 * time.Minute))
	fingerprint := secret.New("R0").Fingerprint()
	for name, tt := range map[string]struct {
		record  record
		session session
		req     credstore.Request
		want    error
	}{
		"nothing":                     {want: credstore.ErrNoCredential},
		"of another program":          {record: record{"kind": "saml", "assertion": "x"}, want: credstore.ErrNoCredential},
		"no record at all":            {record: record{}, want: credstore.ErrNoCredential},
		"a rejected static token":     {record: record{"kind": "static", "token": "S"}, req: credstore.Request{Rejected: secret.New("S")}, want: credstore.ErrLoginRequired},
		"a static one to refresh":     {record: record{"kind": "static", "token": "S"}, req: credstore.Request{Refresh: true}, want: credstore.ErrLoginRequired},
		"expired without a successor": {record: oidc("", "A0", in(-time.Hour)), want: credstore.ErrLoginRequired},
		"refused before": {
			record: oidc("R0", "A0", in(-time.Hour)), session: session{"refreshToken": fingerprint, "loginRequired": "refused"},
			want: credstore.ErrLoginRequired,
		},
		"refused after an unknown outcome": {
			record: oidc("R0", "A0", in(-time.Hour)), session: session{"refreshToken": fingerprint, "loginRequired": "unknown"},
			want: credstore.ErrOutcomeUnknown,
		},
		"more than it ever lives": {
			record: oidc("R0", "A0", in(10*time.Minute)), session: session{"lifetimeSeconds": 900},
			req: credstore.Request{MinValid: 20 * time.Minute}, want: credstore.ErrMinValid,
		},
		"too early": {
			record: oidc("R0", "A0", in(-time.Hour)), want: credstore.ErrTemporary,
			session: session{"refreshToken": fingerprint, "notBefore": notBefore, "failures": 1, "lastOutcome": session{
				"id": "x", "time": stamp(in(-time.Second)), "refreshToken": fingerprint, "class": "temporary", "text": "busy",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			if tt.record != nil {
				putStore(t, dir, map[string]record{box: tt.record})
			}
			if tt.session != nil {
				putSession(t, dir, box, tt.session)
			}
			a := &authority{}
			src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
			err := mustRefuse(t, src, tt.req, tt.want)
			mustHaveSent(t, a)
			if err != nil && !strings.Contains(err.Error(), box) {
				t.Errorf("the error does not name the target: %v", err)
			}
			if errors.Is(tt.want, credstore.ErrOutcomeUnknown) && !errors.Is(err, credstore.ErrLoginRequired) {
				t.Error("an unknown outcome needs a login too")
			}
		})
	}
}

// What is bound to a refresh token is void for its successor.
func TestWhatWasSaidOfAnotherRefreshTokenIsVoid(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R1", "A0", in(-time.Hour))})
	old := secret.New("R0").Fingerprint()
	putSession(t, dir, box, session{"refreshToken": old, "loginRequired": "refused", "failures": 9, "notBefore": stamp(in(5 * time.Minute)),
		"lastOutcome": session{"id": "x", "time": stamp(in(0)), "refreshToken": old, "class": "refused"}})
	a := &authority{}
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, "A-new-1")
	mustHaveSent(t, a, "R1")
}

func TestANotBeforeThatIsFurtherThanItCanBeIsVoid(t *testing.T) {
	dir := stateDir(t)
	fp := secret.New("R0").Fingerprint()
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	putSession(t, dir, box, session{"refreshToken": fp, "notBefore": stamp(in(340 * time.Second)),
		"lastOutcome": session{"id": "x", "time": stamp(in(0)), "refreshToken": fp, "class": "temporary"}})
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, &authority{}), credstore.Request{}, "A-new-1")
}

// The exchange that was just made gives what it gives: expired at receipt it
// is handed out, shorter than asked it is an error; there is no loop.
func TestATokenThatIsExpiredAtReceiptIsUsedOnce(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{lifetime: -time.Nanosecond}
	src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
	mustGive(t, src, credstore.Request{}, "A-new-1")
	mustHaveSent(t, a, "R0")
	mustRefuse(t, src, credstore.Request{MinValid: time.Minute}, credstore.ErrMinValid)
	mustHaveSent(t, a, "R0", "R-new-1")
	mustGive(t, src, credstore.Request{}, "A-new-3")
}

func TestATokenShorterThanAskedIsSavedAndNotGiven(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{lifetime: 10 * time.Minute}
	src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
	mustRefuse(t, src, credstore.Request{MinValid: time.Hour}, credstore.ErrMinValid)
	mustHaveSent(t, a, "R0")
	// Now the lifetime is known, and nothing is sent for what it cannot be.
	mustRefuse(t, src, credstore.Request{MinValid: time.Hour}, credstore.ErrMinValid)
	mustHaveSent(t, a, "R0")
	mustGive(t, src, credstore.Request{}, "A-new-1")
}

func TestAnUnknownExpiryIsStoredAsEmptyAndUsedUntilItIsRejected(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		tokens := a.rotated(n)
		tokens.ExpiresAt, tokens.Lifetime = time.Time{}, 0
		return tokens, nil
	}
	src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
	mustGive(t, src, credstore.Request{}, "A-new-1")
	if got := storeOf(t, dir)[box]["expiresAt"]; got != "" {
		t.Errorf("expiresAt is %q", got)
	}
	mustGive(t, src, credstore.Request{MinValid: 100 * time.Hour}, "A-new-1")
	mustHaveSent(t, a, "R0")
	mustGive(t, src, credstore.Request{Rejected: secret.New("A-new-1")}, "A-new-2")
}

// A token that is valid for a while stands in for every refresh that fails.
func TestAValidTokenStandsInWhereItsRefreshFails(t *testing.T) {
	for name, f := range map[string]credstore.Failure{
		"temporary":         {Class: credstore.ClassTemporary, Status: 503, Text: "busy"},
		"refused":           {Class: credstore.ClassRefused, Status: 400, Code: "invalid_grant"},
		"a wrong request":   {Class: credstore.ClassRequest, Status: 400, Code: "invalid_request"},
		"an unknown client": {Class: credstore.ClassClientDead, Status: 401, Code: "invalid_client"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := stateDir(t)
				putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(50*time.Second))})
				var told warnings
				a := &authority{answer: failing(f)}
				src := sourceOf(t, open(t, credstore.Config{Dir: dir, Warn: told.warn}), box, a)
				mustGive(t, src, credstore.Request{}, "A0")
				mustGive(t, src, credstore.Request{}, "A0")
				mustHaveSent(t, a, "R0")
				if !strings.Contains(told.all(), "still valid") {
					t.Errorf("no warning: %q", told.all())
				}
				r := storeOf(t, dir)[box]
				if r["refreshToken"] != "R0" || r["accessJwt"] != "A0" {
					t.Error("the record has changed")
				}
				time.Sleep(50 * time.Second)
				want := credstore.ErrTemporary
				switch f.Class {
				case credstore.ClassRefused:
					want = credstore.ErrLoginRequired
				case credstore.ClassRequest, credstore.ClassClientDead:
					want = credstore.ErrRequest
				}
				mustRefuse(t, src, credstore.Request{}, want)
				if f.Class == credstore.ClassRefused {
					mustHaveSent(t, a, "R0") // what is refused is not asked again
				}
				if storeOf(t, dir)[box]["refreshToken"] != "R0" {
					t.Error("the record is not kept")
				}
			})
		})
	}
}

// Near its expiry a token is refreshed only if the lock is free; else it is
// handed out without a word.
func TestABusyLockGivesTheValidTokenSilently(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(40*time.Second))})
	a := &authority{}
	answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil })
	a.answer = answer
	first := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		mustGive(t, first, credstore.Request{}, "A-new-1")
	}()
	<-arrived
	var told warnings
	second := sourceOf(t, open(t, credstore.Config{Dir: dir, Warn: told.warn}), box, a)
	mustGive(t, second, credstore.Request{}, "A0")
	mustGive(t, first, credstore.Request{}, "A0") // in the same process, too
	if told.all() != "" {
		t.Errorf("said: %q", told.all())
	}
	close(proceed)
	<-done
	mustGive(t, second, credstore.Request{}, "A-new-1")
	mustHaveSent(t, a, "R0")
}

func TestOddNamesAreRefusedAsTargetsAndKeptInTheFile(t *testing.T) {
	dir := stateDir(t)
	odd := []string{"", ".", "..", "../box", "a/b", "-x", "_x", "a b", "a\nb", "b\u00f6x", strings.Repeat("a", 65), ".hidden", "a\x00b"}
	records := map[string]record{box: oidc("R0", "A0", in(-time.Hour))}
	s := open(t, credstore.Config{Dir: dir})
	for _, name := range odd {
		records[name] = record{"kind": "static", "token": "T"}
		if _, err := s.Source(credstore.SourceConfig{Target: name}); !errors.Is(err, credstore.ErrName) {
			t.Errorf("%q: %v", name, err)
		}
		for what, err := range map[string]error{
			"static": s.SetStatic(t.Context(), name, secret.New("x")),
			"login":  onlyError(s.Login(t.Context(), name, credstore.SignedIn{})),
			"remove": onlyError(s.Remove(t.Context(), name)),
		} {
			if !errors.Is(err, credstore.ErrName) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	for _, name := range []string{"a", "A.b-c_d", "0", strings.Repeat("a", 64)} {
		if _, err := s.Source(credstore.SourceConfig{Target: name, Exchange: (&authority{}).exchange}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := namesIn(t, dir); got != nil {
		t.Errorf("made: %q", got)
	}
	putStore(t, dir, records)
	mustGive(t, sourceOf(t, s, box, &authority{}), credstore.Request{}, "A-new-1")
	after := storeOf(t, dir)
	entries, err := s.List()
	if err != nil || len(entries) != len(odd)+1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		if e.Usable != (e.Target == box) {
			t.Errorf("%q is listed as usable: %t", e.Target, e.Usable)
		}
	}
	for _, name := range odd {
		if after[name]["token"] != "T" {
			t.Errorf("%q has not survived", name)
		}
	}
}

func TestTheStoreIsWhereTheEnvironmentSays(t *testing.T) {
	for name, tt := range map[string]struct{ state, xdg, home, want string }{
		"named":                {"/a/b", "/x", "/h", "/a/b"},
		"the state home":       {"", "/x", "/h", "/x/spendonce"},
		"a relative home":      {"", "x", "/h", "/h/.local/state/spendonce"},
		"home":                 {"", "", "/h", "/h/.local/state/spendonce"},
		"nowhere":              {"", "", "", ""},
		"a home that is none":  {"", "", "relative", ""},
		"named without a home": {"/a/b", "", "", "/a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SPENDONCE_STATE_DIR", tt.state)
			t.Setenv("XDG_STATE_HOME", tt.xdg)
			t.Setenv("HOME", tt.home)
			s, err := credstore.Open(credstore.Config{})
			switch {
			case tt.want == "" && (!errors.Is(err, credstore.ErrConfig) || !strings.Contains(err.Error(), "HOME")):
				t.Errorf("%v", err)
			case tt.want != "" && (err != nil || s.Path() != filepath.Join(tt.want, "remote-credentials.json")):
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

func TestAnOverrideNeverFallsThrough(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{"my-box.1": oidc("R0", "A0", in(time.Hour)), "MY_BOX_1": oidc("R1", "A1", in(time.Hour)), box: oidc("R2", "A2", in(time.Hour))})
	s := open(t, credstore.Config{Dir: dir, OtherNames: func() []string { return []string{"BOX.x", "box-x"} }})
	a := &authority{}
	for name, tt := range map[string]struct {
		target, value string
		req           credstore.Request
		want          string
		err           error
	}{
		"taken":                                {target: box, value: "V", want: "V"},
		"trimmed":                              {target: box, value: " \t V\r\n", want: "V"},
		"empty":                                {target: box, value: "", err: credstore.ErrOverride},
		"blank":                                {target: box, value: "  ", err: credstore.ErrOverride},
		"white space inside":                   {target: box, value: "V W", err: credstore.ErrOverride},
		"a control character":                  {target: box, value: "V\x01W", err: credstore.ErrOverride},
		"not ASCII":                            {target: box, value: "V\u00e9", err: credstore.ErrOverride},
		"rejected":                             {target: box, value: "V", req: credstore.Request{Rejected: secret.New("V")}, err: credstore.ErrLoginRequired},
		"another one rejected":                 {target: box, value: "V", req: credstore.Request{Rejected: secret.New("W")}, want: "V"},
		"to be refreshed":                      {target: box, value: "V", req: credstore.Request{Refresh: true}, err: credstore.ErrLoginRequired},
		"two stored targets with one name":     {target: "my-box.1", value: "V", err: credstore.ErrOverride},
		"the same, seen from the other":        {target: "MY_BOX_1", value: "V", err: credstore.ErrOverride},
		"two configured targets with one":      {target: "box-x", value: "V", err: credstore.ErrOverride},
		"one configured and one that is asked": {target: "box_x", value: "V", err: credstore.ErrOverride},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(credstore.OverrideVariable(tt.target), tt.value)
			src := sourceOf(t, s, tt.target, a)
			if tt.err == nil {
				mustGive(t, src, tt.req, tt.want)
				return
			}
			if err := mustRefuse(t, src, tt.req, tt.err); err != nil && !strings.Contains(err.Error(), credstore.OverrideVariable(tt.target)) {
				t.Errorf("the error does not name the variable: %v", err)
			}
		})
	}
	mustHaveSent(t, a)
	mustGive(t, sourceOf(t, s, "my-box.1", a), credstore.Request{}, "A0") // unset, one name for two is no error
}

func TestAnOverrideWorksBesideADamagedStore(t *testing.T) {
	dir := stateDir(t)
	putBytes(t, storePath(dir), []byte("{"))
	t.Setenv(credstore.OverrideVariable(box), "V")
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, &authority{}), credstore.Request{}, "V")
}

func TestASourceIsATokenSourceOfOAuth2(t *testing.T) {
	dir := stateDir(t)
	expires := in(time.Hour)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", expires)})
	got, err := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, &authority{}).Token()
	if err != nil || got.AccessToken != "A0" || !got.Expiry.Equal(expires) || got.RefreshToken != "" || !got.Valid() {
		t.Errorf("%v, %v", got, err)
	}
}
