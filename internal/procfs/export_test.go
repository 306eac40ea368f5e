//go:build linux

package procfs

// OpenAt is Open for what is mounted elsewhere.
func OpenAt(path string) (*FS, error) { return open(path) }
