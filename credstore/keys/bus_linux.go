package keys

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/internal/secret"
)

// The Secret Service, of which looking needs three calls.
const (
	secretsName    = "org.freedesktop.secrets"
	secretsPath    = "/org/freedesktop/secrets"
	searchItems    = "org.freedesktop.Secret.Service.SearchItems"
	openSession    = "org.freedesktop.Secret.Service.OpenSession"
	getSecret      = "org.freedesktop.Secret.Item.GetSecret"
	noAnswer       = "org.freedesktop.DBus.Error.ServiceUnknown"
	noOwner        = "org.freedesktop.DBus.Error.NameHasNoOwner"
	limitsExceeded = "org.freedesktop.DBus.Error.LimitsExceeded"
)

// look asks the keyring for a key without asking a person. start says that a
// keyring may be started for it.
func look(ctx context.Context, id string, start bool) (sealed.Key, error) {
	conn, err := connect(ctx)
	if err != nil {
		return sealed.Key{}, err
	}
	defer func() { _ = conn.Close() }()
	flags := dbus.Flags(0)
	if !start {
		flags = dbus.FlagNoAutoStart
	}
	call := func(path dbus.ObjectPath, method string, args ...any) *dbus.Call {
		return conn.Object(secretsName, path).CallWithContext(ctx, method, flags, args...)
	}
	var open, locked []dbus.ObjectPath
	err = call(secretsPath, searchItems, map[string]string{"service": service, "username": id}).Store(&open, &locked)
	if err != nil {
		return sealed.Key{}, noService(err)
	}
	switch {
	case len(open) == 0 && len(locked) > 0:
		return sealed.Key{}, ErrKeyringLocked
	case len(open) == 0:
		return sealed.Key{}, notThere(id)
	}
	var none dbus.Variant
	var session dbus.ObjectPath
	// "plain": the bus is a socket of this user's own.
	if err := call(secretsPath, openSession, "plain", dbus.MakeVariant("")).Store(&none, &session); err != nil {
		return sealed.Key{}, noService(err)
	}
	var key sealed.Key
	for _, item := range open { // another collection may hold another thing of that name
		var got struct {
			Session           dbus.ObjectPath
			Parameters, Value []byte
			ContentType       string
		}
		if err = call(item, getSecret, session).Store(&got); err != nil {
			err = noService(err)
			continue
		}
		if key, err = parse(id, secret.New(string(got.Value))); err == nil {
			return key, nil
		}
	}
	return sealed.Key{}, err
}

// reachable reports why nothing can be asked of the keyring.
func reachable(ctx context.Context) error {
	conn, err := connect(ctx)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// connect opens a connection of its own to the session bus. A bus that is
// besieged is tried again, as long as ctx lasts.
func connect(ctx context.Context) (*dbus.Conn, error) {
	address, err := busAddress()
	if err != nil {
		return nil, err
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		conn, err := dbus.Connect(address, dbus.WithContext(ctx))
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !besieged(err) {
			return nil, fmt.Errorf("the session bus does not answer (%w), so no keyring can be asked: %w; %s", err, ErrNoKeyring, withoutABus)
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // spreads those who wait
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// besieged reports whether the bus lives and had no room for us just now.
func besieged(err error) bool {
	var answer dbus.Error
	var network *net.OpError
	return errors.Is(err, syscall.EAGAIN) || errors.As(err, &network) && network.Timeout() ||
		errors.As(err, &answer) && answer.Name == limitsExceeded
}

const withoutABus = "run this in your desktop session or below dbus-run-session, or seal the store with age instead"

// busAddress is that of the session's bus. The library, asked for it, would
// start a bus where there is none, which no keyring answers on.
func busAddress() (string, error) {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" && address != "autolaunch:" {
		return address, nil
	}
	path := "/run/user/" + strconv.Itoa(os.Geteuid()) + "/bus"
	if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		return "unix:path=" + path, nil
	}
	return "", fmt.Errorf("there is no session bus to ask the keyring on (DBUS_SESSION_BUS_ADDRESS is not set and %s is not there): %w; %s",
		path, ErrNoKeyring, withoutABus)
}

func noService(err error) error {
	var answer dbus.Error
	if errors.As(err, &answer) && (answer.Name == noAnswer || answer.Name == noOwner) {
		return fmt.Errorf("no keyring (Secret Service) answers on the session bus: %w; start gnome-keyring or another one, or seal the store with age instead", ErrNoKeyring)
	}
	return fmt.Errorf("the keyring answered with an error: %w", err)
}
