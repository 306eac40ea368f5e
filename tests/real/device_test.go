package real_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/real/zitadelserver"
)

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// deviceAnswer is what a device authorization endpoint says (RFC 8628).
type deviceAnswer struct {
	DeviceCode string `json:"device_code"`
	UserCode   string `json:"user_code"`
	Page       string `json:"verification_uri"`
	PageWithID string `json:"verification_uri_complete"`
}

func askForDeviceCode(t *testing.T, s *zitadelserver.Server) deviceAnswer {
	t.Helper()
	response, err := http.PostForm(s.DeviceEndpoint(), url.Values{
		"client_id": {s.ClientID()}, "scope": {strings.Join(s.Scopes(), " ")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer deviceAnswer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("device authorization: status %d, %v", response.StatusCode, err)
	}
	return answer
}

func startDeviceServer(t *testing.T) *zitadelserver.Server {
	t.Helper()
	s := zitadelserver.Start(zitadelserver.Config{})
	t.Cleanup(s.Close)
	return s
}

func TestDeviceServerIssuesAPairThatCanBeRefreshed(t *testing.T) {
	ctx := testContext(t)
	s := startDeviceServer(t)
	client := newRawClient(t, s)
	device := askForDeviceCode(t, s)
	poll := url.Values{"grant_type": {deviceGrant}, "device_code": {device.DeviceCode}, "client_id": {s.ClientID()}}

	if answer, err := client.post(ctx, poll); err != nil || answer.Error != "authorization_pending" {
		t.Fatalf("before anybody came: status %d, error %q, %v", answer.Status, answer.Error, err)
	}
	if _, err := s.Account().Visit(ctx, device.PageWithID); err != nil {
		t.Fatal(err)
	}
	first, err := client.post(ctx, poll)
	if err != nil || !s.Live(ctx, first.AccessToken) {
		t.Fatalf("after the person: status %d, error %q, %v", first.Status, first.Error, err)
	}
	second, err := client.refresh(ctx, first.RefreshToken)
	if err != nil || !s.Live(ctx, second.AccessToken) {
		t.Errorf("refresh: status %d, error %q, %v", second.Status, second.Error, err)
	}
}

func TestDeviceServerTellsWhenThePersonSaysNo(t *testing.T) {
	ctx := testContext(t)
	s := startDeviceServer(t)
	device := askForDeviceCode(t, s)
	who := s.Account()
	who.Deny = true
	if _, err := who.Visit(ctx, device.PageWithID); err != nil {
		t.Fatal(err)
	}
	answer, err := newRawClient(t, s).post(ctx, url.Values{
		"grant_type": {deviceGrant}, "device_code": {device.DeviceCode}, "client_id": {s.ClientID()},
	})
	if err != nil || answer.Error != "access_denied" {
		t.Errorf("status %d, error %q, %v; want access_denied", answer.Status, answer.Error, err)
	}
}
