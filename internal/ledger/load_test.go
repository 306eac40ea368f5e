//go:build linux

package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// A state file with two sessions, of which the first holds two tokens.
const (
	id1     = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	id2     = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA"
	id3     = "CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCA"
	token1  = "DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDA"
	token2  = "EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEA"
	first   = `{"session_id":"` + id1 + `","anchor_pid":101,"anchor_starttime":5001,"uid":1000,"gid":1001,"runtime_generation":3}`
	second  = `{"session_id":"` + id2 + `","anchor_pid":102,"anchor_starttime":5002,"uid":0,"gid":4294967295,"runtime_generation":9007199254740991}`
	someHex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func tokenRecord(hash string) string {
	return `{"token_sha256":"` + hash + `","session_id":"` + id1 + `","runtime_generation":3,"binding":{"compaction_epoch":0,` +
		`"request_epoch":9007199254740991,"h_source":"sha256:0","h_payload":"\"\\<","schema_version":1},"consumed":false}`
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func goodFile() string {
	return `{"version":1,"boot_id":"` + thisBoot + `","sessions":[` + first + `,` + second + `],"tokens":[` +
		tokenRecord(hashOf(token1)) + `,` + tokenRecord(hashOf(token2)) + "]}\n"
}

func TestAFileByHandIsLoaded(t *testing.T) {
	path := t.TempDir()
	write(t, stateFile(path), goodFile())
	l := open(t, path, ledger.Config{})
	for _, token := range []string{token1, token2} {
		got, err := l.Consume(never, secret.New(id1), 3, secret.New(token))
		want := ledger.Binding{RequestEpoch: 1<<53 - 1, HSource: "sha256:0", HPayload: `"\<`, SchemaVersion: 1}
		if err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	got, ok := l.Session(secret.New(id2))
	if !ok || got.Anchor != anchor(2) || got.UID != 0 || got.GID != 1<<32-1 || got.Generation != 1<<53-1 {
		t.Errorf("%+v, %v", got, ok)
	}
}

// What JSON leaves open is no doubt.
func TestSpaceAndOrderAreFree(t *testing.T) {
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, []byte(goodFile()), "", "\t"); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"spaced":                  " \r\n" + spaced.String() + "\n\n",
		"without a newline":       strings.TrimSuffix(goodFile(), "\n"),
		"other order":             replaced(goodFile(), `{"version":1,`, `{`, "]}\n", `],"version":1}`),
		"other order of sessions": replaced(goodFile(), first+`,`+second, second+`,`+first),
	} {
		path := t.TempDir()
		write(t, stateFile(path), file)
		l := open(t, path, ledger.Config{})
		if got := l.Stats(); got.Sessions != 2 || got.Pending != 2 || got.Commits != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// replaced replaces pairs, each of which must be there.
func replaced(in string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(in, pairs[i]) {
			panic("the file has no " + pairs[i])
		}
		in = strings.Replace(in, pairs[i], pairs[i+1], 1)
	}
	return in
}

// before is what stands in front of the first mark.
func before(in, mark string) string {
	in, _, _ = strings.Cut(in, mark)
	return in
}

// damagedFiles break one thing each.
func damagedFiles() map[string]string {
	good := goodFile()
	one := tokenRecord(hashOf(token1))
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, tokenRecord(hashOf(fmt.Sprint(i))))
		}
		return replaced(good, one+","+tokenRecord(hashOf(token2)), strings.Join(all, ","))
	}
	crowd := func(n int) string {
		var all []string
		for i := range n {
			id := newID().Reveal()
			all = append(all, replaced(first, id1, id, `:101`, fmt.Sprintf(":%d", 200+i)))
		}
		return `{"version":1,"boot_id":"` + thisBoot + `","sessions":[` + strings.Join(all, ",") + `],"tokens":[]}`
	}
	files := map[string]string{
		// not one JSON object in UTF-8
		"empty":              "",
		"a space":            " ",
		"cut short":          good[:len(good)-3],
		"half":               good[:len(good)/2],
		"more behind":        good + "x",
		"two states":         good + good,
		"a NUL behind":       good + "\x00",
		"a NUL in front":     "\x00" + good,
		"a NUL in a string":  replaced(good, "sha256:0", "sha256:\x00"),
		"a BOM":              "\ufeff" + good,
		"bad UTF-8":          replaced(good, "sha256:0", "sha256:\xff"),
		"a lone surrogate":   replaced(good, "sha256:0", `sha256:\ud800`),
		"an array":           "[" + good + "]",
		"null":               "null",
		"a string":           `"state"`,
		"a comment":          "/**/" + good,
		"a trailing comma":   replaced(good, "]}\n", "],}"),
		"a comma too many":   replaced(good, first+",", first+",,"),
		"zeros after a hole": good[:len(good)-40] + strings.Repeat("\x00", 40),

		// names
		"name twice":                     replaced(good, `"version":1`, `"version":1,"version":1`),
		"name twice in a session":        replaced(good, `"uid":1000`, `"uid":1000,"uid":1000`),
		"name twice, once escaped":       replaced(good, `"uid":1000`, `"uid":1000,"\u0075id":1000`),
		"name in other case":             replaced(good, `"version"`, `"Version"`),
		"name that folds":                replaced(good, `"sessions"`, `"\u017fessions"`),
		"name that folds, raw":           replaced(good, `"sessions"`, "\"\u017fessions\""),
		"name with an escape":            replaced(good, `"version"`, `"versio\u006e"`),
		"unknown name":                   replaced(good, `"version":1`, `"version":1,"more":1`),
		"unknown name in a session":      replaced(good, `"uid":1000`, `"uid":1000,"more":1`),
		"unknown name in a token":        replaced(good, `"consumed":false`, `"consumed":false,"token":"x"`),
		"unknown name in a binding":      replaced(good, `"schema_version":1`, `"schema_version":1,"more":1`),
		"empty name":                     replaced(good, `"version":1`, `"version":1,"":1`),
		"a file of tokens in plain text": replaced(good, `"token_sha256":"`+hashOf(token1), `"token":"`+token1),

		// the state
		"version 0":           replaced(good, `"version":1`, `"version":0`),
		"version 2":           replaced(good, `"version":1`, `"version":2`),
		"version as text":     replaced(good, `"version":1`, `"version":"1"`),
		"boot id empty":       replaced(good, thisBoot, ""),
		"boot id upper case":  replaced(good, thisBoot, strings.ToUpper(thisBoot)),
		"boot id short":       replaced(good, thisBoot, thisBoot[1:]),
		"boot id null":        replaced(good, `"`+thisBoot+`"`, "null"),
		"boot id escaped":     replaced(good, thisBoot, `\u0030`+thisBoot[1:]),
		"sessions null":       replaced(good, `[`+first+`,`+second+`]`, "null"),
		"sessions an object":  replaced(good, `[`+first+`,`+second+`]`, first),
		"a session null":      replaced(good, second, "null"),
		"a session in a list": replaced(good, second, "["+second+"]"),
		"1025 sessions":       crowd(1025),

		// a session
		"id short":               replaced(good, second, replaced(second, id2, id2[1:])),
		"id long":                replaced(good, second, replaced(second, id2, id2+"A")),
		"id padded":              replaced(good, second, replaced(second, id2, id2+"=")),
		"id with loose bits":     replaced(good, second, replaced(second, id2, id2[:42]+"B")),
		"id in another base64":   replaced(good, second, replaced(second, id2, "+"+id2[1:])),
		"id with a newline":      replaced(good, second, replaced(second, id2, `\n`+id2[1:])),
		"id with a newline more": replaced(good, second, replaced(second, id2, id2+`\n`)),
		"id escaped":             replaced(good, second, replaced(second, id2, `\u0042`+id2[1:])),
		"id empty":               replaced(good, second, replaced(second, id2, "")),
		"id a number":            replaced(good, second, replaced(second, `"`+id2+`"`, "7")),
		"two with one id":        replaced(good, second, replaced(second, id2, id1)),
		"two with one anchor":    replaced(good, second, replaced(second, `:102`, `:101`, `:5002`, `:5001`)),
		"pid 0":                  replaced(good, `"anchor_pid":101`, `"anchor_pid":0`),
		"pid too large":          replaced(good, `"anchor_pid":101`, `"anchor_pid":2147483648`),
		"pid negative":           replaced(good, `"anchor_pid":101`, `"anchor_pid":-1`),
		"pid as text":            replaced(good, `"anchor_pid":101`, `"anchor_pid":"101"`),
		"pid with a fraction":    replaced(good, `"anchor_pid":101`, `"anchor_pid":101.0`),
		"pid with an exponent":   replaced(good, `"anchor_pid":101`, `"anchor_pid":101e0`),
		"pid with a zero":        replaced(good, `"anchor_pid":101`, `"anchor_pid":0101`),
		"start time too large":   replaced(good, `"anchor_starttime":5001`, `"anchor_starttime":9007199254740992`),
		"start time beyond all":  replaced(good, `"anchor_starttime":5001`, `"anchor_starttime":99999999999999999999`),
		"minus zero":             replaced(good, `"anchor_starttime":5001`, `"anchor_starttime":-0`),
		"uid too large":          replaced(good, `"uid":1000`, `"uid":4294967296`),
		"gid too large":          replaced(good, `"gid":1001`, `"gid":4294967296`),
		"uid null":               replaced(good, `"uid":1000`, `"uid":null`),
		"generation too large":   replaced(good, second, replaced(second, `:9007199254740991`, `:9007199254740992`)),

		// a token
		"tokens null":                  replaced(good, `[`+one+`,`+tokenRecord(hashOf(token2))+`]`, "null"),
		"a token null":                 replaced(good, one, "null"),
		"257 tokens":                   many(257),
		"token twice":                  replaced(good, hashOf(token2), hashOf(token1)),
		"hash in upper case":           replaced(good, hashOf(token1), strings.ToUpper(someHex)),
		"hash short":                   replaced(good, hashOf(token1), someHex[1:]),
		"hash long":                    replaced(good, hashOf(token1), someHex+"0"),
		"hash not hex":                 replaced(good, hashOf(token1), "g"+someHex[1:]),
		"hash escaped":                 replaced(good, hashOf(token1), `\u0030`+someHex[1:]),
		"of a session not in the file": replaced(good, one, replaced(one, id1, id3)),
		"of a misspelt session":        replaced(good, one, replaced(one, id1, id1[1:])),
		"of a lower generation":        replaced(good, one, replaced(one, `"runtime_generation":3`, `"runtime_generation":2`)),
		"of a higher generation":       replaced(good, one, replaced(one, `"runtime_generation":3`, `"runtime_generation":4`)),
		"of another session's":         replaced(good, one, replaced(one, id1, id2)),
		"consumed true":                replaced(good, `"consumed":false`, `"consumed":true`),
		"consumed null":                replaced(good, `"consumed":false`, `"consumed":null`),
		"consumed as text":             replaced(good, `"consumed":false`, `"consumed":"false"`),
		"consumed 0":                   replaced(good, `"consumed":false`, `"consumed":0`),

		// a binding
		"epoch too large":      replaced(good, `"request_epoch":9007199254740991`, `"request_epoch":9007199254740992`),
		"epoch negative":       replaced(good, `"compaction_epoch":0`, `"compaction_epoch":-1`),
		"schema version 0":     replaced(good, `"schema_version":1`, `"schema_version":0`),
		"source empty":         replaced(good, `"sha256:0"`, `""`),
		"source with a space":  replaced(good, `"sha256:0"`, `"sha256 0"`),
		"source beyond ASCII":  replaced(good, `"sha256:0"`, `"sha256:é"`),
		"source too long":      replaced(good, `"sha256:0"`, `"`+strings.Repeat("x", 257)+`"`),
		"source null":          replaced(good, `"sha256:0"`, `null`),
		"source escaped":       replaced(good, `"sha256:0"`, `"sha256:\u0030"`),
		"payload escaped more": replaced(good, `\"\\<`, `\"\\\u003c`),
		"binding null":         replaced(good, one, before(one, `{"compaction`)+`null,"consumed":false}`),
		"binding in a list":    replaced(good, one, replaced(one, `{"compaction`, `[{"compaction`, `1},`, `1}],`)),
	}
	// each member once missing
	for _, m := range []string{
		`"version":1,`, `"boot_id":"` + thisBoot + `",`, `"session_id":"` + id1 + `",`, `"anchor_pid":101,`, `"anchor_starttime":5001,`, `"uid":1000,`,
		`"gid":1001,`, `,"runtime_generation":3`, `"token_sha256":"` + hashOf(token1) + `",`, `"compaction_epoch":0,`,
		`"request_epoch":9007199254740991,`, `"h_source":"sha256:0",`, `"h_payload":"\"\\<",`, `,"schema_version":1`, `,"consumed":false`,
	} {
		files["without "+m] = replaced(good, m, "")
	}
	files["without sessions"] = replaced(good, `"sessions":[`+first+`,`+second+`],`, "")
	files["without tokens"] = before(good, `,"tokens"`) + "}"
	files["without a token's session"] = replaced(good, one, replaced(one, `"session_id":"`+id1+`",`, ""))
	files["without a token's generation"] = replaced(good, one, replaced(one, `"runtime_generation":3,`, ""))
	return files
}

func TestAnyDoubtRefusesToStartAndLeavesTheFile(t *testing.T) {
	if _, err := ledger.Reserialized([]byte(goodFile())); err != nil {
		t.Fatalf("the file that is broken below: %v", err)
	}
	for name, file := range damagedFiles() {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			write(t, stateFile(path), file)
			before, err := durable.LookAt(stateFile(path))
			if err != nil {
				t.Fatal(err)
			}
			// Not even a state of another boot is dropped unread.
			for _, boot := range []string{thisBoot, otherBoot} {
				l, err := ledger.Open(openDir(t, durable.Disk{}, path), ledger.Config{BootID: boot})
				if err == nil {
					l.Close()
				}
				if !errors.Is(err, ledger.ErrDamaged) || errors.Is(err, ledger.ErrUnsafe) {
					t.Fatalf("opening: %v, want %v", err, ledger.ErrDamaged)
				}
				if !strings.Contains(err.Error(), "mv "+stateFile(path)+" ") {
					t.Errorf("%q does not say how to go on", err)
				}
				for _, content := range []string{"AAAA", "BBBB", "DDDD", "sha256:0", hashOf(token1)[:8], someHex[:8]} {
					if strings.Contains(err.Error(), content) {
						t.Errorf("%q shows what stands in the file", err)
					}
				}
			}
			after, err := durable.LookAt(stateFile(path))
			if err != nil || after.ID != before.ID || after.Mode != before.Mode {
				t.Errorf("the file was touched: %+v, then %+v, %v", before, after, err)
			}
			if got := contentOf(t, stateFile(path)); got != file {
				t.Error("the content was changed")
			}
		})
	}
}

func TestARefusalNamesThePlace(t *testing.T) {
	for _, c := range []struct{ file, place string }{
		{replaced(goodFile(), `"uid":1000`, `"uid":"1000"`), ", /sessions/0/uid: "},
		{replaced(goodFile(), `"uid":1000,`, ``), ", /sessions/0/uid: missing"},
		{replaced(goodFile(), `"uid":1000`, `"uid":1000,"x":1`), ", /sessions/0: "},
		{replaced(goodFile(), `"schema_version":1`, `"schema_version":0`), "/tokens/0/binding/schema_version: "},
		{replaced(goodFile(), `"version":1`, `"version":7`), "at byte 12, /version: "},
	} {
		path := t.TempDir()
		write(t, stateFile(path), c.file)
		_, err := ledger.Open(openDir(t, durable.Disk{}, path), ledger.Config{BootID: thisBoot})
		if err == nil || !strings.Contains(err.Error(), c.place) {
			t.Errorf("%v, want %q in it", err, c.place)
		}
	}
}

// What stands in the place of the state file is judged without waiting.
func TestWhatIsNoFileOfOursIsRefused(t *testing.T) {
	for name, place := range map[string]func(t *testing.T, file string){
		"a FIFO":      func(t *testing.T, file string) { must(t, unix.Mkfifo(file, 0o600)) },
		"a directory": func(t *testing.T, file string) { must(t, os.Mkdir(file, 0o700)) },
		"a link": func(t *testing.T, file string) {
			write(t, file+".else", goodFile())
			must(t, os.Symlink(file+".else", file))
		},
		"a link to nothing": func(t *testing.T, file string) { must(t, os.Symlink(file+".else", file)) },
		"a socket":          listen,
		"two names": func(t *testing.T, file string) {
			write(t, file, goodFile())
			must(t, os.Link(file, file+".else"))
		},
		"mode 0644":  ofMode(0o644),
		"mode 0640":  ofMode(0o640),
		"mode 0400":  ofMode(0o400),
		"mode 0700":  ofMode(0o700),
		"mode 01600": ofMode(0o1600),
		"mode 04600": ofMode(0o4600),
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			place(t, stateFile(path))
			refusedAsUnsafe(t, path)
		})
	}
}

func refusedAsUnsafe(t *testing.T, path string) {
	t.Helper()
	done := make(chan error, 1)
	dir := openDir(t, durable.Disk{}, path)
	before, err := durable.LookAt(stateFile(path))
	must(t, err)
	go func() {
		l, err := ledger.Open(dir, ledger.Config{BootID: thisBoot})
		if err == nil {
			l.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		wantError(t, "opening", err, ledger.ErrUnsafe)
	case <-time.After(20 * time.Second): // generous: it must not hang
		t.Fatal("opening hangs")
	}
	after, err := durable.LookAt(stateFile(path))
	if err != nil || before != after {
		t.Errorf("it was touched: %+v, %+v, %v", before, after, err)
	}
}

func ofMode(mode uint32) func(t *testing.T, file string) {
	return func(t *testing.T, file string) {
		write(t, file, goodFile())
		must(t, unix.Chmod(file, mode))
	}
}

func listen(t *testing.T, file string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: file}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestADeviceAndAStrangersFileAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make devices and give files away")
	}
	for name, place := range map[string]func(t *testing.T, file string){
		"a device": func(t *testing.T, file string) {
			must(t, unix.Mknod(file, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5)))) // never ends
		},
		"a stranger's": func(t *testing.T, file string) {
			write(t, file, goodFile())
			must(t, os.Chown(file, 65534, 65534))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			place(t, stateFile(path))
			refusedAsUnsafe(t, path)
		})
	}
}

func TestALockFileThatIsNoFileIsRefused(t *testing.T) {
	for name, place := range map[string]func(file string) error{
		"a FIFO": func(file string) error { return unix.Mkfifo(file, 0o600) },
		"a link": func(file string) error { return os.Symlink("/dev/null", file) },
	} {
		path := t.TempDir()
		must(t, place(filepath.Join(path, ledger.LockFile)))
		_, err := ledger.Open(openDir(t, durable.Disk{}, path), ledger.Config{BootID: thisBoot})
		wantError(t, name, err, ledger.ErrUnsafe)
		if names := namesIn(t, path); len(names) != 1 {
			t.Errorf("%s: %q stand in the directory", name, names)
		}
	}
}

func TestAFileOverTheBoundIsRefusedUnread(t *testing.T) {
	path := t.TempDir()
	write(t, stateFile(path), goodFile())
	cfg := ledger.Config{BootID: thisBoot, MaxBytes: len(goodFile()) - 1}
	_, err := ledger.Open(openDir(t, durable.Disk{}, path), cfg)
	wantError(t, "a byte too long", err, ledger.ErrDamaged)
	cfg.MaxBytes++
	open(t, path, cfg)

	for size, want := range map[int]error{4 << 20: nil, 4<<20 + 1: ledger.ErrDamaged} {
		path = t.TempDir()
		write(t, stateFile(path), goodFile()+strings.Repeat(" ", size-len(goodFile())))
		l, err := ledger.Open(openDir(t, durable.Disk{}, path), ledger.Config{BootID: thisBoot})
		wantError(t, fmt.Sprint(size, " bytes"), err, want)
		if err == nil {
			l.Close()
		}
	}
}

func TestAFileThatChangesWhileItIsReadIsRefused(t *testing.T) {
	path := t.TempDir()
	write(t, stateFile(path), goodFile())
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		err := do()
		if s.Op == "read" {
			must(t, os.Chmod(stateFile(path), 0o640))
			must(t, os.Chmod(stateFile(path), 0o600))
		}
		return err
	}}
	_, err := ledger.Open(openDir(t, disk, path), ledger.Config{BootID: thisBoot})
	wantError(t, "opening", err, ledger.ErrUnsafe)
}
