package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spendonce/spendonce/internal/cli"
	"github.com/spendonce/spendonce/internal/sourceprogram"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"spendonce":                   func() { os.Exit(cli.Main(os.Args)) },
		"docker-credential-spendonce": func() { os.Exit(cli.Main(os.Args)) },
		"person":                      browse,
		"sourceprogram":               func() { os.Exit(sourceprogram.Main(os.Args[1:])) },
	})
}

// browse is a browser, and the person at it: it fills in the form behind the
// address as alice does, follows it back, and writes the page at the end into
// the pipe $PAGE. With $PERSON set to "deny" she refuses.
func browse() {
	err := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		back, err := spendoncetest.Person{Deny: os.Getenv("PERSON") == "deny"}.Authorize(ctx, os.Args[1])
		if err != nil {
			return err
		}
		resp, err := http.Get(back.String())
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		pipe, err := os.OpenFile(os.Getenv("PAGE"), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = pipe.Write(page)
		return errors.Join(err, pipe.Close())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "person:", err)
		os.Exit(1)
	}
}

// TestTheCommandLineDoesWhatItsScriptsSay runs testdata/script/*.txtar. Every
// script has a strict server of its own, and after each one all it printed
// and all files but those made for it are searched for every token.
//
//	session NAME [fresh|expired|near [URL [HOST...]]]
//	                                   store a session of the script's server; it sets
//	                                   AT, EXPIRES (RFC 3339) and EXPIRES_UTC (seconds)
//	static NAME TOKEN [URL]            store a static token, as another program would
//	server script JSON                 the next answers of the token endpoint
//	server lifetime DURATION
//	server forget TARGET               the client of a target's session
//	server revoke TOKEN                the resource refuses this access token
//	server no-registration
//	foreign mcp-remote|kubelogin|file PATH   sign that program in, as it writes its files
//	foreign refresh PATH               refresh with what stands in the file, as that program would
//	counter NAME N                     a counter of the server is N
//	page TEXT                          the browser's page at the end of a sign-in holds it
//	code N COMMAND...                  the command ends with exit code N
//	secret session|token FILE          the file holds a broker's secret, to be looked for from now on
//	same FILE1 FILE2
//	[rundir]                           this user has a directory in /run/user
func TestTheCommandLineDoesWhatItsScriptsSay(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"session": sessionCommand, "static": staticCommand, "server": serverCommand,
			"counter": counterCommand, "foreign": foreignCommand, "page": pageCommand, "code": codeCommand, "secret": secretCommand,
		},
		Condition: func(name string) (bool, error) {
			if name != "rundir" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return exists("/run/user/" + strconv.Itoa(os.Geteuid())), nil
		},
	})
}

// world is what one script plays in.
type world struct {
	server *spendoncetest.TokenServer
	pages  *bufio.Reader // what browsers show at the end
	mu     sync.Mutex
	tokens []canary.Value
	// The ids of sessions may stand in the broker's state.
	sessions []canary.Value
}

type worldKey struct{}

func setup(env *testscript.Env) error {
	heedSignals()
	server, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	if err != nil {
		return err
	}
	page := filepath.Join(env.WorkDir, "page")
	if err := syscall.Mkfifo(page, 0o600); err != nil {
		return err
	}
	pipe, err := os.OpenFile(page, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	w := &world{server: server, pages: bufio.NewReader(pipe)}
	env.Values[worldKey{}] = w
	home := filepath.Join(env.WorkDir, "home")
	state := filepath.Join(env.WorkDir, "state")
	env.Setenv("HOME", home)
	env.Setenv("SPENDONCE_STATE_DIR", state)
	env.Setenv("STORE", filepath.Join(state, "remote-credentials.json"))
	env.Setenv("CONFIG", filepath.Join(home, ".config", "spendonce", "config.toml"))
	env.Setenv("XDG_CONFIG_HOME", "")
	env.Setenv("XDG_STATE_HOME", "")
	runtime := filepath.Join(env.WorkDir, "run")
	env.Setenv("XDG_RUNTIME_DIR", runtime)
	for _, name := range []string{"SOCKET", "SESSION_ID", "GENERATION", "GENERATION_FILE"} {
		env.Setenv("SPENDONCE_"+name, "")
	}
	env.Setenv("ISSUER", server.Issuer())
	env.Setenv("TOKEN_ENDPOINT", server.TokenEndpoint())
	env.Setenv("REVOCATION_ENDPOINT", server.RevocationURL())
	env.Setenv("URL", server.URL())
	env.Setenv("RESOURCE", server.ResourceURL())
	env.Setenv("CLIENT_ID", server.ClientID())
	env.Setenv("BROWSER", "false")
	env.Setenv("PAGE", page)
	for _, name := range []string{"DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY", "WSL_DISTRO_NAME", "container"} {
		env.Setenv(name, "")
	}
	env.Setenv("GORACE", "atexit_sleep_ms=0") // else each race-built process takes a second to end
	if err := os.MkdirAll(filepath.Join(home, ".config", "spendonce"), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(runtime, 0o700); err != nil {
		return err
	}
	env.Defer(func() {
		_ = server.Close()
		_ = pipe.Close()
		stopBrokers(env.T(), env.WorkDir)
	})
	return nil
}

func worldOf(ts *testscript.TestScript) *world {
	return ts.Value(worldKey{}).(*world)
}

// sessionCommand stores a session and configures its target.
func sessionCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: session NAME [fresh|expired|near [URL [HOST...]]]")
	}
	w := worldOf(ts)
	s := w.server.NewSession("alice")
	at := time.Now().Add(time.Hour)
	switch {
	case len(args) == 1 || args[1] == "fresh":
	case args[1] == "expired":
		at = time.Now().Add(-time.Minute)
	case args[1] == "near":
		at = time.Now().Add(40 * time.Second)
	default:
		ts.Fatalf("session: %q is neither fresh, expired nor near", args[1])
	}
	w.mu.Lock()
	w.tokens = append(w.tokens, canary.Value{Name: "access token", Secret: s.AccessToken}, canary.Value{Name: "refresh token", Secret: s.RefreshToken})
	w.mu.Unlock()
	storeRecord(ts, args[0], map[string]string{
		"kind": "oidc", "refreshToken": s.RefreshToken.Reveal(), "accessJwt": s.AccessToken.Reveal(), "expiresAt": at.UTC().Format(time.RFC3339),
	})
	configure(ts, "[targets.%q]\ntoken_endpoint = %q\nrevocation_endpoint = %q\nclient_id = %q\n", args[0], ts.Getenv("TOKEN_ENDPOINT"), ts.Getenv("REVOCATION_ENDPOINT"), ts.Getenv("CLIENT_ID"))
	if len(args) > 2 {
		hosts, err := json.Marshal(args[3:])
		ts.Check(err)
		configure(ts, "url = %q\nhosts = %s\n", args[2], hosts)
	}
	ts.Setenv("AT", s.AccessToken.Reveal())
	ts.Setenv("EXPIRES", at.UTC().Format(time.RFC3339))
	ts.Setenv("EXPIRES_UTC", strconv.FormatInt(at.Unix(), 10))
}

// configure adds to the configuration.
func configure(ts *testscript.TestScript, format string, args ...any) {
	f, err := os.OpenFile(ts.Getenv("CONFIG"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	_, err = fmt.Fprintf(f, format, args...)
	ts.Check(err)
	ts.Check(f.Close())
}

func staticCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: static NAME TOKEN [URL]")
	}
	storeRecord(ts, args[0], map[string]string{"kind": "static", "token": args[1]})
	if len(args) == 3 {
		configure(ts, "[targets.%q]\nurl = %q\n", args[0], args[2])
	}
}

func storeRecord(ts *testscript.TestScript, name string, record map[string]string) {
	store := ts.Getenv("STORE")
	records := map[string]any{}
	if b, err := os.ReadFile(store); err == nil {
		ts.Check(json.Unmarshal(b, &records))
	}
	records[name] = record
	b, err := json.Marshal(records)
	ts.Check(err)
	ts.Check(os.MkdirAll(filepath.Dir(store), 0o700))
	ts.Check(os.WriteFile(store, b, 0o600))
}

func serverCommand(ts *testscript.TestScript, neg bool, args []string) {
	w := worldOf(ts)
	switch {
	case !neg && len(args) == 2 && args[0] == "script":
		var answers []spendoncetest.Answer
		ts.Check(json.Unmarshal([]byte(args[1]), &answers))
		w.server.ClearScript()
		ts.Check(w.server.Script(answers...))
	case !neg && len(args) == 2 && args[0] == "lifetime":
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		ts.Check(w.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.Lifetime = d }))
	case !neg && len(args) == 2 && args[0] == "forget":
		var session struct{ Pin struct{ ClientID string } }
		b, err := os.ReadFile(filepath.Join(ts.Getenv("SPENDONCE_STATE_DIR"), "sessions", args[1]+".json"))
		ts.Check(err)
		ts.Check(json.Unmarshal(b, &session))
		if !w.server.ForgetClient(session.Pin.ClientID) {
			ts.Fatalf("the server does not know %q", session.Pin.ClientID)
		}
	case !neg && len(args) == 2 && args[0] == "revoke":
		ts.Check(w.server.RevokeAccessToken(args[1]))
	case !neg && len(args) == 1 && args[0] == "no-registration":
		ts.Check(w.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.NoRegistration = true }))
	case !neg && len(args) == 2 && args[0] == "idtokens":
		ts.Check(w.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.IDTokenOnRefresh = args[1] == "on" }))
	default:
		ts.Fatalf("usage: server script JSON | server lifetime DURATION | server forget TARGET | server revoke TOKEN | server no-registration")
	}
}

func counterCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: counter NAME N")
	}
	b, err := json.Marshal(worldOf(ts).server.Counters())
	ts.Check(err)
	var counters map[string]int
	ts.Check(json.Unmarshal(b, &counters))
	n, ok := counters[args[0]]
	if !ok {
		ts.Fatalf("there is no counter %q", args[0])
	}
	if want, err := strconv.Atoi(args[1]); err != nil || n != want {
		ts.Fatalf("counter %s is %d, not %s", args[0], n, args[1])
	}
}

// pageCommand waits for the page that a browser shows, and reads its words.
func pageCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: page TEXT")
	}
	var page strings.Builder
	for !strings.Contains(page.String(), "</html>") {
		line, err := worldOf(ts).pages.ReadString('\n')
		ts.Check(err)
		page.WriteString(line)
	}
	words := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page.String(), "")
	if !strings.Contains(words, args[0]) {
		ts.Fatalf("the page does not hold %q: %s", args[0], page.String())
	}
}

// codeCommand runs a command whose exit code must be exactly N. What it
// printed is searched for tokens, but for a token command's own result.
func codeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		got = -1
		if s := err.Error(); strings.HasPrefix(s, "exit status ") {
			got, _ = strconv.Atoi(strings.TrimPrefix(s, "exit status "))
		}
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("%s ended with %d, not %s", strings.Join(args[1:], " "), got, args[0])
	}
	w := worldOf(ts)
	w.mu.Lock()
	defer w.mu.Unlock()
	places := canary.Places{Outputs: map[string][]byte{"stderr": []byte(ts.ReadFile("stderr"))}}
	if !printsSecrets(args[1:], got) {
		places.Outputs["stdout"] = []byte(ts.ReadFile("stdout"))
	}
	state := ts.Getenv("SPENDONCE_STATE_DIR")
	if exists(state) {
		places.Dirs = []string{state}
	}
	search := func(values []canary.Value, allow ...string) {
		if len(values) == 0 {
			return
		}
		places.Allow = allow
		found, err := canary.Find(values, places)
		ts.Check(err)
		for _, f := range found {
			ts.Fatalf("a secret is where it must not be: %v", f)
		}
	}
	search(w.tokens, ts.Getenv("STORE"), ts.Getenv("STORE")+".*")
	search(w.sessions, filepath.Join(state, "broker-state.json"))
}

// printsSecrets reports whether a command with these arguments was asked for
// secrets on its standard output, and may have printed them.
func printsSecrets(call []string, code int) bool {
	if call[0] == "docker-credential-spendonce" {
		return code == 0
	}
	args := call[1:]
	switch {
	case len(args) > 0 && args[0] == "token":
		return code == 0 || code == 6
	case len(args) > 0 && args[0] == "credential":
		return code == 0
	case len(args) > 0 && args[0] == "exec": // what the command prints is its own
		return code < 125
	case len(args) > 1 && args[0] == "lease":
		return code == 0 && (args[1] == "auth" || args[1] == "mint") || args[1] == "run"
	}
	return false
}

// secretCommand takes in what a file holds, less a newline at its end.
func secretCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || args[0] != "session" && args[0] != "token" {
		ts.Fatalf("usage: secret session|token FILE")
	}
	value := canary.Of(args[0], strings.TrimSuffix(ts.ReadFile(args[1]), "\n"))
	w := worldOf(ts)
	w.mu.Lock()
	defer w.mu.Unlock()
	if args[0] == "session" {
		w.sessions = append(w.sessions, value)
	} else {
		w.tokens = append(w.tokens, value)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
