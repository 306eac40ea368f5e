package durable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

// readBack opens what was made.
func readBack() error {
	var disk durable.Disk
	dir, err := disk.OpenDir("a/b")
	if err != nil {
		return err
	}
	for _, name := range []string{"replaced", "exclusive", "kept"} {
		if _, err := dir.Read(name, 100); err != nil {
			return err
		}
	}
	return nil
}

// modes makes one of everything under the umask in its argument, as a user to
// whom modes mean something, and looks at what came out.
func modes(args []string) error {
	mask, err := strconv.ParseInt(args[0], 8, 32)
	if err != nil {
		return err
	}
	unix.Umask(int(mask))
	var disk durable.Disk
	dir, err := disk.MakeDir("a/b")
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, do := range []func() error{
		func() error { return dir.Replace("replaced", []byte("x")) },
		func() error { return dir.CreateExclusive("exclusive", []byte("x")) },
		func() error {
			k, err := dir.OpenKept("kept")
			k.Close()
			return err
		},
		// A maker that died before it could give the bits back.
		func() error { return os.WriteFile("a/b/dead", nil, 0) },
		func() error {
			k, err := dir.OpenKept("dead")
			k.Close()
			return err
		},
		func() error { return os.WriteFile("a/b/loose", nil, 0o644) },
		func() error { return os.Chmod("a/b/loose", 0o644) },
		func() error {
			k, err := dir.OpenKept("loose")
			k.Close()
			return err
		},
		func() error { return os.WriteFile("a/b/was loose", nil, 0o666) },
		func() error { return os.Chmod("a/b/was loose", 0o666) },
		func() error { return dir.Replace("was loose", []byte("x")) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	for name, want := range map[string]fs.FileMode{
		"a": 0o700, "a/b": 0o700,
		"a/b/replaced": 0o600, "a/b/exclusive": 0o600, "a/b/kept": 0o600,
		"a/b/dead": 0o600, "a/b/loose": 0o600, "a/b/was loose": 0o600,
	} {
		st, err := os.Lstat(name)
		if err != nil {
			return err
		}
		if got := st.Mode().Perm(); got != want {
			return fmt.Errorf("%s has mode %04o, want %04o", name, got, want)
		}
	}
	return readBack()
}

func TestFilesAre0600AndDirectories0700WhateverTheUmask(t *testing.T) {
	for _, mask := range []string{"000", "022", "077", "0777"} {
		t.Run(mask, func(t *testing.T) { runUnprivileged(t, "modes", mask) })
	}
}

func TestADirectoryThatOthersMayWriteToIsRefused(t *testing.T) {
	for mode, safe := range map[fs.FileMode]bool{
		0o700: true, 0o755: true, 0o711: true, 0o500: true,
		0o777: false, 0o775: false, 0o720: false, 0o702: false, 0o777 | fs.ModeSticky: false,
	} {
		path := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for name, open := range map[string]func(string) (*durable.Dir, error){"opening": durable.Disk{}.OpenDir, "making": durable.Disk{}.MakeDir} {
			dir, err := open(path)
			dir.Close()
			if safe && err != nil || !safe && !errors.Is(err, durable.ErrUnsafe) {
				t.Errorf("%s a directory of mode %v: %v", name, mode, err)
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("%q does not name the directory", err)
			}
		}
	}
}

func TestADirectoryMayBeReachedThroughALinkButNotBeAFile(t *testing.T) {
	base := t.TempDir()
	target := filepath.Join(base, "real")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "real", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(base, "file"), "")
	if err := unix.Mkfifo(filepath.Join(base, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var disk durable.Disk
	dir, err := disk.OpenDir(filepath.Join(base, "link"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.Replace("f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, target); !slices.Equal(got, []string{"f"}) {
		t.Errorf("%q stand in the directory behind the link", got)
	}
	for _, name := range []string{"dangling", "file", "fifo", "file/below"} {
		soon(t, name, func() {
			if dir, err := disk.OpenDir(filepath.Join(base, name)); err == nil {
				dir.Close()
				t.Errorf("%s was opened as a directory", name)
			}
			if dir, err := disk.MakeDir(filepath.Join(base, name)); err == nil {
				dir.Close()
				t.Errorf("%s was made a directory", name)
			}
		})
	}
}

func TestMakingADirectorySyncsTheParentsOfAllItMade(t *testing.T) {
	base := t.TempDir()
	var plain durabletest.Fault
	path := filepath.Join(base, "a", "b")
	dir, err := plain.Disk().MakeDir(path)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	var got []string
	for _, s := range plain.Steps() {
		if s.Op != "open" {
			got = append(got, s.Op+" "+strings.TrimPrefix(s.Path, base))
		}
	}
	if want := []string{"mkdir /a", "fsyncdir ", "mkdir /a/b", "fsyncdir /a"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
}

func TestAfterAFaultAtAnyStepADirectoryCanStillBeMade(t *testing.T) {
	var path string
	durabletest.Sweep(t, func(disk durable.Disk) error {
		path = filepath.Join(t.TempDir(), "a", "b", "c")
		dir, err := disk.MakeDir(path)
		dir.Close()
		return err
	}, func(f *durabletest.Fault, err error) {
		// The first look may fail: then nothing is missing, it seems, and
		// nothing may be made.
		if f.Hit() && err == nil {
			t.Error("the fault was not reported")
		}
		dir, err := durable.Disk{}.MakeDir(path)
		if err != nil {
			t.Fatal(err)
		}
		dir.Close()
	})
}

// TestWhatIsNoRegularFileIsRefusedAtOnce puts everything else that a file
// system knows in a file's place.
func TestWhatIsNoRegularFileIsRefusedAtOnce(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "target"), oldContent)
	for link, to := range map[string]string{"link": "target", "dangling": "nowhere", "self": "self", "to device": "/dev/zero"} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(base, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(base, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A socket's name has a short bound; make it from within.
	t.Chdir(base)
	socket, err := net.Listen("unix", "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	places := map[string][]string{base: {"link", "dangling", "self", "to device", "directory", "fifo", "socket"}}
	if os.Geteuid() == 0 {
		places["/dev"] = []string{"null", "zero"}
	} else {
		t.Log("devices left out: /dev belongs to root")
	}
	for path, names := range places {
		dir := openDir(t, path)
		for _, name := range names {
			before, err := os.Lstat(dir.Join(name))
			if err != nil {
				t.Fatal(err)
			}
			for what, do := range map[string]func() error{
				"reading": func() error {
					_, err := dir.Read(name, 1<<20)
					return err
				},
				"keeping open": func() error {
					k, err := dir.OpenKept(name)
					k.Close()
					return err
				},
				"keeping open to read": func() error {
					k, err := dir.OpenKeptReadOnly(name)
					k.Close()
					return err
				},
				"preparing to replace": func() error {
					temp, err := dir.Prepare(name, 10)
					temp.Discard()
					return err
				},
				"replacing": func() error { return dir.Replace(name, []byte(newContent)) },
			} {
				soon(t, what+" "+name, func() {
					if err := do(); !errors.Is(err, durable.ErrNotRegular) || !strings.Contains(err.Error(), name) {
						t.Errorf("%s %s: %v, want ErrNotRegular and the path", what, name, err)
					}
				})
			}
			after, err := os.Lstat(dir.Join(name))
			if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
				t.Errorf("%s was changed: %v, %v", name, after, err)
			}
		}
	}
	if got := contentOf(t, filepath.Join(base, "target")); got != oldContent {
		t.Errorf("the link's target holds %q", got)
	}
	for _, name := range namesIn(t, base) {
		if strings.HasSuffix(name, ".tmp") {
			t.Errorf("%s stays behind", name)
		}
	}
}

func TestALinkThatComesAfterTheTemporaryFileIsNotReplaced(t *testing.T) {
	dir := newDir(t)
	write(t, dir.Join("target"), oldContent)
	temp, err := dir.Prepare("f", 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := temp.Fill([]byte(newContent)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", dir.Join("f")); err != nil {
		t.Fatal(err)
	}
	if err := temp.Publish(); !errors.Is(err, durable.ErrNotRegular) {
		t.Errorf("%v, want ErrNotRegular", err)
	}
	if got, err := os.Readlink(dir.Join("f")); err != nil || got != "target" {
		t.Errorf("the link: %q, %v", got, err)
	}
	if got := namesIn(t, dir.Path()); !slices.Equal(got, []string{"f", "target"}) {
		t.Errorf("%q stand in the directory", got)
	}
}

func TestALinkThatComesBetweenTheLookAndTheOpeningIsRefused(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "target"), oldContent)
	for name, put := range map[string]func(string) error{
		"link":      func(p string) error { return os.Symlink("target", p) },
		"fifo":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		dir := openDirOn(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
			if s.Op == "open" && filepath.Base(s.Path) == name {
				if err := os.Remove(s.Path); err != nil {
					return err
				}
				if err := put(s.Path); err != nil {
					return err
				}
			}
			return do()
		}}, path)
		soon(t, name, func() {
			write(t, dir.Join(name), "regular")
			if _, err := dir.Read(name, 100); !errors.Is(err, durable.ErrNotRegular) {
				t.Errorf("reading what became a %s: %v, want ErrNotRegular", name, err)
			}
			if err := os.Remove(dir.Join(name)); err != nil {
				t.Error(err)
			}
			write(t, dir.Join(name), "regular")
			k, err := dir.OpenKept(name)
			k.Close()
			if !errors.Is(err, durable.ErrNotRegular) {
				t.Errorf("keeping open what became a %s: %v, want ErrNotRegular", name, err)
			}
		})
	}
}

func TestWhatBelongsToAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	dir := newDir(t)
	write(t, dir.Join("f"), oldContent)
	if err := os.Chown(dir.Join("f"), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"reading":      func() error { _, err := dir.Read("f", 1000); return err },
		"keeping open": func() error { k, err := dir.OpenKept("f"); k.Close(); return err },
		"replacing":    func() error { return dir.Replace("f", []byte(newContent)) },
	} {
		if err := do(); !errors.Is(err, durable.ErrUnsafe) || !strings.Contains(err.Error(), dir.Join("f")) {
			t.Errorf("%s: %v, want ErrUnsafe and the path", what, err)
		}
	}
	if got := contentOf(t, dir.Join("f")); got != oldContent {
		t.Errorf("the file holds %q", got)
	}
	if err := os.Chown(dir.Path(), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if other, err := (durable.Disk{}).OpenDir(dir.Path()); !errors.Is(err, durable.ErrUnsafe) {
		other.Close()
		t.Errorf("opening a directory of another user: %v, want ErrUnsafe", err)
	}
}

func TestADirectoryIsHeldWhereverItsNameLeads(t *testing.T) {
	base := t.TempDir()
	path, moved := filepath.Join(base, "d"), filepath.Join(base, "moved")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := openDir(t, path)
	if err := dir.Replace("f", []byte(oldContent)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "decoy"), "")
	if err := dir.Replace("f", []byte(newContent)); err != nil {
		t.Fatal(err)
	}
	f, err := dir.Read("f", 1000)
	if err != nil || string(f.Bytes) != newContent {
		t.Errorf("%q, %v", f.Bytes, err)
	}
	names, err := dir.Names()
	if err != nil || !slices.Equal(names, []string{"f"}) {
		t.Errorf("names %q, %v", names, err)
	}
	if names, err := dir.Names(); err != nil || len(names) != 1 {
		t.Errorf("asked again: names %q, %v", names, err)
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{"decoy"}) {
		t.Errorf("%q stand in the directory that took the name", got)
	}
}

func TestOldTemporaryFilesAreRemovedAndNothingElse(t *testing.T) {
	dir := newDir(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const age = 2 * time.Minute
	const nonce = "ABCDEFGHIJKLMNOPQRSTUVW234"
	put := func(name string, age time.Duration) {
		t.Helper()
		write(t, dir.Join(name), "RT")
		if err := os.Chtimes(dir.Join(name), now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	put(".f."+nonce+".tmp", age+time.Second)
	put(".f."+nonce[1:]+"Z.tmp", 1000*time.Hour)
	keep := map[string]time.Duration{
		"f":                                1000 * time.Hour,
		".f." + nonce[1:] + "2.tmp":        age,
		".f." + nonce[1:] + "3.tmp":        -time.Hour, // from the future
		".f.x." + nonce + ".tmp":           1000 * time.Hour,
		".g." + nonce + ".tmp":             1000 * time.Hour,
		"f." + nonce + ".tmp":              1000 * time.Hour,
		".f." + nonce:                      1000 * time.Hour,
		".f." + nonce + ".tmp.lock":        1000 * time.Hour,
		".f.tmp":                           1000 * time.Hour,
		".f..tmp":                          1000 * time.Hour,
		".f." + nonce[1:] + ".tmp":         1000 * time.Hour,
		".f." + nonce + "A.tmp":            1000 * time.Hour,
		".f.mynotesmynotesmynotesmyno.tmp": 1000 * time.Hour,
	}
	want := []string{}
	for name, age := range keep {
		put(name, age)
		want = append(want, name)
	}
	// The same name, and no file of ours.
	other := ".f." + nonce[1:] + "4.tmp"
	if err := os.Mkdir(dir.Join(other), 0o700); err != nil {
		t.Fatal(err)
	}
	link := ".f." + nonce[1:] + "5.tmp"
	if err := os.Symlink("f", dir.Join(link)); err != nil {
		t.Fatal(err)
	}
	want = append(want, other, link)
	if os.Geteuid() == 0 {
		foreign := ".f." + nonce[1:] + "6.tmp"
		put(foreign, 1000*time.Hour)
		if err := os.Chown(dir.Join(foreign), nobody, nobody); err != nil {
			t.Fatal(err)
		}
		want = append(want, foreign)
	}
	if err := dir.RemoveOldTemps("f", now, age); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got := namesIn(t, dir.Path()); !slices.Equal(got, want) {
		t.Errorf("there stand\n%q, want\n%q", got, want)
	}
}

func TestATemporaryFileOfOursIsKnownAsOne(t *testing.T) {
	dir := newDir(t)
	for _, final := range []string{"f", "a.b.json", ".hidden"} {
		temp, err := dir.Prepare(final, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.RemoveOldTemps(final, time.Now().Add(time.Hour), time.Minute); err != nil {
			t.Fatal(err)
		}
		if temp.Intact() {
			t.Errorf("an old temporary file of %s was not removed", final)
		}
		temp.Discard()
	}
}

func TestOneTemporaryFileThatCannotBeRemovedKeepsNotTheOthers(t *testing.T) {
	path := t.TempDir()
	plain := openDir(t, path)
	for range 3 {
		if _, err := plain.Prepare("f", 0); err != nil {
			t.Fatal(err)
		}
	}
	// The descriptors of the three stay open until the end of the process.
	disk := (&durabletest.Fault{Mode: durabletest.NotApplied, At: 1}).Disk()
	dir := openDirOn(t, disk, path)
	if err := dir.RemoveOldTemps("f", time.Now().Add(time.Hour), time.Minute); !errors.Is(err, durabletest.ErrInjected) {
		t.Errorf("%v, want the injected fault", err)
	}
	if got := namesIn(t, path); len(got) != 1 {
		t.Errorf("%q stay, want one", got)
	}
}
