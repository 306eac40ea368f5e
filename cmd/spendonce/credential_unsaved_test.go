//go:build crash && linux

package main_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// Another program throws away what came with an exit code. The token is valid
// and the only one there is, so it is served, and what is lost is said.
func TestATokenThatCannotBeSavedIsServedInEveryProtocol(t *testing.T) {
	i := newInjector(t)
	defer func() { i.t = t }()
	for _, c := range []struct {
		args   []string
		answer string
	}{
		{[]string{"credential", "headers", "work"}, `^\{"Authorization":"Bearer (at_[\w-]+)"\}$`},
		{[]string{"credential", "kubectl", "work"}, `^\{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":\{"expirationTimestamp":"[\dTZ:-]+","token":"(at_[\w-]+)"\}\}$`},
		{[]string{"credential", "env", "work", "--format", "dotenv"}, `^ACCESS_TOKEN='(at_[\w-]+)'\nACCESS_TOKEN_EXPIRES_AT='[\dTZ:-]+'$`},
		{[]string{"exec", "work", "--", "sh", "-c", `echo "$ACCESS_TOKEN"`}, `^(at_[\w-]+)$`},
	} {
		t.Run(strings.Join(c.args[:2], " "), func(t *testing.T) {
			i.t = t
			p := part{name: c.args[0], args: c.args, commit: true}
			r := i.inject(p, "renameat", "error=EIO", always)
			if len(r.injected) == 0 {
				t.Fatal("nothing was injected")
			}
			got := regexp.MustCompile(c.answer).FindStringSubmatch(r.out)
			if r.code != 0 || got == nil || !i.server.Live(got[1]) || !strings.Contains(r.err, "not saved") || !bytes.Equal(i.store(), i.old) {
				t.Fatalf("ended with %d, an answer of that form: %v; said: %s", r.code, got != nil, r.err)
			}
			found, err := canary.Find([]canary.Value{canary.Of("token", got[1])}, canary.Places{Outputs: map[string][]byte{"stderr": []byte(r.err)}})
			must(t, err)
			for _, f := range found {
				t.Error(f)
			}
		})
	}
}
