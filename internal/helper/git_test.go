package helper_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/helper"
	"github.com/spendonce/spendonce/internal/secret"
)

var (
	expiry = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	token  = helper.Credential{Token: secret.New("at_canary"), ExpiresAt: expiry}
)

// What git 2.39 and 2.46 write, byte for byte, and what they read.
func TestAnswersToGitAreTheseBytes(t *testing.T) {
	const (
		early  = "protocol=https\nhost=git.example.com\n"
		recent = "capability[]=authtype\ncapability[]=state\nprotocol=https\nhost=git.example.com\n"
	)
	static := helper.Credential{Token: token.Token}
	for _, c := range []struct {
		name       string
		in         string
		credential helper.Credential
		username   string
		want       string
	}{
		{"git without authtype", early, token, "", "username=oauth2\npassword=at_canary\npassword_expiry_utc=1893553445\n"},
		{"unknown expiry", early, static, "", "username=oauth2\npassword=at_canary\n"},
		{"a configured user name", early, token, "me", "username=me\npassword=at_canary\npassword_expiry_utc=1893553445\n"},
		{"git's user name wins", early + "username=alice\n", token, "me", "username=alice\npassword=at_canary\npassword_expiry_utc=1893553445\n"},
		{
			"git with authtype and state", recent, token, "",
			"capability[]=authtype\ncapability[]=state\nauthtype=Bearer\ncredential=at_canary\nephemeral=true\npassword_expiry_utc=1893553445\nstate[]=spendonce.target=work\n",
		},
		{
			"authtype alone", "capability[]=authtype\n" + early, static, "",
			"capability[]=authtype\nauthtype=Bearer\ncredential=at_canary\nephemeral=true\n",
		},
		{
			"a server that takes Bearer beside Basic", recent + "wwwauth[]=Basic realm=\"x\"\nwwwauth[]=Bearer realm=\"x\"\n", static, "",
			"capability[]=authtype\ncapability[]=state\nauthtype=Bearer\ncredential=at_canary\nephemeral=true\nstate[]=spendonce.target=work\n",
		},
		{
			"a server that takes Basic alone", recent + "wwwauth[]=Basic realm=\"GitHub\"\n", static, "",
			"capability[]=authtype\ncapability[]=state\nusername=oauth2\npassword=at_canary\nephemeral=true\nstate[]=spendonce.target=work\n",
		},
		{
			"a list of challenges that was emptied", recent + "wwwauth[]=Basic realm=\"x\"\nwwwauth[]=\n", static, "",
			"capability[]=authtype\ncapability[]=state\nauthtype=Bearer\ncredential=at_canary\nephemeral=true\nstate[]=spendonce.target=work\n",
		},
		{"capabilities of another time", "capability[]=telepathy\nfrom[]=future\n" + early, static, "", "username=oauth2\npassword=at_canary\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := helper.ReadGit(strings.NewReader(c.in + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := r.Answer(&out, c.credential, c.username, "work"); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("answered\n%s\nnot\n%s", out.String(), c.want)
			}
		})
	}
}

func TestTheRejectedTokenOfAnEraseIsFound(t *testing.T) {
	for in, want := range map[string]string{
		"username=a\npassword=at_old\n":                                   "at_old",
		"authtype=Bearer\ncredential=at_new\n":                            "at_new",
		"authtype=bearer\ncredential=at_new\nusername=a\npassword=at_old": "at_new",
		"authtype=Basic\ncredential=b2F1dGgy\n":                           "",
		"protocol=https\nhost=x\n":                                        "",
	} {
		r, err := helper.ReadGit(strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Rejected.Reveal(); got != want {
			t.Errorf("%q: found %q, not %q", in, got, want)
		}
	}
}

func TestWhatGitWouldNeverWriteIsRefused(t *testing.T) {
	for name, in := range map[string]string{
		"NUL":                     "protocol=https\nhost=good.example.com\x00.evil.example\n",
		"carriage return":         "protocol=https\nhost=good.example.com\rhost=evil.example\n",
		"carriage return at end":  "protocol=https\r\nhost=a\r\n",
		"two hosts":               "protocol=https\nhost=evil.example\nhost=good.example.com\n",
		"two protocols":           "protocol=http\nprotocol=https\nhost=good.example.com\n",
		"two paths":               "protocol=https\nhost=a\npath=x\npath=y\n",
		"no equals sign":          "protocol\n",
		"a line over 64 KiB":      "protocol=https\nhost=" + strings.Repeat("a", 64<<10) + "\n",
		"over 1 MiB":              strings.Repeat("unknown="+strings.Repeat("a", 31)+"\n", 30000),
		"over 1 MiB without line": strings.Repeat("a", 1<<20+1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helper.ReadGit(strings.NewReader(in))
			if !errors.Is(err, helper.ErrInput) {
				t.Fatalf("not refused: %v", err)
			}
			if strings.Contains(err.Error(), "example") || strings.Contains(err.Error(), "aaaa") {
				t.Errorf("the error quotes its input: %v", err)
			}
		})
	}
}

func TestAnEmptyLineEndsTheRequest(t *testing.T) {
	r, err := helper.ReadGit(strings.NewReader("protocol=https\nhost=a\n\nhost=b\n"))
	if err != nil || r.Host != "a" {
		t.Fatalf("host %q, %v", r.Host, err)
	}
}

func TestAHostIsANameAndAPort(t *testing.T) {
	for host, ok := range map[string]bool{
		"git.example.com": true, "git.example.com:8443": true, "[::1]:80": true, "localhost": true,
		"":                             false,
		"git.example.com@evil.example": false, "evil.example/@git.example.com": false, "git.example.com/x": false,
		"git.example.com?x": false, "git.example.com#x": false, `git.example.com\x`: false, "git.example.com%2f": false,
		"git.example.com evil": false, "gıt.example.com": false,
	} {
		_, err := helper.GitRequest{Protocol: "https", Host: host}.URL()
		if (err == nil) != ok {
			t.Errorf("%q: %v", host, err)
		}
	}
	for _, protocol := range []string{"", "ssh", "cert", "HTTPS", "ftp"} {
		if _, err := (helper.GitRequest{Protocol: protocol, Host: "a"}).URL(); err == nil {
			t.Errorf("the protocol %q has a URL", protocol)
		}
	}
}

func TestNoAnswerCarriesATokenThatWouldSayMore(t *testing.T) {
	for _, bad := range []string{"", "a b", "a\nusername=evil", "a\r", "a\x00", "ü", "a\x7f"} {
		c := helper.Credential{Token: secret.New(bad)}
		var out strings.Builder
		for name, err := range map[string]error{
			"git":     helper.GitRequest{}.Answer(&out, c, "", "work"),
			"docker":  helper.WriteDocker(&out, "r", "u", c),
			"kubectl": helper.WriteExecCredential(&out, helper.ExecV1, c),
			"headers": helper.WriteHeaders(&out, c),
			"env":     helper.WriteEnvironment(&out, helper.FormatShell, "A", c),
		} {
			if err == nil || out.Len() > 0 {
				t.Errorf("%s took the token %q and wrote %q", name, bad, out.String())
			}
		}
	}
}

func TestAUserNameCannotSayMore(t *testing.T) {
	var out strings.Builder
	if err := (helper.GitRequest{}).Answer(&out, token, "a\npassword=x", "work"); err == nil || out.Len() > 0 {
		t.Errorf("took the user name, and wrote %q", out.String())
	}
}

func TestCapabilitiesAreTheseBytes(t *testing.T) {
	var out strings.Builder
	if err := helper.WriteGitCapabilities(&out); err != nil || out.String() != "version 0\ncapability authtype\ncapability state\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
}
