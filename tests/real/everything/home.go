package everything

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
)

// Age is that of a stored access token.
type Age time.Duration

// Fresh tokens are good for an hour, as far as the store says; Expired ones
// have to be exchanged before they are used.
const (
	Fresh   = Age(time.Hour)
	Expired = Age(-time.Hour)
)

// Home makes dir the home of somebody who is signed in to the front as the
// target, and returns the whole environment in which the program finds that
// session. It is what is found on disk after a login.
func (f *Front) Home(dir, target string, age Age) (env []string, session spendoncetest.Session, err error) {
	state, config := filepath.Join(dir, "state"), filepath.Join(dir, "config", "spendonce")
	for _, d := range []string{state, config, filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, session, err
		}
	}
	session = f.Tokens.NewSession("alice")
	store, err := json.MarshalIndent(map[string]any{target: map[string]string{
		"kind": "oidc", "refreshToken": session.RefreshToken.Reveal(), "accessJwt": session.AccessToken.Reveal(),
		"expiresAt": time.Now().Add(time.Duration(age)).UTC().Format("2006-01-02T15:04:05.000Z"),
	}}, "", "  ")
	if err != nil {
		return nil, session, err
	}
	settings := fmt.Sprintf("[targets.%q]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\n",
		target, f.URL(), f.Tokens.TokenEndpoint(), f.Tokens.ClientID())
	for path, content := range map[string]string{
		filepath.Join(state, "remote-credentials.json"): string(store),
		filepath.Join(config, "config.toml"):            settings,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return nil, session, err
		}
	}
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"), "LC_ALL=C",
		"XDG_CONFIG_HOME=" + filepath.Join(dir, "config"), "SPENDONCE_STATE_DIR=" + state, "BROWSER=false",
	}, session, nil
}
