package durable_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

const (
	oldContent = "the old content, somewhat longer than the new one\n"
	newContent = "the new content\n"
)

func ops(steps []durable.Step) string {
	var names []string
	for _, s := range steps {
		names = append(names, s.Op)
	}
	return strings.Join(names, " ")
}

func TestReplacingSyncsTheFileBeforeTheRenameAndTheDirectoryAfterIt(t *testing.T) {
	path := t.TempDir()
	var plain durabletest.Fault
	dir := openDirOn(t, plain.Disk(), path)
	if err := dir.Replace("f", []byte(newContent)); err != nil {
		t.Fatal(err)
	}
	steps := plain.Steps()
	if got, want := ops(steps), "open create write fsync rename fsyncdir"; got != want {
		t.Fatalf("steps %q, want %q", got, want)
	}
	temp := steps[1].Path
	if filepath.Dir(temp) != path || steps[2].Path != temp || steps[3].Path != temp {
		t.Errorf("created %s, wrote %s, synced %s: want one temporary file in %s", temp, steps[2].Path, steps[3].Path, path)
	}
	if steps[4].Path != filepath.Join(path, "f") || steps[5].Path != path {
		t.Errorf("renamed to %s, synced %s", steps[4].Path, steps[5].Path)
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{"f"}) {
		t.Errorf("%q stand in the directory, want the file alone", got)
	}
}

func TestTheTemporaryFileIsWholeAndPrivateAtTheRename(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "f"), oldContent)
	var temp string
	renames := 0
	dir := openDirOn(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
		switch s.Op {
		case "create":
			temp = s.Path
			err := do()
			st, statErr := os.Stat(temp)
			if statErr != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("just created: %v, %v, want mode 0600", st, statErr)
			}
			return err
		case "rename":
			renames++
			if got := contentOf(t, temp); got != newContent {
				t.Errorf("about to rename %q", got)
			}
			if got := contentOf(t, filepath.Join(path, "f")); got != oldContent {
				t.Errorf("before the rename the file holds %q", got)
			}
		}
		return do()
	}}, path)
	if err := dir.Replace("f", []byte(newContent)); err != nil {
		t.Fatal(err)
	}
	if renames != 1 || contentOf(t, filepath.Join(path, "f")) != newContent {
		t.Errorf("%d renames, content %q", renames, contentOf(t, filepath.Join(path, "f")))
	}
}

// What holds after a fault at any step of a replacement: the file is the old
// one or the new one, whole; nil means the new one; an error from before the
// rename means the old one; ErrNotSynced means the new one.
func checkReplaced(t *testing.T, path string, f *durabletest.Fault, err error) {
	t.Helper()
	got := contentOf(t, filepath.Join(path, "f"))
	op := f.Step().Op
	want := oldContent
	switch {
	case err == nil, errors.Is(err, durable.ErrNotSynced), op == "rename" && f.Mode == durabletest.Reported:
		want = newContent
	case !errors.Is(err, durabletest.ErrInjected):
		t.Errorf("the error hides its cause: %v", err)
	}
	if got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
	if f.Hit() && err == nil && op != "unlink" {
		t.Error("the fault was not reported")
	}
	if (op == "fsyncdir") != errors.Is(err, durable.ErrNotSynced) {
		t.Errorf("%v after a fault at %s", err, op)
	}
	left := slices.DeleteFunc(namesIn(t, path), func(n string) bool { return n == "f" })
	if len(left) > 0 && f.Mode != durabletest.Crash && op != "unlink" {
		t.Errorf("%q stay behind", left)
	}
	if len(left) > 1 {
		t.Errorf("%q stay behind", left)
	}
	dir := openDir(t, path)
	if err := dir.RemoveOldTemps("f", time.Now().Add(time.Hour), time.Minute); err != nil {
		t.Error(err)
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{"f"}) {
		t.Errorf("%q stand in the directory after the old temporary files were removed", got)
	}
	if err := dir.Replace("f", []byte("again")); err != nil || contentOf(t, filepath.Join(path, "f")) != "again" {
		t.Errorf("the next replacement: %v", err)
	}
}

func TestAFaultAtAnyStepOfAReplacementLeavesTheOldOrTheNewFile(t *testing.T) {
	var path string
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		path = t.TempDir()
		write(t, filepath.Join(path, "f"), oldContent)
		dir, err := disk.OpenDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		return dir.Replace("f", []byte(newContent))
	}, func(f *durabletest.Fault, err error) { checkReplaced(t, path, f, err) })
	if steps != 6 {
		t.Errorf("%d steps were swept, want 6", steps)
	}
}

func TestAFaultAtAnyStepOfAReservedReplacementLeavesTheOldOrTheNewFile(t *testing.T) {
	var path string
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		path = t.TempDir()
		write(t, filepath.Join(path, "f"), oldContent)
		dir, err := disk.OpenDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		temp, err := dir.Prepare("f", 16<<10)
		if err != nil {
			return err
		}
		defer temp.Discard()
		if err := temp.Fill([]byte("first thought, and a long one, longer than the second")); err != nil {
			return err
		}
		if err := temp.Fill([]byte(newContent)); err != nil {
			return err
		}
		return temp.Publish()
	}, func(f *durabletest.Fault, err error) { checkReplaced(t, path, f, err) })
	if steps != 9 {
		t.Errorf("%d steps were swept, want 9", steps)
	}
}

func TestAFaultAtAnyStepOfAnExclusiveCreationLeavesTheWholeFileOrNone(t *testing.T) {
	var path string
	durabletest.Sweep(t, func(disk durable.Disk) error {
		path = t.TempDir()
		dir, err := disk.OpenDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		return dir.CreateExclusive("f", []byte(newContent))
	}, func(f *durabletest.Fault, err error) {
		b, readErr := os.ReadFile(filepath.Join(path, "f"))
		switch {
		case err == nil:
			if string(b) != newContent {
				t.Errorf("nil, and the file holds %q (%v)", b, readErr)
			}
		case f.Mode == durabletest.Crash && f.Step().Op == "write":
			// The one instant that leaves an empty file.
			if readErr != nil || len(b) != 0 {
				t.Errorf("killed before the write: %q, %v", b, readErr)
			}
		case !errors.Is(readErr, fs.ErrNotExist):
			t.Errorf("an error, and a file with %q stays (%v)", b, readErr)
		}
	})
}

func TestAnExclusiveCreationThatFailsLeavesTheFileOfSomebodyElse(t *testing.T) {
	for _, op := range []string{"create", "write"} {
		path := t.TempDir()
		name := filepath.Join(path, "f")
		dir := openDirOn(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
			if s.Op != op {
				return do()
			}
			// We were slow, and somebody broke our file and made its own.
			err := do()
			if err == nil {
				err = os.Remove(name)
			}
			if err != nil {
				return err
			}
			write(t, name, "a successor's")
			return durabletest.ErrInjected
		}}, path)
		if err := dir.CreateExclusive("f", []byte("ours")); !errors.Is(err, durabletest.ErrInjected) {
			t.Fatal(err)
		}
		if got := contentOf(t, name); got != "a successor's" {
			t.Errorf("%s: the successor's file holds %q", op, got)
		}
	}
}

func TestAnExclusiveCreationNeverTakesWhatExists(t *testing.T) {
	dir := newDir(t)
	if err := dir.CreateExclusive("f", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := dir.CreateExclusive("f", []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v, want fs.ErrExist", err)
	}
	if err := os.Symlink("nowhere", dir.Join("link")); err != nil {
		t.Fatal(err)
	}
	if err := dir.CreateExclusive("link", []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a dangling link: %v, want fs.ErrExist", err)
	}
	if got := contentOf(t, dir.Join("f")); got != "one" {
		t.Errorf("the file holds %q", got)
	}
	if got := namesIn(t, dir.Path()); !slices.Equal(got, []string{"f", "link"}) {
		t.Errorf("%q stand in the directory", got)
	}
}

func TestFillingAgainReplacesAllThatWasSaidBefore(t *testing.T) {
	dir := newDir(t)
	temp, err := dir.Prepare("f", 4096)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"a long first version", "short", "", "the last"} {
		if err := temp.Fill([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := temp.Publish(); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, dir.Join("f")); got != "the last" {
		t.Errorf("the file holds %q", got)
	}
}

func TestWhatWasReservedAndNotFilledIsNotPublished(t *testing.T) {
	dir := newDir(t)
	write(t, dir.Join("f"), oldContent)
	temp, err := dir.Prepare("f", 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := temp.Publish(); err == nil {
		t.Error("published without content")
	}
	if got := contentOf(t, dir.Join("f")); got != oldContent {
		t.Errorf("the file holds %q", got)
	}
	if got := namesIn(t, dir.Path()); len(got) != 1 {
		t.Errorf("%q stand in the directory", got)
	}
}

func TestADiscardedTemporaryFileIsGoneAndOfNoUse(t *testing.T) {
	dir := newDir(t)
	write(t, dir.Join("f"), oldContent)
	temp, err := dir.Prepare("f", 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := temp.Fill([]byte(newContent)); err != nil {
		t.Fatal(err)
	}
	if !temp.Intact() {
		t.Error("not intact before")
	}
	temp.Discard()
	temp.Discard()
	(*durable.Temp)(nil).Discard()
	if temp.Intact() || (*durable.Temp)(nil).Intact() {
		t.Error("intact afterwards")
	}
	if err := temp.Fill([]byte(newContent)); err == nil {
		t.Error("filled after it was discarded")
	}
	if err := temp.Publish(); err == nil {
		t.Error("published after it was discarded")
	}
	if got := contentOf(t, dir.Join("f")); got != oldContent {
		t.Errorf("the file holds %q", got)
	}
	if got := namesIn(t, dir.Path()); len(got) != 1 {
		t.Errorf("%q stand in the directory", got)
	}
}

func TestATemporaryFileThatWasRemovedOrSwappedIsNotIntact(t *testing.T) {
	for _, swap := range []bool{false, true} {
		dir := newDir(t)
		write(t, dir.Join("f"), oldContent)
		temp, err := dir.Prepare("f", 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := temp.Fill([]byte(newContent)); err != nil {
			t.Fatal(err)
		}
		for _, name := range namesIn(t, dir.Path()) {
			if name == "f" {
				continue
			}
			if err := os.Remove(dir.Join(name)); err != nil {
				t.Fatal(err)
			}
			if swap {
				write(t, dir.Join(name), "somebody else's")
			}
		}
		if temp.Intact() {
			t.Errorf("intact (swapped: %v)", swap)
		}
		if !swap {
			if err := temp.Publish(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("publishing: %v, want fs.ErrNotExist", err)
			}
		}
		temp.Discard()
		if got := contentOf(t, dir.Join("f")); got != oldContent {
			t.Errorf("the file holds %q", got)
		}
	}
}

// Two writers with long and short versions, many readers: an in-place rewrite
// would show a tail of the longer one.
func TestStormOfReadersSeesOnlyWholeVersions(t *testing.T) {
	readers, rounds := 20, 30
	if testing.Short() {
		readers, rounds = 8, 10
	}
	path := t.TempDir()
	version := func(writer, n int) string {
		return fmt.Sprintf("%d %s\n", writer, strings.Repeat(fmt.Sprintf("%04d ", n), 1+(writer*3000+n)%4000))
	}
	write(t, filepath.Join(path, "f"), version(0, 0))
	var writers, all sync.WaitGroup
	stop := make(chan struct{})
	for w := range 2 {
		writers.Go(func() {
			dir, err := durable.Disk{}.OpenDir(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer dir.Close()
			for n := range rounds {
				if err := dir.Replace("f", []byte(version(w, n))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range readers {
		all.Go(func() {
			dir, err := durable.Disk{}.OpenDir(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer dir.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				f, err := dir.Read("f", 1<<20)
				var w, n int
				if err == nil {
					_, err = fmt.Sscanf(string(f.Bytes), "%d %d", &w, &n)
				}
				if err != nil || string(f.Bytes) != version(w, n) {
					t.Errorf("a reader saw %.40q… of %d bytes (%v)", f.Bytes, len(f.Bytes), err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	all.Wait()
}
