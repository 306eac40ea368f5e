package helper_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/helper"
	"github.com/spendonce/spendonce/internal/secret"
)

func TestAnswersAreTheseBytes(t *testing.T) {
	static := helper.Credential{Token: token.Token}
	odd := helper.Credential{Token: secret.New(`a'b\c"$d`)}
	env := func(f helper.Format, c helper.Credential) func(io.Writer) error {
		return func(out io.Writer) error { return helper.WriteEnvironment(out, f, "ACCESS_TOKEN", c) }
	}
	for _, c := range []struct {
		name  string
		write func(io.Writer) error
		want  string
	}{
		{
			"docker", func(out io.Writer) error { return helper.WriteDocker(out, "registry.example.com", "oauth2", token) },
			`{"ServerURL":"registry.example.com","Username":"oauth2","Secret":"at_canary"}` + "\n",
		},
		{
			"docker identity token", func(out io.Writer) error {
				return helper.WriteDocker(out, "https://registry.example.com/v2/", helper.DockerIdentityToken, static)
			},
			`{"ServerURL":"https://registry.example.com/v2/","Username":"<token>","Secret":"at_canary"}` + "\n",
		},
		{
			"docker list", func(out io.Writer) error {
				return helper.WriteDockerList(out, map[string]string{"quay.io": "$oauthtoken", "a.example.com": "oauth2"})
			},
			`{"a.example.com":"oauth2","quay.io":"$oauthtoken"}` + "\n",
		},
		{"docker empty list", func(out io.Writer) error { return helper.WriteDockerList(out, map[string]string{}) }, "{}\n"},
		{
			"kubectl", func(out io.Writer) error { return helper.WriteExecCredential(out, helper.ExecV1, token) },
			`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"expirationTimestamp":"2030-01-02T03:04:05Z","token":"at_canary"}}` + "\n",
		},
		{
			"kubectl v1beta1, unknown expiry", func(out io.Writer) error { return helper.WriteExecCredential(out, helper.ExecV1beta1, static) },
			`{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"at_canary"}}` + "\n",
		},
		{"headers", func(out io.Writer) error { return helper.WriteHeaders(out, token) }, `{"Authorization":"Bearer at_canary"}` + "\n"},
		{"sh", env(helper.FormatShell, token), "export ACCESS_TOKEN='at_canary'\nexport ACCESS_TOKEN_EXPIRES_AT='2030-01-02T03:04:05Z'\n"},
		{"sh, odd and of unknown expiry", env(helper.FormatShell, odd), `export ACCESS_TOKEN='a'\''b\c"$d'` + "\nunset ACCESS_TOKEN_EXPIRES_AT\n"},
		{"fish", env(helper.FormatFish, token), "set -gx ACCESS_TOKEN 'at_canary'\nset -gx ACCESS_TOKEN_EXPIRES_AT '2030-01-02T03:04:05Z'\n"},
		{"fish, odd", env(helper.FormatFish, odd), `set -gx ACCESS_TOKEN 'a\'b\\c"$d'` + "\nset -e ACCESS_TOKEN_EXPIRES_AT; or true\n"},
		{"json", env(helper.FormatJSON, token), `{"ACCESS_TOKEN":"at_canary","ACCESS_TOKEN_EXPIRES_AT":"2030-01-02T03:04:05Z"}` + "\n"},
		{"json, odd", env(helper.FormatJSON, odd), `{"ACCESS_TOKEN":"a'b\\c\"$d"}` + "\n"},
		{"dotenv", env(helper.FormatDotenv, token), "ACCESS_TOKEN='at_canary'\nACCESS_TOKEN_EXPIRES_AT='2030-01-02T03:04:05Z'\n"},
		{"dotenv, unknown expiry", env(helper.FormatDotenv, static), "ACCESS_TOKEN='at_canary'\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out counting
			if err := c.write(&out); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want || out.writes != 1 {
				t.Errorf("wrote, in %d calls,\n%s\nnot\n%s", out.writes, out.String(), c.want)
			}
		})
	}
}

// counting counts the calls of Write: a reader must not see part of an
// answer.
type counting struct {
	strings.Builder
	writes int
}

func (c *counting) Write(p []byte) (int, error) {
	c.writes++
	return c.Builder.Write(p)
}

func (c *counting) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

func TestVariablesThatCannotBeSetAreRefused(t *testing.T) {
	quote := helper.Credential{Token: secret.New("a'b")}
	for name, err := range map[string]error{
		"a name with a dash":     helper.WriteEnvironment(io.Discard, helper.FormatShell, "A-B", token),
		"a name with a command":  helper.WriteEnvironment(io.Discard, helper.FormatShell, "A;rm", token),
		"a name with a digit":    helper.WriteEnvironment(io.Discard, helper.FormatShell, "1A", token),
		"no name":                helper.WriteEnvironment(io.Discard, helper.FormatShell, "", token),
		"a format of no shell":   helper.WriteEnvironment(io.Discard, "cmd", "A", token),
		"a quote in a dotenv":    helper.WriteEnvironment(io.Discard, helper.FormatDotenv, "A", quote),
		"an output that is full": helper.WriteEnvironment(full{}, helper.FormatShell, "A", token),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		} else if strings.Contains(err.Error(), "at_canary") {
			t.Errorf("%s: the error holds the token", name)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestTheUserNameIsTheOneThatTheRegistryDemands(t *testing.T) {
	for host, want := range map[string]string{
		"europe-docker.pkg.dev": "oauth2accesstoken", "gcr.io": "oauth2accesstoken", "EU.gcr.io:443": "oauth2accesstoken",
		"quay.io": "$oauthtoken", "quay.io:443": "$oauthtoken",
		"registry.gitlab.com": "oauth2", "registry.example.com": "oauth2",
		"notgcr.io": "oauth2", "gcr.io.evil.example": "oauth2", "quay.io.evil.example": "oauth2",
	} {
		if got := helper.DockerUsername(host); got != want {
			t.Errorf("%s: %s, not %s", host, got, want)
		}
	}
}

func TestTheServerOfDockerIsReadAsItStands(t *testing.T) {
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{"registry.example.com", "registry.example.com", true},
		{"https://index.docker.io/v1/\n", "https://index.docker.io/v1/", true},
		{"  localhost:5000\r\n", "localhost:5000", true},
		{"", "", false},
		{"\n", "", false},
		{"a\nb", "", false},
		{"a b", "", false},
		{"a\x00", "", false},
		{"rëgistry", "", false},
		{strings.Repeat("a", 64<<10+1), "", false},
		{strings.Repeat("a", 1<<20+1), "", false},
	} {
		got, err := helper.ReadDockerServer(strings.NewReader(c.in))
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%.40q: %.40q, %v", c.in, got, err)
		}
	}
}

// The variable as client-go sets it.
func TestTheQuestionOfKubectlIsRead(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        helper.ExecInfo
		ok          bool
	}{
		{"v1", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":true}}`, helper.ExecInfo{Version: helper.ExecV1}, true},
		{"v1beta1", `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{"interactive":false}}`, helper.ExecInfo{Version: helper.ExecV1beta1}, true},
		{
			"with its cluster", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://10.0.0.1:6443","certificate-authority-data":"QUFB","config":{"x":[1]}},"interactive":false}}`,
			helper.ExecInfo{Version: helper.ExecV1, Server: "https://10.0.0.1:6443"}, true,
		},
		{"v1alpha1", `{"apiVersion":"client.authentication.k8s.io/v1alpha1","kind":"ExecCredential","spec":{}}`, helper.ExecInfo{}, false},
		{"v2", `{"apiVersion":"client.authentication.k8s.io/v2","kind":"ExecCredential","spec":{}}`, helper.ExecInfo{}, false},
		{"another kind", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"Pod"}`, helper.ExecInfo{}, false},
		{"no JSON", `at_canary`, helper.ExecInfo{}, false},
		{"two servers", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://evil","server":"https://good"}}}`, helper.ExecInfo{}, false},
		{"more behind it", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"} {}`, helper.ExecInfo{}, false},
		{"over 1 MiB", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","x":"` + strings.Repeat("a", 1<<20) + `"}`, helper.ExecInfo{}, false},
	} {
		got, err := helper.ParseExecInfo(c.value)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if err != nil && (!errors.Is(err, helper.ErrInput) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
