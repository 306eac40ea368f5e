package spendoncetest

import "time"

type authorization struct{}
type device struct{}

func (s *TokenServer) redeemCode(q *request, client Client, now time.Time) (*pair, *response) {
	return nil, oauthError(400, "unsupported_grant_type", "not yet")
}
func (s *TokenServer) redeemDevice(q *request, client Client, now time.Time) (*pair, *response) {
	return nil, oauthError(400, "unsupported_grant_type", "not yet")
}
