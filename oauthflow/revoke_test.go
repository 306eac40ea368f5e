package oauthflow_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

func TestRevocationIsTolerant(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		ok     bool
		class  oauthflow.Class
	}{
		{200, "", true, 0}, {200, "{}", true, 0}, {204, "", true, 0}, {200, "<html>OK", true, 0},
		{400, `{"error":"invalid_token"}`, true, 0},
		{400, `{"error":"unsupported_token_type"}`, false, oauthflow.ClassWrongRequest},
		{401, `{"error":"invalid_client"}`, false, oauthflow.ClassClientDead},
		{401, `no`, false, oauthflow.ClassTemporary},
		{503, "", false, oauthflow.ClassTemporary}, {302, "", false, oauthflow.ClassTemporary}, {404, "<html>", false, oauthflow.ClassTemporary},
	} {
		s := serve(t, reply(c.status, "", c.body))
		err := requester(s).Revoke(deadline(t), oauthflow.Server{RevocationEndpoint: s.URL}, oauthflow.Client{ID: "cid"}, secret.New("RT1"), "refresh_token")
		if c.ok != (err == nil) || err != nil && asError(t, err).Class != c.class {
			t.Errorf("%d %q: %v", c.status, c.body, err)
		}
		form, _ := url.ParseQuery(s.seen()[0].body)
		if form.Get("token") != "RT1" || form.Get("token_type_hint") != "refresh_token" || form.Get("client_id") != "cid" {
			t.Errorf("form %q", form)
		}
	}
	err := (&oauthflow.Requester{}).Revoke(deadline(t), oauthflow.Server{}, oauthflow.Client{}, secret.New("RT1"), "")
	if !errors.Is(err, oauthflow.ErrNoRevocation) || !asError(t, err).NotSent {
		t.Errorf("without an endpoint: %v", err)
	}
}
