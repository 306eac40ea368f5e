package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
)

// The temporary directory of a test is ours, below a sticky one of root's.
func TestAPlaceOfOursThatOnlyWeCanMoveIsGood(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.CheckPlace(dir, 0o077); err != nil {
		t.Error(err)
	}
	link := filepath.Join(filepath.Dir(filepath.Dir(dir)), "link")
	if err := os.Symlink("a", link); err != nil {
		t.Fatal(err)
	}
	if err := durable.CheckPlace(filepath.Join(link, "b"), 0o077); err != nil {
		t.Errorf("a link of ours above the place: %v", err)
	}
}

func TestAPlaceThatOthersCanReachOrReplaceIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, base string) string
		want error
	}{
		{"open to the group", func(t *testing.T, base string) string { return madeDir(t, filepath.Join(base, "d"), 0o770) }, durable.ErrUnsafe},
		{"below what all may write to", func(t *testing.T, base string) string {
			above := madeDir(t, filepath.Join(base, "w"), 0o777)
			return madeDir(t, filepath.Join(above, "d"), 0o700)
		}, durable.ErrUnsafe},
		{"behind a link to what all may write to", func(t *testing.T, base string) string {
			above := madeDir(t, filepath.Join(base, "w"), 0o777)
			madeDir(t, filepath.Join(above, "d"), 0o700)
			link := filepath.Join(base, "l")
			if err := os.Symlink(above, link); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(link, "d")
		}, durable.ErrUnsafe},
		{"itself a link", func(t *testing.T, base string) string {
			link := filepath.Join(base, "l")
			if err := os.Symlink(madeDir(t, filepath.Join(base, "d"), 0o700), link); err != nil {
				t.Fatal(err)
			}
			return link
		}, durable.ErrNotRegular},
		{"a file", func(t *testing.T, base string) string {
			path := filepath.Join(base, "f")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, durable.ErrNotRegular},
		{"missing", func(_ *testing.T, base string) string { return filepath.Join(base, "x") }, os.ErrNotExist},
		{"relative", func(*testing.T, string) string { return "x" }, durable.ErrUnsafe},
		{"behind a circle of links", func(t *testing.T, base string) string {
			link := filepath.Join(base, "l")
			if err := os.Symlink(link, link); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(link, "d")
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := durable.CheckPlace(c.make(t, t.TempDir()), 0o077)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestAPlaceOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	for _, which := range []string{"the directory", "one above it", "a link on the way"} {
		t.Run(which, func(t *testing.T) {
			base := t.TempDir()
			above := madeDir(t, filepath.Join(base, "a"), 0o755)
			dir := madeDir(t, filepath.Join(above, "d"), 0o700)
			given, path := dir, dir
			switch which {
			case "one above it":
				given = above
			case "a link on the way":
				given = filepath.Join(base, "l")
				path = filepath.Join(given, "d")
				if err := os.Symlink("a", given); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Lchown(given, 12345, 12345); err != nil {
				t.Fatal(err)
			}
			if err := durable.CheckPlace(path, 0o077); !errors.Is(err, durable.ErrUnsafe) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func madeDir(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
