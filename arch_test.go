package spendonce_test

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const module = "github.com/spendonce/spendonce"

// A row says what one package may import. Naming a package or a module here
// is the decision to depend on it.
type row struct {
	pkg     string
	ours    []string // packages of this module; everyone may import internal/secret, but for rows that are alone
	modules []string // third-party modules
	alone   bool     // the standard library only
	tests   []string // packages of this module that its tests may import too
}

// imports is the architecture: two columns that share the file room
// (internal/durable) and meet in the command line. ARCHITECTURE.md prints it.
var imports = []row{
	{pkg: "", alone: true},

	// The credential half.
	{pkg: "credstore", ours: []string{"lockfile", "internal/durable", "internal/sealed"}, modules: []string{"github.com/go-json-experiment/json", "golang.org/x/oauth2", "golang.org/x/sync", "golang.org/x/sys"}, tests: []string{"credstore/keys", "credstore/refresh", "oauthflow"}},
	{pkg: "credstore/refresh", ours: []string{"credstore", "oauthflow"}},
	{pkg: "credstore/keys", ours: []string{"internal/sealed"}, modules: []string{"filippo.io/age", "github.com/godbus/dbus/v5", "github.com/zalando/go-keyring", "golang.org/x/sync"}},
	{
		pkg: "etcdstore", ours: []string{"credstore", "internal/egress", "lockfile"},
		modules: []string{"go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "go.uber.org/zap", "google.golang.org/grpc"},
	},
	{pkg: "lockfile", ours: []string{"internal/durable"}, modules: []string{"golang.org/x/sys"}},
	{pkg: "oauthflow", ours: []string{"internal/challenge", "internal/egress"}, modules: []string{"github.com/coreos/go-oidc/v3", "github.com/go-json-experiment/json", "golang.org/x/oauth2", "golang.org/x/sys"}},
	{pkg: "bearer", ours: []string{"credstore", "internal/challenge", "internal/egress"}, tests: []string{"credstore/refresh"}},
	{pkg: "mcpproxy", ours: []string{"bearer", "credstore"}, modules: []string{"github.com/go-json-experiment/json", "golang.org/x/sync"}},

	// The broker half.
	{pkg: "broker", ours: []string{"internal/durable", "internal/ledger", "internal/procfs", "internal/socketplace", "internal/wire", "lease", "peercred"}, modules: []string{"golang.org/x/sys"}},
	{pkg: "lease", ours: []string{"internal/durable", "internal/wire", "peercred"}, modules: []string{"golang.org/x/sys"}},
	{pkg: "peercred", ours: []string{"internal/procfs"}, modules: []string{"golang.org/x/sys"}},
	{pkg: "internal/socketplace", ours: []string{"internal/durable", "peercred"}},
	{pkg: "internal/ledger", ours: []string{"internal/durable", "internal/wire"}, modules: []string{"github.com/go-json-experiment/json"}},
	{pkg: "internal/wire", modules: []string{"github.com/go-json-experiment/json"}},
	{pkg: "internal/procfs", modules: []string{"golang.org/x/sys"}},

	// Below both.
	{pkg: "internal/durable", modules: []string{"golang.org/x/sys"}},
	{pkg: "internal/secret", alone: true},
	{pkg: "internal/egress", alone: true},
	{pkg: "internal/challenge", alone: true},
	{pkg: "internal/sealed"},

	// Above both.
	{pkg: "cmd/spendonce", ours: []string{"internal/cli"}},
	{pkg: "cmd/spendonce-etcd", ours: []string{"internal/cli", "internal/cli/etcdtargets"}},
	{pkg: "internal/cli/etcdtargets", ours: []string{"credstore", "credstore/keys", "etcdstore", "internal/config"}},
	{
		pkg: "internal/cli",
		ours: []string{
			"bearer", "credstore", "internal/cli/credcmd", "internal/cli/democmd", "internal/cli/doctorcmd", "internal/cli/helpercmd",
			"internal/cli/leasecmd", "internal/cli/logincmd", "internal/cli/mcpcmd", "internal/cli/program", "internal/cli/requestcmd", "internal/cli/streams",
			"internal/clientconf", "internal/takeover", "oauthflow",
		},
		modules: []string{"github.com/spf13/cobra", "golang.org/x/sys"},
	},
	{
		pkg: "internal/cli/credcmd",
		ours: []string{
			"bearer", "credstore", "credstore/keys", "credstore/refresh", "internal/cli/streams", "internal/config", "internal/sealed",
			"lockfile", "oauthflow", "spendoncetest",
		},
		modules: []string{"github.com/spf13/cobra"},
	},
	{
		pkg: "internal/cli/logincmd",
		ours: []string{
			"bearer", "credstore", "credstore/refresh", "internal/cli/credcmd", "internal/cli/streams", "internal/config",
			"internal/movein", "internal/takeover", "lockfile", "oauthflow",
		},
		modules: []string{"github.com/spf13/cobra", "golang.org/x/sys", "golang.org/x/term"},
	},
	{
		pkg:     "internal/cli/helpercmd",
		ours:    []string{"bearer", "credstore", "internal/cli/credcmd", "internal/cli/program", "internal/cli/streams", "internal/clientconf", "internal/helper"},
		modules: []string{"github.com/spf13/cobra"},
	},
	{
		pkg:     "internal/cli/requestcmd",
		ours:    []string{"bearer", "credstore", "internal/cli/credcmd", "internal/cli/logincmd", "internal/cli/streams", "internal/localproxy"},
		modules: []string{"github.com/spf13/cobra"},
	},
	{
		pkg:     "internal/cli/leasecmd",
		ours:    []string{"broker", "internal/cli/program", "internal/cli/streams", "internal/conformance", "internal/durable", "lease"},
		modules: []string{"github.com/coreos/go-systemd/v22", "github.com/spf13/cobra", "golang.org/x/sys", "golang.org/x/term"},
	},
	{
		pkg:     "internal/cli/mcpcmd",
		ours:    []string{"credstore", "internal/cli/credcmd", "internal/cli/helpercmd", "internal/cli/requestcmd", "internal/cli/streams", "internal/clientconf", "internal/durable", "mcpproxy"},
		modules: []string{"github.com/spf13/cobra", "golang.org/x/sys", "golang.org/x/term"},
	},
	{
		pkg:     "internal/cli/democmd",
		ours:    []string{"internal/cli/streams", "lease", "spendoncetest"},
		modules: []string{"github.com/spf13/cobra", "golang.org/x/sys"},
	},
	{
		pkg:     "internal/cli/doctorcmd",
		ours:    []string{"broker", "credstore", "internal/cli/credcmd", "internal/cli/streams", "internal/config", "internal/durable", "internal/ledger", "internal/procfs", "lease", "lockfile"},
		modules: []string{"github.com/spf13/cobra", "golang.org/x/sys"},
	},
	{pkg: "internal/localproxy", ours: []string{"bearer", "credstore", "internal/socketplace", "peercred"}},
	{pkg: "internal/cli/program", ours: []string{"internal/cli/streams"}},
	{pkg: "internal/cli/streams", modules: []string{"golang.org/x/sys", "golang.org/x/term"}},
	{pkg: "internal/config", modules: []string{"github.com/pelletier/go-toml/v2"}},
	{pkg: "internal/helper", ours: []string{"internal/challenge"}, modules: []string{"github.com/go-json-experiment/json"}},
	{pkg: "internal/movein", modules: []string{"github.com/go-json-experiment/json"}},
	{
		pkg: "internal/takeover", ours: []string{"credstore", "internal/durable", "internal/movein"},
		modules: []string{"github.com/go-json-experiment/json"}, tests: []string{"credstore/refresh"},
	},
	{pkg: "internal/clientconf", ours: []string{"internal/durable"}, modules: []string{"github.com/go-json-experiment/json", "github.com/pelletier/go-toml/v2", "github.com/tailscale/hujson"}},

	// For tests, ours and users'.
	{pkg: "spendoncetest", ours: []string{"broker", "lease"}},
	{pkg: "spendoncetest/canary"},
	{pkg: "internal/conformance", alone: true},
	{pkg: "internal/durable/durabletest", ours: []string{"internal/durable"}, modules: []string{"golang.org/x/sys"}},
	{pkg: "internal/keyringtest", modules: []string{"github.com/godbus/dbus/v5"}, alone: true},
	{pkg: "internal/lockmodel", alone: true},
	{pkg: "internal/proctest", modules: []string{"golang.org/x/sys"}, alone: true},

	// Not part of the program.
	{pkg: "internal/mangen", ours: []string{"internal/cli"}, modules: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"}},
	{pkg: "internal/sourceprogram", alone: true},
}

// planned are rows of packages that are decided but not written; they are not
// printed in ARCHITECTURE.md.
var planned = []string{}

// Test files may import, beyond their package's row:
var (
	testOurs    = []string{"internal/durable", "internal/durable/durabletest", "internal/keyringtest", "internal/proctest", "internal/secret", "internal/sourceprogram", "spendoncetest", "spendoncetest/canary"}
	testModules = []string{
		"filippo.io/age", "github.com/anishathalye/porcupine", "github.com/coreos/go-oidc/v3", "github.com/rogpeppe/go-internal",
		"github.com/modelcontextprotocol/go-sdk", "go.uber.org/goleak", "golang.org/x/oauth2", "golang.org/x/sync", "golang.org/x/sys", "pgregory.net/rapid",
	}
)

// Exceptions, by file, each with its reason. Reading one must tell why the
// rule does not apply there.
var (
	// reveals are the files that take a secret out of its wrapping, each on
	// the last step before a socket, a private file or the stdout that was
	// asked for.
	reveals = map[string]string{
		"internal/cli/credcmd/token.go":    "prints the token that was asked for",
		"internal/cli/requestcmd/proxy.go": "prints the proxy's own secret to who started it",
		"internal/localproxy/header.go":    "must know the proxy's own secret to keep it from the target",
		"spendoncetest/canary/canary.go":   "must know a secret to search for it",

		"internal/helper/credential.go":   "hands the token to the protocol in which another program asked for it",
		"internal/cli/leasecmd/member.go": "prints the answer or the token that was asked for",
		"internal/cli/leasecmd/run.go":    "puts the session id into the environment of the command, which is what it is for",
		"internal/ledger/encode.go":       "writes the session id to the state file, and the hash of a token",
		"internal/wire/encode.go":         "writes requests and answers to a socket",

		"etcdstore/store.go":           "hands the password to etcd's client",
		"internal/movein/jwt.go":       "reads the claims in an ID token",
		"internal/movein/mcpremote.go": "builds the file that gives a session back to mcp-remote",
		"internal/movein/kubelogin.go": "builds the file that gives a session back to kubelogin",
		"internal/movein/file.go":      "builds the file that gives a session back",

		"credstore/keys/age.go":     "encrypts the store's key to its recipients",
		"credstore/keys/keyring.go": "hands the store's key to the keyring",
		"internal/sealed/key.go":    "writes a key as text, and names it by its hash",
		"internal/sealed/sealed.go": "expands a key to the cipher's",

		"mcpproxy/header.go":   "names the session to the server that gave its id",
		"bearer/errors.go":     "leaves the token out where a server calls it a scope",
		"bearer/transport.go":  "sends the token to an origin of its target",
		"credstore/record.go":  "writes the store",
		"credstore/session.go": "writes the session file",
		"credstore/source.go":  "hands the access token to x/oauth2, whose Token holds strings",
		"oauthflow/clean.go":   "must know a secret to find it in what a server says",
		"oauthflow/device.go":  "sends the device code",
		"oauthflow/idtoken.go": "reads the claims in an ID token",
		"oauthflow/login.go":   "builds the URL that the browser opens",
		"oauthflow/revoke.go":  "sends the token that is to be revoked",
		"oauthflow/token.go":   "sends the form or body of a token request",
	}

	// writes are the files outside internal/durable that change the disk,
	// and what they may call.
	writes = map[string]struct {
		calls  []string
		reason string
	}{
		"internal/cli/requestcmd/request_output.go": {[]string{"os.OpenFile", "os.Remove"}, "the file that --output names"},
		"internal/cli/democmd/demo.go":              {[]string{"os.MkdirTemp", "os.RemoveAll"}, "the demo plays in a temporary directory of its own"},
		"internal/cli/democmd/naive.go":             {[]string{"os.WriteFile"}, "the client without a lock writes as such clients do"},
		"internal/cli/democmd/scenes.go":            {[]string{"os.Mkdir", "os.OpenFile", "os.Remove"}, "fills a small disk of its own, and makes room again"},
		"internal/cli/leasecmd/serve.go":            {[]string{"os.NewFile", "unix.Open"}, "a descriptor it was given to speak on, and /dev/null"},
		"internal/cli/streams/awaited_linux.go":     {[]string{"os.NewFile", "unix.Open"}, "standard input once more, which the runtime is to wait for"},
		"peercred/anchor.go":                        {[]string{"os.NewFile"}, "a pidfd, which the runtime is to wait for"},
		"peercred/listen.go":                        {[]string{"unix.Fchmod", "unix.Fchmodat"}, "the mode of a socket, before it has a name"},
		"spendoncetest/broker.go":                   {[]string{"os.MkdirTemp", "os.RemoveAll"}, "a temporary broker lives in a temporary directory of its own"},
		"internal/keyringtest/keyringtest.go":       {[]string{"os.MkdirTemp", "os.RemoveAll", "os.WriteFile"}, "a temporary keyring and its bus live in temporary directories of their own"},
		"internal/sourceprogram/lock.go":            {[]string{"os.OpenFile", "os.Remove"}, "must not share our code: it is the other program on the same store"},
		"internal/sourceprogram/refresh.go":         {[]string{"os.Rename", "os.WriteFile"}, "as above"},
	}

	// unsafes are the files that go around the type system.
	unsafes = map[string]string{
		"internal/proctest/clone.go":    "clone3(2) with a chosen pid takes pointers, and its child must not touch the runtime",
		"internal/durable/sys_linux.go": "asks for a file's stat without the scheduler's share, which is a third of it",
	}

	// sleeps are the files that wait for real time to pass.
	sleeps = map[string]string{
		"oauthflow/child_test.go": "real time has to pass a stopped process by",
	}

	// inits are the files with code that runs at start.
	inits = map[string]string{}
)

var update = flag.Bool("update", false, "write the import table into ARCHITECTURE.md")

func TestPackagesImportOnlyWhatTheirRowAllows(t *testing.T) {
	for _, s := range sources(t) {
		report(t, importFindings(s))
	}
}

func TestEveryRowHasItsPackage(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			seen[s.pkg] = true
		}
	}
	for _, r := range imports {
		if !seen[r.pkg] && !slices.Contains(planned, r.pkg) {
			t.Errorf("the import table has a row for %q, and there is no such package", r.pkg)
		}
	}
}

// The table itself can break what it is meant to keep.
func TestTheTwoHalvesShareOnlyTheFileRoom(t *testing.T) {
	credential := reach("bearer", "credstore", "credstore/refresh", "lockfile", "mcpproxy", "oauthflow")
	lease := reach("broker", "lease", "peercred", "internal/ledger", "internal/wire", "internal/procfs")
	for pkg := range credential {
		if lease[pkg] && pkg != "internal/durable" && pkg != "internal/secret" {
			t.Errorf("both halves reach %s", pkg)
		}
	}
}

func TestAClientLinksNoServerCode(t *testing.T) {
	for _, client := range []string{"lease", "credstore", "credstore/refresh", "bearer", "oauthflow"} {
		got := reach(client)
		for _, server := range []string{"broker", "internal/ledger", "internal/cli", "spendoncetest"} {
			if got[server] {
				t.Errorf("the table lets %s reach %s", client, server)
			}
		}
	}
}

func TestSecretsAreRevealedOnlyWhereListed(t *testing.T) {
	check(t, revealFindings, slices.Collect(maps.Keys(reveals)))
}

func TestOnlyDurableWritesFiles(t *testing.T) {
	check(t, writeFindings, slices.Collect(maps.Keys(writes)))
}

func TestNothingRunsBeforeMain(t *testing.T) {
	check(t, initFindings, slices.Collect(maps.Keys(inits)))
}

func TestNothingSleeps(t *testing.T) {
	check(t, sleepFindings, slices.Collect(maps.Keys(sleeps)))
}

func TestEveryExceptionHasAReason(t *testing.T) {
	reasons := map[string]string{}
	for _, list := range []map[string]string{reveals, sleeps, inits} {
		maps.Copy(reasons, list)
	}
	for file, w := range writes {
		reasons[file] = w.reason
	}
	for file, reason := range reasons {
		if strings.TrimSpace(reason) == "" {
			t.Errorf("the exception for %s gives no reason", file)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			documented[s.pkg] = documented[s.pkg] || s.file.Doc.Text() != ""
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %q has no package comment", pkg)
		}
	}
}

func TestArchitecturePrintsTheTable(t *testing.T) {
	const name, start, end = "ARCHITECTURE.md", "<!-- imports -->\n", "<!-- /imports -->"
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), start)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no lines %s and %s around the import table", name, strings.TrimSpace(start), end)
	}
	want := table()
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s shows another import table; `go test -run Architecture . -update` writes this one:\n%s", name, want)
	}
	if err := os.WriteFile(name, []byte(before+start+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What the threat model promises rests on the tests it names.
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.test {
				known[f.Name.Name] = true
			}
		}
	}
	elsewhere, err := filepath.Glob("tests/*/*_test.go") // modules of their own
	if err != nil || len(elsewhere) == 0 {
		t.Fatalf("%q, %v", elsewhere, err)
	}
	for _, name := range elsewhere {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "func Test"); ok {
				name, _, _ := strings.Cut(rest, "(")
				known["Test"+name] = true
			}
		}
	}
	named := 0
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if rest, ok := strings.CutPrefix(word, "Test"); !ok || rest == "" || !unicode.IsUpper(rune(rest[0])) {
			continue
		}
		named++
		if !known[word] {
			t.Errorf("docs/threat-model.md names %s, and there is no such test", word)
		}
	}
	if named == 0 {
		t.Error("docs/threat-model.md names no test: is the reading of it broken?")
	}
}

// A rule that finds nothing may be a rule that sees nothing.
func TestTheRulesSeeWhatTheyForbid(t *testing.T) {
	for _, c := range []struct {
		name string
		rule func(source) []string
		file string
		code string
		want int
	}{
		{"import across", importFindings, "oauthflow/a.go", `import _ "` + module + `/credstore"`, 1},
		{"import up", importFindings, "credstore/a.go", `import _ "` + module + `/oauthflow"`, 1},
		{"import as listed", importFindings, "credstore/a.go", `import _ "` + module + `/lockfile"`, 0},
		{"import of secret by all", importFindings, "oauthflow/a.go", `import _ "` + module + `/internal/secret"`, 0},
		{"but not by who is alone", importFindings, "internal/lockmodel/a.go", `import _ "` + module + `/internal/secret"`, 1},
		{"new module", importFindings, "credstore/a.go", `import _ "example.com/left/pad"`, 1},
		{"listed module's package", importFindings, "credstore/a.go", `import _ "golang.org/x/sys/unix"`, 0},
		{"module with a like name", importFindings, "credstore/a.go", `import _ "golang.org/x/system"`, 1},
		{"standard library", importFindings, "credstore/a.go", `import _ "net/http"`, 0},
		{"unsafe and cgo", importFindings, "credstore/a.go", `import _ "unsafe"; import "C"`, 2},
		{"new package", importFindings, "util/a.go", ``, 1},
		{"test library in code", importFindings, "credstore/a.go", `import _ "pgregory.net/rapid"`, 1},
		{"test library in a test", importFindings, "credstore/a_test.go", `import _ "pgregory.net/rapid"`, 0},
		{"test of itself", importFindings, "credstore/a_test.go", `import _ "` + module + `/credstore"`, 0},
		{"test importing what its row lets tests", importFindings, "credstore/a_test.go", `import _ "` + module + `/oauthflow"`, 0},
		{"test importing across", importFindings, "lockfile/a_test.go", `import _ "` + module + `/oauthflow"`, 1},

		{"reveal called", revealFindings, "lockfile/a.go", `func f(s S) string { return s.Reveal() }`, 1},
		{"reveal handed on", revealFindings, "lockfile/a.go", `func f(s S) func() string { return s.Reveal }`, 1},
		{"reveal in a test", revealFindings, "lockfile/a_test.go", `func f(s S) string { return s.Reveal() }`, 0},

		{"write", writeFindings, "lockfile/a.go", `import "os"; func f() { os.WriteFile("", nil, 0) }`, 1},
		{"write under another name", writeFindings, "lockfile/a.go", `import x "os"; func f() { x.Rename("", "") }`, 1},
		{"write handed on", writeFindings, "lockfile/a.go", `import "os"; var f = os.Remove`, 1},
		{"write by system call", writeFindings, "lockfile/a.go", `import "golang.org/x/sys/unix"; func f() { unix.Renameat(0, "", 0, "") }`, 1},
		{"open to write", writeFindings, "lockfile/a.go", `import "os"; func f() { os.OpenFile("", os.O_RDWR, 0) }`, 1},
		{"open with unknown flags", writeFindings, "lockfile/a.go", `import "os"; func f(n int) { os.OpenFile("", n, 0) }`, 1},
		{"open to read", writeFindings, "lockfile/a.go", `import ("os"; "syscall"); func f() { os.OpenFile("", os.O_RDONLY|syscall.O_NOFOLLOW, 0) }`, 0},
		{"write in durable", writeFindings, "internal/durable/a.go", `import "os"; func f() { os.Rename("", "") }`, 0},
		{"another Remove", writeFindings, "lockfile/a.go", `func f(x T) { x.Remove("") }`, 0},

		{"init", initFindings, "lockfile/a.go", `func init() {}`, 1},
		{"method named init", initFindings, "lockfile/a.go", `func (t T) init() {}`, 0},
		{"regexp at start", initFindings, "lockfile/a.go", `import "regexp"; var r = regexp.MustCompile("a")`, 1},
		{"regexp on first use", initFindings, "lockfile/a.go", `import ("regexp"; "sync"); var r = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("a") })`, 0},
		{"regexp in a function", initFindings, "lockfile/a.go", `import "regexp"; func f() { regexp.MustCompile("a") }`, 0},

		{"sleep", sleepFindings, "lockfile/a_test.go", `import "time"; func f() { time.Sleep(1) }`, 1},
		{"sleep in a bubble", sleepFindings, "lockfile/a_test.go", `import ("testing"; "testing/synctest"; "time"); func f(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parse(c.file, "package p\n"+c.code)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.rule(s); len(got) != c.want {
				t.Errorf("%d findings, want %d: %q", len(got), c.want, got)
			}
		})
	}
}

// importFindings compares a file's imports with its package's row.
func importFindings(s source) []string {
	r, ok := find(s.pkg)
	if !ok {
		return []string{fmt.Sprintf("%s: package %q has no row in the import table (arch_test.go): a new package is a decision", s.path, s.pkg)}
	}
	ours, modules := r.ours, r.modules
	if !r.alone {
		ours = append(slices.Clone(ours), "internal/secret")
	}
	if s.test {
		ours = slices.Concat(ours, r.tests, testOurs, []string{s.pkg})
		modules = slices.Concat(modules, testModules)
	}
	var found []string
	for _, spec := range s.file.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		inModule, isOurs := strings.CutPrefix(p+"/", module+"/")
		first, _, _ := strings.Cut(p, "/")
		switch {
		case p == "unsafe" && unsafes[s.path] != "":
		case p == "unsafe" || p == "C":
			found = append(found, s.at(spec.Pos(), "imports %s", p))
		case isOurs:
			if inModule = strings.TrimSuffix(inModule, "/"); !slices.Contains(ours, inModule) {
				found = append(found, s.at(spec.Pos(), "%s may not import %s: the table in arch_test.go says who may import whom", s.pkg, inModule))
			}
		case strings.Contains(first, "."):
			if !slices.ContainsFunc(modules, func(m string) bool { return p == m || strings.HasPrefix(p, m+"/") }) {
				found = append(found, s.at(spec.Pos(), "%s does not list the module of %s: a new dependency is a row in arch_test.go, with the reason in the commit", s.pkg, p))
			}
		}
	}
	return found
}

// revealFindings finds calls and method values of Secret.Reveal.
func revealFindings(s source) []string {
	if s.test || s.pkg == "internal/secret" || reveals[s.path] != "" {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Reveal" {
			found = append(found, s.at(sel.Pos(), "reveals a secret: keep the Secret, or if this is the last step before "+
				"a socket or a private file, add %q with the reason to reveals in arch_test.go", s.path))
		}
		return true
	})
	return found
}

// writers are the functions that change the file system, by import path.
var writers = map[string][]string{
	"os": {
		"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "Lchown", "Link", "Mkdir", "MkdirAll", "MkdirTemp",
		"NewFile", "OpenFile", "OpenRoot", "Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile",
	},
	"io/ioutil":             {"TempDir", "TempFile", "WriteFile"},
	"syscall":               systemCalls,
	"golang.org/x/sys/unix": systemCalls,
}

var systemCalls = []string{
	"Chmod", "Chown", "Creat", "Fallocate", "Fchmod", "Fchmodat", "Fchown", "Fdatasync", "Flock", "Fsync", "Ftruncate",
	"Link", "Linkat", "Mkdir", "Mkdirat", "Mknod", "Open", "Openat", "Openat2", "Pwrite", "Rename", "Renameat", "Renameat2",
	"Rmdir", "Symlink", "Symlinkat", "Truncate", "Unlink", "Unlinkat", "Utimes", "UtimesNanoAt", "Write", "Writev",
}

// readOnly are the flags with which opening a file changes nothing.
var readOnly = []string{"O_RDONLY", "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH"}

// writeFindings finds uses of functions that change the disk.
func writeFindings(s source) []string {
	if s.test || s.pkg == "internal/durable" {
		return nil
	}
	var found []string
	harmless := map[*ast.SelectorExpr]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr: // comes before its own selector
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && opensToRead(s, sel, n.Args) {
				harmless[sel] = true
			}
		case *ast.SelectorExpr:
			pkg := s.imported(n)
			if pkg == "" || harmless[n] || !slices.Contains(writers[pkg], n.Sel.Name) {
				return true
			}
			call := path.Base(pkg) + "." + n.Sel.Name
			if !slices.Contains(writes[s.path].calls, call) {
				found = append(found, s.at(n.Pos(), "uses %s: only internal/durable changes the disk; "+
					"an exception is an entry for %q, with the reason, in writes in arch_test.go", call, s.path))
			}
		}
		return true
	})
	return found
}

// opensToRead reports whether the call is an open with flags of readOnly,
// spelt out where it stands.
func opensToRead(s source, fun *ast.SelectorExpr, args []ast.Expr) bool {
	at, ok := map[string]int{"OpenFile": 1, "Open": 1, "Openat": 2}[fun.Sel.Name]
	if !ok || s.imported(fun) == "" || len(args) <= at {
		return false
	}
	var check func(ast.Expr) bool
	check = func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			return e.Op == token.OR && check(e.X) && check(e.Y)
		case *ast.SelectorExpr:
			return s.imported(e) != "" && slices.Contains(readOnly, e.Sel.Name)
		}
		return false
	}
	return check(args[at])
}

// initFindings finds code that runs before main: every start of the program
// would pay for it. `make init-budget` measures what dependencies do.
func initFindings(s source) []string {
	if s.test || inits[s.path] != "" {
		return nil
	}
	var found []string
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				found = append(found, s.at(d.Pos(), "has an init function: build the value where it is used, or hand it in"))
			}
		case *ast.GenDecl:
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					return false // runs when it is called
				case *ast.SelectorExpr:
					if s.imported(n) == "regexp" && strings.HasPrefix(n.Sel.Name, "MustCompile") {
						found = append(found, s.at(n.Pos(), "compiles a regular expression at every start: write the match by hand, or use sync.OnceValue"))
					}
				}
				return true
			})
		}
	}
	return found
}

// sleepFindings finds waits that nothing can end. In a synctest bubble time
// is simulated, and sleeping is how it is told to pass.
func sleepFindings(s source) []string {
	if sleeps[s.path] != "" {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && s.imported(sel) == "testing/synctest" && sel.Sel.Name == "Test" {
				return false
			}
		case *ast.SelectorExpr:
			if s.imported(n) == "time" && n.Sel.Name == "Sleep" {
				found = append(found, s.at(n.Pos(), "sleeps: wait for what is meant (a channel, a context, a synctest bubble); "+
					"where only real time will do, add %q with the reason to sleeps in arch_test.go", s.path))
			}
		}
		return true
	})
	return found
}

// source is one parsed Go file of the main module.
type source struct {
	path string // slash-separated, from the module root
	pkg  string // its directory; "" is the root
	test bool
	file *ast.File
	fset *token.FileSet
}

// sources parses every Go file of this module, whatever its build tags.
// Directories with a go.mod are other modules.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			base := d.Name()
			if name == "." {
				return nil
			}
			if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules" || base == "bin" {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		case filepath.Ext(name) != ".go":
			return nil
		}
		s, err := parse(filepath.ToSlash(name), nil)
		if err == nil {
			all = append(all, s)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 3 {
		t.Fatalf("found only %d Go files: is this the module root?", len(all))
	}
	return all
}

func parse(name string, code any) (source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, code, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	return source{path: name, pkg: dir, test: strings.HasSuffix(name, "_test.go"), file: f, fset: fset}, nil
}

// imported returns the import path of the package that sel selects from, or
// "" if it selects from something else.
func (s source) imported(sel *ast.SelectorExpr) string {
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for _, spec := range s.file.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == x.Name {
			return p
		}
	}
	return ""
}

func (s source) at(pos token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", s.path, s.fset.Position(pos).Line) + fmt.Sprintf(format, args...)
}

func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// check applies rule to every file, and fails for exceptions that name no
// file: a list of exceptions must not outlive its reasons.
func check(t *testing.T, rule func(source) []string, exceptions []string) {
	t.Helper()
	for _, s := range sources(t) {
		report(t, rule(s))
		exceptions = slices.DeleteFunc(exceptions, func(e string) bool { return e == s.path })
	}
	for _, e := range exceptions {
		t.Errorf("arch_test.go makes an exception for %s, which does not exist", e)
	}
}

func find(pkg string) (row, bool) {
	i := slices.IndexFunc(imports, func(r row) bool { return r.pkg == pkg })
	if i < 0 {
		return row{}, false
	}
	return imports[i], true
}

// reach returns the packages of ours that the table lets from and what they
// import depend on.
func reach(from ...string) map[string]bool {
	got := map[string]bool{}
	for len(from) > 0 {
		pkg := from[0]
		from = from[1:]
		if got[pkg] {
			continue
		}
		got[pkg] = true
		r, _ := find(pkg)
		from = append(from, r.ours...)
	}
	return got
}

// table prints the rows whose packages exist, for ARCHITECTURE.md.
func table() string {
	var b strings.Builder
	b.WriteString("| package | imports of ours | modules |\n|---|---|---|\n")
	cell := func(names []string) string {
		if len(names) == 0 {
			return ""
		}
		return "`" + strings.Join(slices.Sorted(slices.Values(names)), "` `") + "`"
	}
	for _, r := range imports {
		if _, err := os.Stat(filepath.FromSlash(r.pkg)); r.pkg == "" || err != nil {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.pkg, cell(r.ours), cell(r.modules))
	}
	b.WriteString("\nEvery package but `internal/lockmodel` may also import `internal/secret`.\n")
	return b.String()
}
