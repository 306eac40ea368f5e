// Package spendoncetest is a kit for testing programs that share an OAuth
// session whose refresh token is good for one use: a strict authorization
// server, with the resource that it protects, scripted and counted; and
// programs whose tokens a lease broker grants.
//
//	s, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
//	session := s.NewSession("alice")       // or sign in: Person.Authorize
//	... put the session where your program keeps it, run 64 of them ...
//	c := s.Counters()                      // Exchanges 1, DoubleSpends 0
//
// What is strict about it: a refresh token is spent by its first use, and a
// second use revokes everything that came of the same login. Authorization
// codes work once, for the client, redirect URI and PKCE challenge they were
// made for. Redirect URIs match exactly, but for the port of a loopback IP
// literal. A client that authenticates must do so in one way, the registered
// one if it registered, and may not give a parameter twice. A registered
// client uses the grant types that it registered for, and gets a refresh token
// only if that is one of them. Where a resource is required
// (RequireResource), every leg must name it.
//
// To kill a process exactly while the server has its request, shut a gate
// ([TokenServer.Hold]), wait for the request ([TokenServer.WaitForHeld]),
// kill, and wait until the server has noticed (Abandoned or AnswersLost, by
// [TokenServer.WaitFor]); then open the gate. At [Before] the dead client has
// spent nothing, at [After] its token is spent and the answer is lost.
// Scripted answers ([Answer]) do the rest of what servers do in the field.
//
// On Linux there is a lease broker too, with a socket and a state directory of
// its own: see StartBroker.
//
// The package spendoncetest/canary searches outputs and files for secrets.
//
// # Endpoints
//
//	/token                   oauth2 dialect: RFC 6749, form in, JSON out; refresh
//	                         tokens, codes, device codes, client credentials
//	/v1/identity/token       hypaware dialect: JSON in, access_jwt out
//	/authorize, /login       the code flow with PKCE; a form without scripts
//	/revoke                  RFC 7009
//	/register                RFC 7591; with ClientIDMetadata, a client may also
//	                         be the URL of a document about itself
//	/device_authorization    RFC 8628; people approve at /device
//	/jwks                    the key of ID tokens (ES256)
//	/resource, /resource/... 200 and JSON for a live access token, else 401, or
//	                         403 where its scope lacks the RequiredScope
//	/.well-known/...         RFC 8414, OpenID Connect Discovery; RFC 9728 for
//	                         each path under /resource, exactly
//
// # The control API
//
// Tools in any language run the server as a process ([Serve], or
// "spendonce conformance token-server"). It prints one JSON line ([Ready])
// and, at its end, another ([Final]). Its control API stands on the same
// listener, under /control/. It answers only to a loopback IP literal as
// Host, never to a request with an Origin, and only with the control secret
// of that run in the header Spendonce-Control. Bodies are JSON; a member it
// does not know is an error. Refusals are {"error": "..."} with status 400,
// 403, 404, or 504 for a wait that ran out.
//
//	U=http://127.0.0.1:40001/control H="Spendonce-Control: $SECRET"
//
//	curl -H "$H" $U/counters
//	  {"requests":3,"token_posts":2,"exchanges":1,"double_spends":1, ...}
//
//	curl -H "$H" $U/log
//	  [{"time":"...","method":"POST","path":"/token","token":"9f86d081884c7d65",
//	    "status":400,"outcome":"invalid_grant"}, ...]
//
//	curl -H "$H" $U/sessions -d '{"account":"alice"}'
//	  {"account":"alice","client_id":"spendonce-test","access_token":"at_...",
//	   "refresh_token":"rt_...","expires_at":"2026-01-02T03:04:05Z"}
//
//	curl -H "$H" $U/script -d '[{"status":429,"header":{"Retry-After":"7"}},
//	    {"set":{"expires_in":1e18},"omit":["refresh_token"],"times":2},
//	    {"error":"invalid_grant","error_description":"bad {refresh_token}"},
//	    {"drop":"after"}, {"endpoint":"resource","status":403,"times":-1}]'
//	curl -H "$H" -X DELETE $U/script
//
//	curl -H "$H" $U/hold -d '{"point":"before"}'
//	curl -H "$H" "$U/wait?posts=1&held_before=1&timeout_ms=10000"
//	curl -H "$H" $U/release -d '{"point":"before"}'
//
//	curl -H "$H" -X POST $U/expire
//	curl -H "$H" $U/revoke -d '{"access_token":"at_..."}'
//	curl -H "$H" $U/revoke -d '{"family":"any token of it"}'
//	curl -H "$H" $U/live -d '{"access_token":"at_..."}'
//	  {"live":true}
//
//	curl -H "$H" $U/config
//	curl -H "$H" $U/config -d '{"latency_ms":1000,"reuse_grace_ms":30000}'
//	  {"lifetime_ms":3600000,"latency_ms":1000,"reuse_grace_ms":30000, ...}
//	curl -H "$H" $U/config -d '{"required_scope":"files:write",
//	    "challenge_scope":"files:read","require_resource":"/resource"}'
//	curl -H "$H" $U/config -d '{"client_id_metadata":true,"no_registration":true}'
//
//	curl -H "$H" $U/device -d '{"user_code":"ABCD-EFGH","account":"alice"}'
//	curl -H "$H" $U/device -d '{"user_code":"ABCD-EFGH","deny":true}'
//	curl -H "$H" -X DELETE $U/clients -d '{"client_id":"client_..."}'
//
// wait takes the name of any counter, and answers with all of them as soon as
// each is at least what was asked (posts is short for token_posts; the limit
// is timeout_ms, 30 s if not given, at most 10 minutes). The members of a
// script are those of [Answer], of config those that [TokenServer.Configure]
// may change. live tells of a refresh token whether its first use is still to
// come. revoke ends an access token alone, a refresh token with its session.
// Verbs without a result answer {"ok":true}.
package spendoncetest
