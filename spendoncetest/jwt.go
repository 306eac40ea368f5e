package spendoncetest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

const signingKeyID = "spendonce-test-1"

// jwt signs claims with ES256.
func (s *TokenServer) jwt(typ string, claims map[string]any) string {
	header, _ := json.Marshal(map[string]string{"alg": "ES256", "kid": signingKeyID, "typ": typ})
	payload, _ := json.Marshal(claims)
	enc := base64.RawURLEncoding.EncodeToString
	signed := enc(header) + "." + enc(payload)
	sum := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, s.signer, sum[:])
	if err != nil {
		panic(err) // the system's random source never fails
	}
	var sig [64]byte
	r.FillBytes(sig[:32])
	v.FillBytes(sig[32:])
	return signed + "." + enc(sig[:])
}

func (s *TokenServer) accessJWT(f *family, now, expires time.Time) string {
	aud := any(s.base + pathResource)
	if len(f.resource) > 0 {
		aud = f.resource
	}
	return s.jwt("at+jwt", map[string]any{"iss": s.issuer, "sub": f.account, "aud": aud, "jti": random(),
		"client_id": f.client, "scope": f.scope, "iat": now.Unix(), "exp": expires.Unix()})
}

// idToken is given at login to those who asked for the scope openid.
func (s *TokenServer) idToken(f *family, now, expires time.Time) string {
	claims := map[string]any{"iss": s.issuer, "sub": f.account, "aud": f.client,
		"iat": now.Unix(), "exp": expires.Unix(), "auth_time": f.authTime.Unix(),
		"email": f.account + "@example.test", "email_verified": true}
	if f.nonce != "" {
		claims["nonce"] = f.nonce
	}
	return s.jwt("JWT", claims)
}

// jwks publishes the key that the JWTs are signed with.
func (s *TokenServer) jwks(*request) *response {
	point, err := s.signer.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return oauthError(500, "server_error", err.Error())
	}
	enc := base64.RawURLEncoding.EncodeToString
	return jsonResponse(200, map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": signingKeyID,
		"x": enc(point[1:33]), "y": enc(point[33:65])}}})
}

func hasScope(scope, word string) bool {
	for w := range strings.FieldsSeq(scope) {
		if w == word {
			return true
		}
	}
	return false
}
