package real_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Exit codes of the program that these tests meet.
const (
	exitOK            = 0
	exitNoCredential  = 3
	exitLoginRequired = 4
)

// buildDir holds the program while the tests run.
var buildDir string

func TestMain(m *testing.M) {
	// The servers under the tests log through slog; only failures of ours count.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	dir, err := os.MkdirTemp("", "spendonce-real-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// program is the path of the binary under test, built when first needed.
var program = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("SPENDONCE_BIN"); given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(buildDir, "spendonce")
	build := exec.Command("go", "build", "-o", path, "./cmd/spendonce")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, nil
})
