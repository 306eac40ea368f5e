// Package keyringtest gives tests a real keyring: a session bus of their own
// with a gnome-keyring-daemon on it, in scratch directories, without a
// desktop and without anybody to ask.
package keyringtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	// AddressVariable is where programs look for the bus.
	AddressVariable = "DBUS_SESSION_BUS_ADDRESS"

	secrets  = "org.freedesktop.secrets"
	password = "keyringtest"
	bound    = 30 * time.Second // only something broken reaches it
)

// Bus starts a session bus with nothing on it and points this process, and
// those it starts, to it until the test ends.
func Bus(tb testing.TB) {
	tb.Helper()
	dir := scratch(tb)
	config := filepath.Join(dir, "bus.conf")
	// Services are not looked for: nothing of this machine is started.
	text := fmt.Sprintf(`<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:dir=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := watched(dir, "dbus-daemon", "--config-file="+config, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	start(tb, cmd, dir)
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("the bus says no address: %v", err)
	}
	tb.Setenv(AddressVariable, strings.TrimSpace(address))
	// The library keeps one connection for all of the process: the next bus
	// is another one.
	tb.Cleanup(func() {
		if conn, err := dbus.SessionBus(); err == nil {
			_ = conn.Close()
		}
	})
}

// Start starts a bus with an unlocked keyring on it.
func Start(tb testing.TB) {
	tb.Helper()
	Bus(tb)
	Keyring(tb, true)
}

// Keyring starts a keyring on the bus of [Bus]; locked has no login keyring
// that is open, and nobody to ask for its password.
func Keyring(tb testing.TB, unlocked bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	conn, err := dbus.Connect(os.Getenv(AddressVariable), dbus.WithContext(ctx))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	owners := make(chan *dbus.Signal, 16)
	conn.Signal(owners)
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, secrets)); err != nil {
		tb.Fatal(err)
	}
	dir := scratch(tb)
	args := []string{"--foreground", "--components=secrets"}
	if unlocked {
		args = append(args, "--unlock")
	}
	cmd := watched(dir, "gnome-keyring-daemon", args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+dir, "XDG_DATA_HOME="+dir+"/data", "XDG_CACHE_HOME="+dir+"/cache", "XDG_CONFIG_HOME="+dir+"/config")
	start(tb, cmd, dir)
	for {
		select {
		case s := <-owners:
			if s != nil && strings.HasSuffix(s.Name, ".NameOwnerChanged") && len(s.Body) > 0 && s.Body[0] == secrets {
				awaitService(ctx, tb, conn)
				return
			}
		case <-ctx.Done():
			tb.Fatal("no keyring answers on the bus")
		}
	}
}

// awaitService waits until the keyring answers: it takes its name on the bus
// before it offers anything there.
func awaitService(ctx context.Context, tb testing.TB, conn *dbus.Conn) {
	tb.Helper()
	service := conn.Object(secrets, "/org/freedesktop/secrets")
	for {
		call := service.CallWithContext(ctx, "org.freedesktop.Secret.Service.SearchItems", 0, map[string]string{"keyringtest": "none"})
		if call.Err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			tb.Fatalf("the keyring took its name and offers nothing: %v", call.Err)
		}
	}
}

// scratch is a directory with a short path: it has to hold sockets. What
// [watched] runs removes it.
func scratch(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "keyring") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, passwordFile), []byte(password), 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

const passwordFile = "password"

// A test process may be killed, and runs no cleanup then: a shell between
// stays until the pipe at its standard input closes, however that comes
// about, and then takes the daemon and its directory with it. What ends a
// process group politely does not end the shell before.
const watch = `trap "" HUP INT QUIT TERM
dir=$1; shift
"$@" <"$dir/` + passwordFile + `" & daemon=$!
cat >/dev/null
kill -KILL $daemon
wait $daemon
rm -rf "$dir"`

// watched is a command that runs the daemon until [start]'s pipe closes.
func watched(dir, daemon string, args ...string) *exec.Cmd {
	return exec.CommandContext(context.Background(), "sh", append([]string{"-c", watch, "sh", dir, daemon}, args...)...)
}

// start starts a watched command, and ends it with the test.
func start(tb testing.TB, cmd *exec.Cmd, dir string) {
	tb.Helper()
	if _, err := exec.LookPath(cmd.Args[5]); err != nil {
		_ = os.RemoveAll(dir)
		tb.Fatalf("%v: the packages dbus and gnome-keyring are needed", err)
	}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = pipe.Close()
		_ = cmd.Wait()
	})
}

// Items are the user names of all items that the keyring on the bus holds of
// a service, sorted.
func Items(tb testing.TB, service string) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	conn, err := dbus.Connect(os.Getenv(AddressVariable), dbus.WithContext(ctx))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var open, locked []dbus.ObjectPath
	err = conn.Object(secrets, "/org/freedesktop/secrets").
		CallWithContext(ctx, "org.freedesktop.Secret.Service.SearchItems", 0, map[string]string{"service": service}).Store(&open, &locked)
	if err != nil {
		tb.Fatal(err)
	}
	names := []string{}
	for _, path := range append(open, locked...) {
		var attributes map[string]string
		if err := conn.Object(secrets, path).StoreProperty("org.freedesktop.Secret.Item.Attributes", &attributes); err != nil {
			tb.Fatal(err)
		}
		names = append(names, attributes["username"])
	}
	slices.Sort(names)
	return names
}
