package wiretap_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/real/wiretap"
)

func serve(t *testing.T, answer string) (*wiretap.Tap, string) {
	t.Helper()
	tap := wiretap.New("/token", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/authorize" {
			http.Redirect(w, r, "http://127.0.0.1:1/callback?code=the-code&state=s", http.StatusSeeOther)
			return
		}
		if r.PostFormValue("grant_type") == "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, answer)
	}))
	s := httptest.NewServer(tap)
	t.Cleanup(s.Close)
	return tap, s.URL
}

func TestTapCountsWhateverIsPostedToTheTokenEndpoint(t *testing.T) {
	tap, address := serve(t, `{}`)
	for _, body := range []string{
		"grant_type=refresh_token&refresh_token=r",
		"grant_type=authorization_code&code=c",
		"%zz=not a form",
		`{"grant_type":"refresh_token"}`,
	} {
		response, err := http.Post(address+"/token", "application/x-www-form-urlencoded", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	for _, test := range []struct {
		grants []string
		want   int
	}{
		{nil, 4},
		{[]string{"refresh_token"}, 1},
		{[]string{"refresh_token", "authorization_code"}, 2},
		{[]string{"password"}, 0},
	} {
		if got := tap.TokenPosts(test.grants...); got != test.want {
			t.Errorf("token posts %q: %d, want %d", test.grants, got, test.want)
		}
	}
}

func TestTapRemembersSecretsOfBothWays(t *testing.T) {
	tap, address := serve(t, `{"access_token":"new-access","refresh_token":"new-refresh","error":"odd","scope":"public"}`)
	response, err := http.PostForm(address+"/token", url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {"old-refresh"}, "code_verifier": {"verifier"}, "client_id": {"public-client"},
	})
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	request, err := http.NewRequest(http.MethodGet, address+"/authorize", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "bearer used-access")
	if _, err := http.DefaultTransport.RoundTrip(request); err != nil {
		t.Fatal(err)
	}
	secrets := tap.Secrets()
	for _, want := range []string{"new-access", "new-refresh", "old-refresh", "verifier", "the-code", "used-access"} {
		if secrets[want] == "" {
			t.Errorf("%q is not remembered", want)
		}
	}
	if len(secrets) != 6 {
		t.Errorf("%d secrets, want 6: %v", len(secrets), secrets)
	}
	if last := tap.Log()[0]; last.Error != "odd" || last.Status != http.StatusOK {
		t.Errorf("log entry %+v", last)
	}
}

func TestTapHoldsOneAnswerUntilItIsReleased(t *testing.T) {
	tap, address := serve(t, `{"access_token":"a"}`)
	decided, release := tap.HoldNextAnswer()
	defer release()
	answered := make(chan error, 1)
	go func() {
		response, err := http.PostForm(address+"/token", url.Values{"grant_type": {"refresh_token"}})
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	<-decided
	select {
	case err := <-answered:
		t.Fatalf("answered while held (%v)", err)
	default:
	}
	// Only that one is held.
	response, err := http.PostForm(address+"/token", url.Values{"grant_type": {"refresh_token"}})
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	release()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
