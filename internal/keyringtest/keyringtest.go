// Package keyringtest gives tests a real keyring: a session bus of their own
// with a gnome-keyring-daemon on it, in scratch directories, without a
// desktop and without anybody to ask.
package keyringtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
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
	cmd := exec.CommandContext(context.Background(), "dbus-daemon", "--config-file="+config, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	start(tb, cmd)
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
	cmd := exec.CommandContext(context.Background(), "gnome-keyring-daemon", args...)
	cmd.Stdin = strings.NewReader(password)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_RUNTIME_DIR="+dir, "XDG_DATA_HOME="+dir+"/data", "XDG_CACHE_HOME="+dir+"/cache", "XDG_CONFIG_HOME="+dir+"/config")
	start(tb, cmd)
	for {
		select {
		case s := <-owners:
			if s != nil && strings.HasSuffix(s.Name, ".NameOwnerChanged") && len(s.Body) > 0 && s.Body[0] == secrets {
				return
			}
		case <-ctx.Done():
			tb.Fatal("no keyring answers on the bus")
		}
	}
}

// scratch is a directory with a short path: it has to hold sockets.
func scratch(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "keyring") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func start(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	if err := cmd.Start(); err != nil {
		tb.Fatalf("%v: the packages dbus and gnome-keyring are needed", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
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
