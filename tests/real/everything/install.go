package everything

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	//go:embed package.json
	packageJSON []byte
	//go:embed package-lock.json
	packageLock []byte
)

// installTime is how long one may take that has to fetch everything.
const installTime = 5 * time.Minute

// Modules returns the directory in which the packages of package-lock.json are
// installed: their node_modules is below. Its name has the lock's hash in it,
// so what is there is what was asked for. Of several processes that find it
// missing one installs, and the others wait.
func Modules(ctx context.Context) (string, error) {
	sum := sha256.Sum256(bytes.Join([][]byte{packageJSON, packageLock}, nil))
	cache, err := os.UserCacheDir()
	if err != nil { // no home: as private, and as lasting as it gets
		cache = filepath.Join(os.TempDir(), fmt.Sprint("spendonce-cache-", os.Getuid()))
	}
	parent := filepath.Join(cache, "spendonce-tests")
	dir := filepath.Join(parent, "everything-"+hex.EncodeToString(sum[:8]))
	if installed(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if installed(dir) {
		return dir, nil
	}
	if err := install(ctx, dir); err != nil {
		return "", fmt.Errorf("installing the npm packages: %w", err)
	}
	return dir, nil
}

func installed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "node_modules"))
	return err == nil
}

// install makes a directory that is complete, or none at all.
func install(ctx context.Context, dir string) error {
	next, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next) }() // nothing, once it has its name
	for name, content := range map[string][]byte{"package.json": packageJSON, "package-lock.json": packageLock} {
		if err := os.WriteFile(filepath.Join(next, name), content, 0o600); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	// No script of a package runs: none of them needs one.
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = next
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return os.Rename(next, dir)
}

// lock waits for an exclusive lock, which the end of the process frees too.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// place puts a script of ours where node finds the packages from it, and
// returns its path.
func place(ctx context.Context, name string, content []byte) (string, error) {
	dir, err := Modules(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	path := filepath.Join(dir, hex.EncodeToString(sum[:8])+"-"+name)
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	next, err := os.CreateTemp(dir, "placing-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(next.Name()) }() // nothing, once it has its name
	_, err = next.Write(content)
	if err := errors.Join(err, next.Close()); err != nil {
		return "", err
	}
	return path, os.Rename(next.Name(), path)
}

// Version is that of an installed package.
func Version(ctx context.Context, pkg string) (string, error) {
	dir, err := Modules(ctx)
	if err != nil {
		return "", err
	}
	node := exec.CommandContext(ctx, "node", "-p", "JSON.parse(require('fs').readFileSync(process.argv[1])).version",
		filepath.Join(dir, "node_modules", filepath.FromSlash(pkg), "package.json"))
	out, err := node.Output()
	return strings.TrimSpace(string(out)), err
}
