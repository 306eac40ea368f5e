//go:build linux

package cluster

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// Server is the path of the etcd server: the tool of go.mod, built unless Go
// still has it. Several test processes may ask at once.
func Server(t testing.TB) string {
	t.Helper()
	path, err := builtServer()
	if err != nil {
		t.Fatalf("building etcd: %v", err)
	}
	return path
}

var builtServer = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-n", "go.etcd.io/etcd/server/v3")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = new(bytes.Buffer)
	out, err := cmd.Output()
	return string(bytes.TrimSpace(out)), err
})
