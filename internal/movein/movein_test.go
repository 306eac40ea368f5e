package movein_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/movein"
	"github.com/spendonce/spendonce/internal/secret"
)

// The URL that the files in testdata were made for.
const (
	madeFor  = "http://127.0.0.1:34917/resource"
	madeHash = "cf65193c9afbffd18e24789764461b0f"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "mcp-remote-0.15.1", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheFilesOfMCPRemoteAreFoundByTheURLOfTheirServer(t *testing.T) {
	if got := movein.MCPRemoteHash(madeFor, ""); got != madeHash {
		t.Errorf("the name begins with %s, and mcp-remote's with %s", got, madeHash)
	}
	if movein.MCPRemoteHash(madeFor, "https://r.example") == madeHash {
		t.Error("a resource makes no difference")
	}
}

func TestWhatMCPRemoteWroteIsUnderstood(t *testing.T) {
	s, err := movein.Read(movein.MCPRemote, movein.Files{Tokens: golden(t, "tokens.json"), Client: golden(t, "client_info.json")})
	if err != nil {
		t.Fatal(err)
	}
	if s.Issuer != "http://127.0.0.1:34917" || s.Subject != "alice" || s.Email != "alice@example.test" {
		t.Errorf("issuer %q, subject %q, email %q", s.Issuer, s.Subject, s.Email)
	}
	if !strings.HasPrefix(s.ClientID, "client_") || !s.Registered || s.RedirectURI != "http://localhost:10612/oauth/callback" || s.ClientAuth != "none" {
		t.Errorf("client %q, registered %t, redirect %q, method %q", s.ClientID, s.Registered, s.RedirectURI, s.ClientAuth)
	}
	if !strings.HasPrefix(s.AccessToken.Reveal(), "at_") || !strings.HasPrefix(s.RefreshToken.Reveal(), "rt_") || s.IDToken.Empty() {
		t.Error("a token is missing or is another")
	}
	if s.ExpiresAt.UnixMilli() != 1796071237684 || s.Lifetime != time.Hour || !slices.Equal(s.Scope, []string{"openid", "offline_access"}) {
		t.Errorf("expires %v, lifetime %v, scope %v", s.ExpiresAt, s.Lifetime, s.Scope)
	}
}

func TestWithoutATimeTheLifetimeCountsFromTheWriting(t *testing.T) {
	written := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, p := range []movein.Program{movein.MCPRemote, movein.File} {
		s, err := movein.Read(p, movein.Files{
			Tokens: []byte(`{"access_token":"at","token_type":"Bearer","expires_in":"600","refresh_token":"rt"}`), Mtime: written,
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := written.Add(10 * time.Minute); !s.ExpiresAt.Equal(want) {
			t.Errorf("%s: expires %v, want %v", p, s.ExpiresAt, want)
		}
	}
}

func jwt(claims map[string]any) string {
	b, _ := json.Marshal(claims)
	return "e30." + base64.RawURLEncoding.EncodeToString(b) + ".c2ln"
}

func TestKubeloginsIDTokenSaysWhoseSessionItIs(t *testing.T) {
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	id := jwt(map[string]any{"iss": "https://login.example.com", "aud": "kube", "sub": "u1", "email": "u@example.com", "exp": expires.Unix()})
	b, _ := json.Marshal(map[string]string{"id_token": id, "refresh_token": "rt"})
	s, err := movein.Read(movein.Kubelogin, movein.Files{Tokens: b})
	if err != nil {
		t.Fatal(err)
	}
	if s.Issuer != "https://login.example.com" || s.ClientID != "kube" || s.Subject != "u1" || !s.IDTokenExpires.Equal(expires) || !s.AccessToken.Equal(s.IDToken) {
		t.Errorf("read %q %q %q %v", s.Issuer, s.ClientID, s.Subject, s.IDTokenExpires)
	}
	// With two audiences nobody knows which is the client.
	b, _ = json.Marshal(map[string]string{"id_token": jwt(map[string]any{"iss": "https://a", "aud": []string{"a", "b"}}), "refresh_token": "rt"})
	if s, err := movein.Read(movein.Kubelogin, movein.Files{Tokens: b}); err != nil || s.ClientID != "" {
		t.Errorf("client %q, %v", s.ClientID, err)
	}
}

func TestWhatIsNoSessionIsRefusedWithoutAWordOfIt(t *testing.T) {
	const canary = "canary-7f3a"
	for name, c := range map[string]struct {
		program movein.Program
		tokens  string
		client  string
		want    string
	}{
		"empty":                 {movein.MCPRemote, " \n", "", "it is empty"},
		"html":                  {movein.MCPRemote, "<html>" + canary, "", "not valid JSON (at byte 0)"},
		"cut short":             {movein.MCPRemote, `{"access_token":"` + canary, "", "not valid JSON"},
		"a list":                {movein.File, `["` + canary + `"]`, "", "not a JSON object"},
		"null":                  {movein.File, `null`, "", "not a JSON object"},
		"a name twice":          {movein.File, `{"refresh_token":"a","refresh_token":"` + canary + `"}`, "", "not valid JSON"},
		"bytes behind":          {movein.File, `{"refresh_token":"a"} ` + canary, "", "not valid JSON"},
		"bad UTF-8":             {movein.File, "{\"refresh_token\":\"" + canary + "\xff\"}", "", "not valid JSON"},
		"a number for a token":  {movein.MCPRemote, `{"access_token":"` + canary + `","refresh_token":7}`, "", "member refresh_token is not a string"},
		"a token with a space":  {movein.MCPRemote, `{"access_token":"a","refresh_token":"` + canary + ` x"}`, "", "member refresh_token holds characters"},
		"a newline in a name":   {movein.File, `{"refresh_token":"a","client_id":"` + canary + `\n"}`, "", "member client_id holds control characters"},
		"no refresh token":      {movein.MCPRemote, `{"access_token":"` + canary + `"}`, "", "no refresh token"},
		"no access token":       {movein.MCPRemote, `{"refresh_token":"` + canary + `"}`, "", "no access_token"},
		"registration is HTML":  {movein.MCPRemote, `{"access_token":"a","refresh_token":"b"}`, "<html>" + canary, "registration (client_info.json): it is not valid JSON"},
		"registration no id":    {movein.MCPRemote, `{"access_token":"a","refresh_token":"b"}`, `{"x":"` + canary + `"}`, "names no client_id"},
		"redirects are no list": {movein.MCPRemote, `{"access_token":"a","refresh_token":"b"}`, `{"client_id":"c","redirect_uris":"` + canary + `"}`, "member redirect_uris is not a list"},
		"no ID token":           {movein.Kubelogin, `{"refresh_token":"` + canary + `"}`, "", "no id_token"},
		"ID token no JWT":       {movein.Kubelogin, `{"id_token":"` + canary + `","refresh_token":"b"}`, "", "no JWT"},
		"a time that is none":   {movein.File, `{"refresh_token":"a","expires_at":"` + canary + `"}`, "", "expires_at is neither"},
	} {
		t.Run(name, func(t *testing.T) {
			f := movein.Files{Tokens: []byte(c.tokens)}
			if c.client != "" {
				f.Client = []byte(c.client)
			}
			_, err := movein.Read(c.program, f)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canary) {
				t.Errorf("%v, want %q and nothing of the file", err, c.want)
			}
		})
	}
}

// What is written is read again as the same session: the program it goes back
// to reads no less than we do.
func TestWhatIsGivenBackIsReadAgainAsTheSameSession(t *testing.T) {
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	id := jwt(map[string]any{"iss": "https://a.example.com", "aud": "c", "exp": expires.Unix()})
	for _, p := range []movein.Program{movein.MCPRemote, movein.Kubelogin, movein.File} {
		before := movein.Files{Tokens: []byte(`{"access_token":"old","id_token":"` + id + `","refresh_token":"old","token_type":"bearer","requested_scope":"x y","issuer":"https://a.example.com","client_id":"c"}`)}
		s, err := movein.Read(p, before)
		if err != nil {
			t.Fatal(err)
		}
		g := movein.Given{AccessToken: secret.New("new"), RefreshToken: secret.New("rt-new"), ExpiresAt: expires, Scope: []string{"x"}, Rest: s.Rest}
		if p == movein.Kubelogin {
			g.AccessToken, g.AccessIsIDToken = secret.New(id), true
		}
		b, err := movein.Write(p, g, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		after, err := movein.Read(p, movein.Files{Tokens: b})
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		if !after.AccessToken.Equal(g.AccessToken) || !after.RefreshToken.Equal(g.RefreshToken) || !after.ExpiresAt.Equal(expires) || after.Issuer != s.Issuer {
			t.Errorf("%s: another session: expires %v, issuer %q", p, after.ExpiresAt, after.Issuer)
		}
		if p == movein.MCPRemote && (string(after.Rest["requested_scope"]) != `"x y"` || string(after.Rest["token_type"]) != `"bearer"`) {
			t.Errorf("what stood beside the tokens is lost: %s", after.Rest)
		}
	}
}

func TestKubeloginIsGivenNoAccessToken(t *testing.T) {
	if _, err := movein.Write(movein.Kubelogin, movein.Given{AccessToken: secret.New("at"), RefreshToken: secret.New("rt")}, time.Now()); err == nil {
		t.Error("it was given one")
	}
}

func TestAHolderIsReadFromTheLocksOfEveryVersion(t *testing.T) {
	for text, want := range map[string]int{
		`{"pid":12,"nonce":"n","at":1796071237684}`:       12,
		`{"pid":12,"port":3334,"timestamp":179607123768}`: 12,
		`{"pid":"x","at":1}`:                              0,
		`{"pid":-1,"at":1}`:                               0,
		`{"pid":1.5,"at":1}`:                              0,
		`{"pid":1e300,"at":1}`:                            0,
		`{"pid":12}`:                                      0,
		``:                                                0,
		`[]`:                                              0,
	} {
		if pid, _, _ := movein.MCPRemoteHolder([]byte(text)); pid != want {
			t.Errorf("%s: process %d, want %d", text, pid, want)
		}
	}
	if pid, at, ok := movein.MCPRemoteHolder(movein.MCPRemoteLeaseOf(7, "n", time.UnixMilli(9))); pid != 7 || at.UnixMilli() != 9 || !ok {
		t.Error("our own lease is not read")
	}
}

func FuzzReadingNeverPanicsAndKeepsSecretsToItself(f *testing.F) {
	f.Add([]byte(`{"access_token":"a","refresh_token":"canary-7f3a","expires_in":1e9,"expires_at":"x"}`))
	f.Add([]byte(`{"id_token":"a.e30.c","refresh_token":"canary-7f3a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range []movein.Program{movein.MCPRemote, movein.Kubelogin, movein.File} {
			s, err := movein.Read(p, movein.Files{Tokens: b, Client: b, Mtime: time.Unix(1e9, 0)})
			if err != nil && strings.Contains(err.Error(), "canary-7f3a") {
				t.Errorf("%s: the error quotes the file", p)
			}
			if err == nil && s.RefreshToken.Empty() {
				t.Errorf("%s: a session without a refresh token", p)
			}
			for name := range s.Rest {
				if strings.HasSuffix(name, "_token") || strings.Contains(name, "secret") {
					t.Errorf("%s: the rest holds %s", p, name)
				}
			}
		}
	})
}
