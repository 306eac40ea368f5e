package keys_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/keyringtest"
	"github.com/spendonce/spendonce/internal/sealed"
)

// with makes keys with that configuration.
func with(c keys.Config) *keys.Keys {
	return &keys.Keys{Config: func() (keys.Config, error) { return c, nil }, Wait: 20 * time.Second}
}

func mustMake(t *testing.T, k *keys.Keys) (sealed.Ref, sealed.Key) {
	t.Helper()
	ref, key, err := k.Make(t.Context(), func(sealed.Ref) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return ref, key
}

// mustSay fails the test unless err says all of it.
func mustSay(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v, and should say %q", err, w)
		}
	}
}

// identity writes a file of age identities and returns its path and text.
func identity(t *testing.T, ids ...fmt.Stringer) (path, text string) {
	t.Helper()
	text = "# made for a test\n"
	for _, id := range ids {
		text += id.String() + "\n"
	}
	path = filepath.Join(t.TempDir(), "identity.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, text
}

func x25519(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func hybrid(t *testing.T) *age.HybridIdentity {
	t.Helper()
	id, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestAKeyIsOpenedByEachOfItsAgeIdentities(t *testing.T) {
	for name, generate := range map[string]func(*testing.T) fmt.Stringer{
		"X25519": func(t *testing.T) fmt.Stringer { return x25519(t) }, "hybrid": func(t *testing.T) fmt.Stringer { return hybrid(t) },
	} {
		t.Run(name, func(t *testing.T) {
			one, two := generate(t), generate(t)
			both, _ := identity(t, one, two)
			ref, key := mustMake(t, with(keys.Config{Key: "age:" + both}))
			if ref.Kind != keys.KindAge || ref.ID != key.ID() || len(ref.Wrapped) == 0 {
				t.Errorf("made %+v", ref)
			}
			for _, id := range []fmt.Stringer{one, two} {
				path, _ := identity(t, id)
				k := with(keys.Config{Key: "age:" + path})
				for what, get := range map[string]func(context.Context, sealed.Ref) (sealed.Key, error){"Key": k.Key, "Look": k.Look} {
					if got, err := get(t.Context(), ref); err != nil || got.ID() != key.ID() {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
		})
	}
}

func TestAFurtherRecipientOpensToo(t *testing.T) {
	own, _ := identity(t, x25519(t))
	spare := x25519(t)
	ref, key := mustMake(t, with(keys.Config{Key: "age:" + own, Recipients: []string{spare.Recipient().String()}}))
	path, _ := identity(t, spare)
	// The one that was configured is tried first and does not open it.
	other, _ := identity(t, x25519(t))
	k := with(keys.Config{Key: "age:" + other, Identities: []string{path}})
	if got, err := k.Key(t.Context(), ref); err != nil || got.ID() != key.ID() {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNoUsableIdentityIsNamedAndNotQuoted(t *testing.T) {
	right, _ := identity(t, x25519(t))
	ref, _ := mustMake(t, with(keys.Config{Key: "age:" + right}))
	wrong, _ := identity(t, x25519(t))
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, text := identity(t, x25519(t))
	for name, tt := range map[string]struct {
		config keys.Config
		want   string
	}{
		"another identity": {keys.Config{Key: "age:" + wrong}, "opens it"},
		"none configured":  {keys.Config{Key: "keyring"}, `set key = "age:FILE"`},
		"a missing file":   {keys.Config{Key: "age:" + dir + "/none"}, "no such file"},
		"a passphrase":     {keys.Config{Key: "age:" + file("scrypt", "age-encryption.org/v1\n-> scrypt x 18\n")}, "passphrase"},
		"an armored one":   {keys.Config{Key: "age:" + file("armor", "-----BEGIN AGE ENCRYPTED FILE-----\nx\n")}, "passphrase"},
		"an SSH key":       {keys.Config{Key: "age:" + file("ssh", "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")}, "age-keygen"},
		"a mangled one":    {keys.Config{Key: "age:" + file("mangled", strings.Replace(text, "SECRET-KEY-1", "SECRET-KEY-1!", 1))}, "no file of age identities"},
		"an empty one":     {keys.Config{Key: "age:" + file("empty", "")}, "no file of age identities"},
		"a huge one":       {keys.Config{Key: "age:" + file("huge", strings.Repeat("#\n", 1<<20))}, "larger"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := with(tt.config).Key(t.Context(), ref)
			mustSay(t, err, tt.want)
			if err != nil && strings.Contains(err.Error(), "SECRET-KEY-1") {
				t.Errorf("it quotes the key: %v", err)
			}
		})
	}
	cut := ref
	cut.Wrapped = ref.Wrapped[:len(ref.Wrapped)-1]
	_, err := with(keys.Config{Key: "age:" + right}).Key(t.Context(), cut)
	mustSay(t, err, "damaged")
	_, _, err = with(keys.Config{Key: "age:" + right, Recipients: []string{"nobody"}}).Make(t.Context(), func(sealed.Ref) error { return nil })
	mustSay(t, err, "no age recipient")
}

func TestAKindThatIsNotKnownIsNamed(t *testing.T) {
	_, err := with(keys.Config{}).Key(t.Context(), sealed.Ref{Kind: "tpm", ID: sealed.NewKey().ID()})
	mustSay(t, err, `"tpm"`)
}

func TestNothingIsMadeThatCouldNotBeNoted(t *testing.T) {
	keyringtest.Start(t)
	full := errors.New("the disk is full")
	var ref sealed.Ref
	k := with(keys.Config{Key: keys.KindKeyring})
	_, _, err := k.Make(t.Context(), func(r sealed.Ref) error { ref = r; return full })
	if !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if _, err := k.Key(t.Context(), ref); !errors.Is(err, keys.ErrNotInKeyring) {
		t.Errorf("it is in the keyring: %v", err)
	}
}

func TestAKeyIsKeptInARealKeyring(t *testing.T) {
	keyringtest.Start(t)
	k := with(keys.Config{Key: keys.KindKeyring})
	ref, key := mustMake(t, k)
	if ref.Kind != keys.KindKeyring || len(ref.Wrapped) != 0 {
		t.Errorf("made %+v", ref)
	}
	// Another process: it has no configuration.
	fresh := &keys.Keys{}
	for what, get := range map[string]func(context.Context, sealed.Ref) (sealed.Key, error){"Key": fresh.Key, "Look": fresh.Look} {
		if got, err := get(t.Context(), ref); err != nil || got.ID() != key.ID() {
			t.Errorf("%s: %v", what, err)
		}
	}
	second, _ := mustMake(t, k)
	for range 2 { // the second time there is nothing to do
		if err := k.Drop(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	_, err := fresh.Key(t.Context(), ref)
	mustSay(t, err, "has no key "+ref.ID[:8], "restore")
	if _, err := fresh.Key(t.Context(), second); err != nil {
		t.Errorf("the key beside was lost: %v", err)
	}
}

// Each connection is one of 64 processes'.
func TestAKeyringThatIsBesiegedServesAll(t *testing.T) {
	keyringtest.Start(t)
	ref, key := mustMake(t, with(keys.Config{Key: keys.KindKeyring}))
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if got, err := (&keys.Keys{}).Key(t.Context(), ref); err != nil || got.ID() != key.ID() {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
}

func TestWithoutASessionBusTheErrorSaysWhatIsMissing(t *testing.T) {
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d/bus", os.Geteuid())); err == nil {
		t.Setenv(keyringtest.AddressVariable, "unix:path="+t.TempDir()+"/none")
	} else {
		t.Setenv(keyringtest.AddressVariable, "")
	}
	k := with(keys.Config{Key: keys.KindKeyring})
	_, err := k.Key(t.Context(), sealed.Ref{Kind: keys.KindKeyring, ID: sealed.NewKey().ID()})
	mustSay(t, err, "session bus", "dbus-run-session", "age")
	_, _, err = k.Make(t.Context(), func(sealed.Ref) error { return nil })
	mustSay(t, err, "session bus")
	if !errors.Is(err, keys.ErrNoKeyring) {
		t.Errorf("%v", err)
	}
}

func TestABusThatIsGoneIsNamed(t *testing.T) {
	t.Setenv(keyringtest.AddressVariable, "unix:path="+t.TempDir()+"/gone")
	_, err := with(keys.Config{}).Key(t.Context(), sealed.Ref{Kind: keys.KindKeyring, ID: sealed.NewKey().ID()})
	mustSay(t, err, "session bus does not answer", "dbus-run-session")
}

func TestABusWithoutAKeyringIsNamed(t *testing.T) {
	keyringtest.Bus(t)
	_, err := with(keys.Config{}).Key(t.Context(), sealed.Ref{Kind: keys.KindKeyring, ID: sealed.NewKey().ID()})
	mustSay(t, err, "no keyring", "gnome-keyring")
}

// Nobody is there to type the password.
func TestALockedKeyringIsNamedWithinTheBound(t *testing.T) {
	keyringtest.Bus(t)
	keyringtest.Keyring(t, false)
	k := with(keys.Config{Key: keys.KindKeyring})
	k.Wait = 5 * time.Second
	_, err := k.Key(t.Context(), sealed.Ref{Kind: keys.KindKeyring, ID: sealed.NewKey().ID()})
	if err == nil {
		t.Error("a locked keyring gave a key")
	}
	_, _, err = k.Make(t.Context(), func(sealed.Ref) error { return nil })
	mustSay(t, err, "keyring")
}

func TestTheEndOfAContextEndsTheWaitForTheKeyring(t *testing.T) {
	keyringtest.Bus(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := with(keys.Config{}).Key(ctx, sealed.Ref{Kind: keys.KindKeyring, ID: sealed.NewKey().ID()})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A bus that takes the connection and says nothing.
func TestABusThatHangsEndsWithinTheBound(t *testing.T) {
	path := t.TempDir() + "/bus"
	bus, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bus.Close() }()
	t.Setenv(keyringtest.AddressVariable, "unix:path="+path)
	k := with(keys.Config{Key: keys.KindKeyring})
	k.Wait = 50 * time.Millisecond
	ref := sealed.Ref{Kind: keys.KindKeyring, ID: sealed.NewKey().ID()}
	_, err = k.Key(t.Context(), ref)
	mustSay(t, err, "did not answer within")
	_, _, err = k.Make(t.Context(), func(sealed.Ref) error { return nil })
	mustSay(t, err, "did not answer within")
	mustSay(t, k.Drop(t.Context(), ref), "did not answer within")
	_, err = k.Look(t.Context(), ref)
	mustSay(t, err, "keyring")
}

// What stands in the notes is not always what we wrote there.
func TestAKeyWithAnIDThatIsNoneIsNotInTheKeyring(t *testing.T) {
	keyringtest.Start(t)
	for _, id := range []string{"", "abc"} {
		ref := sealed.Ref{Kind: keys.KindKeyring, ID: id}
		if _, err := (&keys.Keys{}).Key(t.Context(), ref); !errors.Is(err, keys.ErrNotInKeyring) {
			t.Errorf("%q: %v", id, err)
		}
		if err := (&keys.Keys{}).Drop(t.Context(), ref); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// Whoever makes such an item anew in another collection does not hide ours.
func TestAnItemOfTheSameNameDoesNotHideTheKey(t *testing.T) {
	keyringtest.Start(t)
	ref, key := mustMake(t, with(keys.Config{Key: keys.KindKeyring}))
	conn, err := dbus.Connect(os.Getenv(keyringtest.AddressVariable), dbus.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const service, collection = "org.freedesktop.secrets", "org.freedesktop.Secret.Collection.CreateItem"
	var none dbus.Variant
	var session, item, prompt dbus.ObjectPath
	must(t, conn.Object(service, "/org/freedesktop/secrets").Call("org.freedesktop.Secret.Service.OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&none, &session))
	type value struct {
		Session           dbus.ObjectPath
		Parameters, Value []byte
		ContentType       string
	}
	properties := map[string]dbus.Variant{
		"org.freedesktop.Secret.Item.Label":      dbus.MakeVariant("another"),
		"org.freedesktop.Secret.Item.Attributes": dbus.MakeVariant(map[string]string{"service": "spendonce", "username": ref.ID}),
	}
	for range 3 { // in whatever order they are found
		must(t, conn.Object(service, "/org/freedesktop/secrets/collection/session").
			Call(collection, 0, properties, value{session, nil, []byte("another thing"), "text/plain"}, false).Store(&item, &prompt))
	}
	for what, get := range map[string]func(context.Context, sealed.Ref) (sealed.Key, error){"Key": (&keys.Keys{}).Key, "Look": (&keys.Keys{}).Look} {
		if got, err := get(t.Context(), ref); err != nil || got.ID() != key.ID() {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A recipient that is none would be found out when the identity is lost.
func TestEachRecipientIsOne(t *testing.T) {
	own, _ := identity(t, x25519(t))
	spare := x25519(t).Recipient().String()
	for name, bad := range map[string]string{
		"empty": "", "a comment": "# " + spare, "two in one": spare + "\n" + spare, "a plugin's": "age1yubikey1qqqqqqqq", "an SSH key": "ssh-ed25519 AAAA",
	} {
		_, _, err := with(keys.Config{Key: "age:" + own, Recipients: []string{spare, bad}}).Make(t.Context(), func(sealed.Ref) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "no age recipient") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMoreRecipientsThanAHeaderHoldsAreRefused(t *testing.T) {
	own, _ := identity(t, x25519(t))
	many := slices.Repeat([]string{x25519(t).Recipient().String()}, 700)
	_, _, err := with(keys.Config{Key: "age:" + own, Recipients: many}).Make(t.Context(), func(sealed.Ref) error { return nil })
	mustSay(t, err, "recipients")
}

// A pipe that nobody writes to.
func TestAnIdentityThatIsAPipeDoesNotHang(t *testing.T) {
	own, _ := identity(t, x25519(t))
	ref, _ := mustMake(t, with(keys.Config{Key: "age:" + own}))
	pipe := t.TempDir() + "/pipe"
	must(t, unix.Mkfifo(pipe, 0o600))
	_, err := with(keys.Config{Key: "age:" + pipe}).Key(t.Context(), ref)
	mustSay(t, err, "no file of age identities")
}
