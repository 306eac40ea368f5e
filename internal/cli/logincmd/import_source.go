package logincmd

import (
	"cmp"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/movein"
	"github.com/spendonce/spendonce/internal/takeover"
	"github.com/spendonce/spendonce/oauthflow"
)

// source is a session of another program that was found.
type source struct {
	place   takeover.Place
	session movein.Session
	resumed bool     // a move that was cut short
	others  []string // files of further sessions for the same server
}

// findSource finds and reads the session, or that of a move which was cut
// short.
func (a *app) findSource(m *takeover.Mover, target string, f importFlags) (source, error) {
	program := movein.File
	if p := movein.Program(f.source); p == movein.MCPRemote || p == movein.Kubelogin {
		program = p
	}
	if program == movein.File && (f.file != "" || f.cache != "") {
		return source{}, streams.Usage("--file and --cache belong to mcp-remote and kubelogin: a FILE is named itself")
	}
	if program == movein.MCPRemote && f.login.url == "" {
		return source{}, streams.Usage("mcp-remote's session is found by the URL of its server: give --url, as mcp-remote was given it")
	}
	if j, session, err := m.Cut(target); err != nil {
		return source{}, err
	} else if j != nil && j.Program == program && a.goesOn(j.Place(), f) {
		return source{place: j.Place(), session: session, resumed: true}, nil
	}
	var s source
	var err error
	switch {
	case program == movein.File:
		s.place, err = placeOf(program, f.source)
	case f.file != "":
		s.place, err = placeOf(program, f.file)
	case program == movein.MCPRemote:
		s, err = findMCPRemote(f)
	default:
		return a.findKubelogin(m, f)
	}
	if err != nil {
		return source{}, err
	}
	if program == movein.MCPRemote {
		s.place.URL = f.login.url
		hash, ok := strings.CutSuffix(s.place.Name, movein.MCPRemoteTokens)
		if !ok {
			return source{}, streams.Usage("%s is not one of mcp-remote's files with tokens, whose names end in %s", f.file, movein.MCPRemoteTokens)
		}
		if _, err := os.Lstat(filepath.Join(s.place.Dir, hash+movein.MCPRemoteClient)); err == nil {
			s.place.Client = hash + movein.MCPRemoteClient
		}
	}
	s.session, err = m.Read(s.place)
	return s, err
}

// goesOn reports whether the command is for the place of a move that was cut
// short.
func (a *app) goesOn(p takeover.Place, f importFlags) bool {
	switch p.Program {
	case movein.MCPRemote:
		return f.login.url == p.URL
	case movein.File:
		named, err := placeOf(movein.File, f.source)
		return err == nil && named == p
	}
	return true
}

func placeOf(program movein.Program, path string) (takeover.Place, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return takeover.Place{}, err
	}
	return takeover.Place{Program: program, Dir: filepath.Dir(abs), Name: filepath.Base(abs)}, nil
}

// under is a directory below the user's own.
func under(names ...string) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", streams.Usage("HOME is not set: name the directory by --cache")
	}
	return filepath.Join(append([]string{home}, names...)...), nil
}

// findMCPRemote looks in the directories of all its versions, and takes the
// file that was written last.
func findMCPRemote(f importFlags) (source, error) {
	base := cmp.Or(f.cache, os.Getenv("MCP_REMOTE_CONFIG_DIR"))
	if base == "" {
		var err error
		if base, err = under(".mcp-auth"); err != nil {
			return source{}, err
		}
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return source{}, err
	}
	versions, err := os.ReadDir(base)
	if err != nil {
		return source{}, noSession("there is no session of mcp-remote in %s: name its directory by --cache", base)
	}
	other := strings.TrimSuffix(f.login.url, "/")
	if other == f.login.url {
		other += "/"
	}
	var s source
	var newest time.Time
	unnamed := 0
	for _, v := range versions {
		if !strings.HasPrefix(v.Name(), "mcp-remote-") {
			continue
		}
		dir := filepath.Join(base, v.Name())
		for _, hash := range []string{movein.MCPRemoteHash(f.login.url, f.login.resource), movein.MCPRemoteHash(f.login.url, ""), movein.MCPRemoteHash(other, "")} {
			name := hash + movein.MCPRemoteTokens
			info, err := os.Lstat(filepath.Join(dir, name))
			path := filepath.Join(dir, name)
			if err != nil || path == s.place.Path() || slices.Contains(s.others, path) {
				continue
			}
			if s.place.Name != "" && !info.ModTime().After(newest) {
				s.others = append(s.others, path)
				continue
			}
			if s.place.Name != "" {
				s.others = append(s.others, s.place.Path())
			}
			newest = info.ModTime()
			s.place = takeover.Place{Program: movein.MCPRemote, Dir: dir, Name: name}
		}
		if files, err := filepath.Glob(filepath.Join(dir, "*"+movein.MCPRemoteTokens)); err == nil {
			unnamed += len(files)
		}
	}
	switch {
	case s.place.Name != "":
		return s, nil
	case unnamed > 0:
		return source{}, noSession("mcp-remote has no session for %s in %s, and %d for others: the URL must be the very one that it was given; if it was given headers or a resource, too, name its file by --file", f.login.url, base, unnamed)
	}
	return source{}, noSession("mcp-remote has no session in %s: name its directory by --cache", base)
}

// findKubelogin reads its cache: the names of the files say nothing, so each
// is asked whose it is.
func (a *app) findKubelogin(m *takeover.Mover, f importFlags) (source, error) {
	dir := f.cache
	if dir == "" {
		if kube := os.Getenv("KUBECACHEDIR"); kube != "" {
			dir = filepath.Join(kube, "oidc-login")
		} else {
			var err error
			if dir, err = under(".kube", "cache", "oidc-login"); err != nil {
				return source{}, err
			}
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return source{}, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return source{}, err
	}
	var found []source
	var unusable error
	for _, e := range entries {
		if !movein.KubeloginName(e.Name()) {
			continue
		}
		p := takeover.Place{Program: movein.Kubelogin, Dir: dir, Name: e.Name()}
		session, err := m.Read(p)
		switch {
		case err != nil:
			unusable = err
		case f.login.issuer != "" && !oauthflow.SameIssuer(session.Issuer, f.login.issuer), f.login.clientID != "" && !slices.Contains(session.Audience, f.login.clientID):
		default:
			found = append(found, source{place: p, session: session})
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var whose []string
		for _, s := range found {
			whose = append(whose, credcmd.Printable(s.session.Issuer+" for "+s.session.ClientID+" in "+s.place.Name[:8]+"..."))
		}
		return source{}, streams.Usage("kubelogin has %d sessions that fit (%s): choose one by --issuer and --client-id, or name its file by --file", len(found), strings.Join(whose, ", "))
	case unusable != nil:
		return source{}, unusable
	}
	return source{}, noSession("kubelogin has no such session in %s: name its directory by --cache; what it keeps in the desktop's keyring cannot be moved (let it use --token-cache-storage=disk, and sign in there once)", dir)
}

func noSession(format string, args ...any) error {
	return &streams.Exit{Code: 3, Err: fmt.Errorf(format, args...)}
}
