package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/config"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAWholeFileIsRead(t *testing.T) {
	c, err := config.Load(write(t, `
[targets.a]
url = "https://a.example"
hosts = ["https://b.example"]
issuer = "https://i.example"
client_id = "id"
scopes = ["x", "y"]
dialect = "hypaware"
lock_scope = "store"

[lock]
stale_after = "90s"
`))
	if err != nil {
		t.Fatal(err)
	}
	a := c.Targets["a"]
	if a.URL != "https://a.example" || a.Dialect != "hypaware" || len(a.Scopes) != 2 || time.Duration(c.Lock.StaleAfter) != 90*time.Second {
		t.Fatalf("read %+v", c)
	}
}

func TestAMissingFileIsAnEmptyOne(t *testing.T) {
	c, err := config.Load(filepath.Join(t.TempDir(), "none.toml"))
	if err != nil || len(c.Targets) != 0 {
		t.Fatalf("got %+v, %v", c, err)
	}
}

func TestAMistakeIsNamedWithItsPlace(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"unknown key", "[targets.a]\ntoken_endpont = \"x\"\n", ":2: unknown key"},
		{"syntax", "[targets.a\n", ":1:"},
		{"dialect", "[targets.a]\ndialect = \"other\"\n", "dialect"},
		{"scope", "[targets.a]\nlock_scope = \"all\"\n", "lock_scope"},
		{"duration", "[lock]\nstale_after = \"soon\"\n", "duration"},
		{"negative duration", "[lock]\nstale_after = \"-1s\"\n", "positive"},
		{"wrong type", "[targets.a]\nurl = 3\n", ":2:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := write(t, test.text)
			_, err := config.Load(path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v does not name %q and the path", err, test.want)
			}
		})
	}
}

func FuzzLoadNeverPanics(f *testing.F) {
	f.Add("[targets.a]\nurl = \"x\"\n[lock]\nstale_after = \"60s\"\n")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "c.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := config.Load(path); (c == nil) == (err == nil) {
			t.Fatal("neither a configuration nor an error, or both")
		}
	})
}
