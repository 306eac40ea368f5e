package doctorcmd

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/config"
)

// surroundings is what stands around the store and can spoil it.
type surroundings struct {
	uid, gid   int
	home       bool
	version    string
	executable string
	earlier    string   // another program of this name that a shell finds first
	later      []string // and further ones
	proxies    []string // names of variables that are set
	trust      []string
	ancestors  []ancestor // of the directories that the store is in
	workTree   string     // of git, that the store file lies in
	identity   identity
}

// identity is the file of age identities that the configuration names.
type identity struct {
	path   string      // "": none, or none that is there
	mode   fs.FileMode // of a regular file; 0 of anything else
	beside bool        // it lies in the directory of the store
}

func lookAtIdentity(c *config.Config, r credstore.Report) identity {
	if c == nil {
		return identity{}
	}
	path, ok := strings.CutPrefix(c.Store.Key, "age:")
	info, err := os.Stat(path)
	if !ok || err != nil {
		return identity{}
	}
	id := identity{path: path}
	if info.Mode().IsRegular() {
		id.mode = info.Mode().Perm()
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		for _, dir := range []string{r.State.Path, r.Beside.Path} {
			dir, err := filepath.EvalSymlinks(dir)
			id.beside = id.beside || err == nil && strings.HasPrefix(target, dir+string(filepath.Separator))
		}
	}
	return id
}

// look gathers them. Nothing is executed and no value of a variable is kept.
func look(r credstore.Report, version string) surroundings {
	a := surroundings{uid: os.Geteuid(), gid: os.Getegid(), home: filepath.IsAbs(os.Getenv("HOME")), version: version}
	a.executable, _ = os.Executable()
	a.earlier, a.later = namesakes(a.executable, os.Getenv("PATH"))
	a.proxies = setOf("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy")
	a.trust = setOf("SSL_CERT_FILE", "SSL_CERT_DIR")
	if r.State.Path != "" {
		a.ancestors = ancestorsOf(r.State.Path, r.Beside.Path)
	}
	if r.Exists || r.Link != "" {
		a.workTree = workTreeOf(r.Beside.Path)
	}
	return a
}

func setOf(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return os.Getenv(name) == "" })
}

// namesakes finds other programs of our name on PATH: the one that comes
// before us, or instead of us, and those that come after.
func namesakes(executable, path string) (earlier string, later []string) {
	// The program for etcd is run by the one of our name beside it.
	self, err := os.Stat(filepath.Join(filepath.Dir(executable), strings.TrimSuffix(filepath.Base(executable), "-etcd")))
	if err != nil {
		return "", nil
	}
	ours := false
	var seen []os.FileInfo
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		name := filepath.Join(dir, "spendonce")
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 ||
			slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }) {
			continue
		}
		seen = append(seen, info)
		switch {
		case os.SameFile(info, self):
			ours = true
		case !ours && earlier == "":
			earlier = name
		default:
			later = append(later, name)
		}
	}
	return earlier, later
}

// ancestor is a directory above one of ours.
type ancestor struct {
	path     string
	uid, gid int
	mode     fs.FileMode
}

// overflow is who owns what belongs to nobody in this user namespace.
const overflow = 65534

// unsafe says why somebody else could rename what is in the directory, or "".
// A group that has the user's own number is taken for the user's private one.
func (a ancestor) unsafe(uid, gid int) string {
	sticky := a.mode&fs.ModeSticky != 0
	switch {
	case a.uid != uid && a.uid != 0 && a.uid != overflow:
		return fmt.Sprintf("belongs to user %d", a.uid)
	case !sticky && a.mode&0o002 != 0:
		return fmt.Sprintf("has mode %04o, so everybody may write to it", a.mode.Perm())
	case !sticky && a.mode&0o020 != 0 && (a.gid != gid || gid != uid):
		return fmt.Sprintf("has mode %04o, so its group %d may write to it", a.mode.Perm(), a.gid)
	default:
		return ""
	}
}

// ancestorsOf are the directories above dirs, by the names that are used and
// by those behind links.
func ancestorsOf(dirs ...string) []ancestor {
	var all []ancestor
	seen := map[string]bool{}
	for _, dir := range dirs {
		above := []string{dir}
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			above = append(above, resolved)
		}
		for _, path := range above {
			for path != "" && path != filepath.Dir(path) {
				path = filepath.Dir(path)
				if seen[path] {
					break
				}
				seen[path] = true
				info, err := os.Stat(path)
				if err != nil {
					continue
				}
				if st, ok := info.Sys().(*syscall.Stat_t); ok {
					all = append(all, ancestor{path, int(st.Uid), int(st.Gid), info.Mode()})
				}
			}
		}
	}
	return all
}

// workTreeOf finds the git work tree around a directory, or "".
func workTreeOf(dir string) string {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	for path := resolved; ; path = filepath.Dir(path) {
		if _, err := os.Lstat(filepath.Join(path, ".git")); err == nil {
			return path
		}
		if path == filepath.Dir(path) {
			return ""
		}
	}
}
