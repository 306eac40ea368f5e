package movein

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// KubeloginName reports whether a file in kubelogin's cache is one of its
// tokens: the digest of how it was called, which cannot be turned back. A lock
// stands beside it, with ".lock" behind the name.
func KubeloginName(name string) bool {
	if len(name) != 64 {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// readKubelogin reads {"id_token", "refresh_token"}. The issuer and the client
// are those that the ID token names, and the ID token is what the program
// hands out; one that was told to use access tokens keeps those in its place,
// and they name no client.
func readKubelogin(members map[string]jsontext.Value) (Session, error) {
	r := reader{members: members}
	var s Session
	token := r.token("id_token")
	s.RefreshToken = r.token("refresh_token")
	switch {
	case r.err != nil:
		return Session{}, r.err
	case token.Empty():
		return Session{}, errors.New("it holds no id_token: is it a file of kubelogin?")
	case !s.readIDToken(token):
		return Session{}, errors.New("its id_token is no JWT, so it does not say whose session this is")
	}
	s.AccessToken, s.ExpiresAt = token, s.IDTokenExpires
	if len(s.Audience) == 1 {
		s.ClientID = s.Audience[0]
	}
	return s, nil
}

func writeKubelogin(g Given) ([]byte, error) {
	if !g.AccessIsIDToken || g.AccessToken.Empty() {
		return nil, errors.New("kubelogin wants an ID token, and the session has none")
	}
	out := builder{rest: g.Rest}
	out.set("id_token", g.AccessToken.Reveal())
	out.set("refresh_token", g.RefreshToken.Reveal())
	b, err := out.encode()
	return append(b, '\n'), err
}
