package real_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"
)

// docker's own client library asks the program as docker does: by the name of
// the link, over pipes.
func TestDockersOwnLibraryTakesOurAnswers(t *testing.T) {
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "docker-credential-spendonce")
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{"work": map[string]string{
		"kind": "oidc", "refreshToken": "R0", "accessJwt": "A0", "expiresAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config", "spendonce")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		filepath.Join(state, "remote-credentials.json"): string(record),
		filepath.Join(config, "config.toml"):            "[targets.work]\nurl = \"https://registry.example.com\"\nhosts = [\"https://quay.io\"]\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"SPENDONCE_STATE_DIR": state, "XDG_CONFIG_HOME": filepath.Dir(config), "HOME": dir}
	helper := client.NewShellProgramFuncWithEnv(link, &env)

	got, err := client.Get(helper, "registry.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if got.ServerURL != "registry.example.com" || got.Username != "oauth2" || got.Secret != "A0" {
		t.Errorf("get: the server %q, the user %q", got.ServerURL, got.Username)
	}
	if _, err := client.Get(helper, "https://index.docker.io/v1/"); !credentials.IsErrCredentialsNotFound(err) {
		t.Errorf("a registry of nobody: %v", err)
	}
	if _, err := client.Get(helper, "http://registry.example.com"); err == nil || credentials.IsErrCredentialsNotFound(err) || !strings.Contains(err.Error(), "neither https") {
		t.Errorf("a registry over http: %v", err)
	}
	list, err := client.List(helper)
	if err != nil || len(list) != 2 || list["registry.example.com"] != "oauth2" || list["quay.io"] != "$oauthtoken" {
		t.Errorf("list: %v, %v", list, err)
	}
	if err := client.Store(helper, &credentials.Credentials{ServerURL: "registry.example.com", Username: "alice", Secret: "x"}); err != nil {
		t.Errorf("store: %v", err)
	}
	if err := client.Erase(helper, "elsewhere.example.com"); err != nil {
		t.Errorf("erase: %v", err)
	}
	if again, err := client.Get(helper, "registry.example.com"); err != nil || again.Secret != "A0" {
		t.Errorf("get after store and erase: %v", err)
	}
}
