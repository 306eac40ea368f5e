package takeover

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// running returns the process id of an mcp-remote that serves url, 0 if there
// is none, or if this system has no /proc to tell: the newer versions say so
// nowhere else.
func running(url string) int {
	if url == "" {
		return 0
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && serves(string(line), url) {
			return pid
		}
	}
	return 0
}

// serves reports whether a command line is that of an mcp-remote for url.
// Some launchers replace theirs by one string.
func serves(line, url string) bool {
	words := strings.FieldsFunc(line, func(r rune) bool { return r == 0 || r == ' ' })
	for i, w := range words {
		if strings.Contains(w, "mcp-remote") && (i == 0 || words[i-1] != "import") && slices.Contains(words[i+1:], url) {
			return true
		}
	}
	return false
}
