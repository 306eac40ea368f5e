package clientconf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// planDocker names the helper for each registry in config.json:
//
//	{"credHelpers": {"registry.example.com": "spendonce"}}
//
// Docker starts docker-credential-spendonce, which must be on PATH: this
// program under another name.
func (s *Setup) planDocker(p *Plan, known []record, wanted []Service) error {
	file, err := inHome(os.Getenv("DOCKER_CONFIG"), ".docker", "config.json")
	if err != nil {
		return err
	}
	doc, _, err := read(s.Disk, file)
	if err != nil {
		return err
	}
	for _, o := range originsOf(wanted) {
		_, host, _ := strings.Cut(o.origin, "://")
		path := []string{"credHelpers", host}
		if old, ok, err := Get(doc, path...); err == nil && ok && !helperName(old) {
			return fmt.Errorf("%s has a value for %s that is no helper's name: take it out and try again", file, pathText(path))
		}
		r := record{Client: Docker, Targets: o.targets, File: file}
		if err := s.planFile(p, known, r, path, "spendonce", "\t"); err != nil {
			return err
		}
	}
	if len(wanted) > 0 {
		s.lookForDockerHelper(p)
	}
	return nil
}

// helperName reports whether s is the end of a helper's file name, which is no
// secret.
func helperName(s string) bool {
	return len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
	})
}

const dockerHelper = "docker-credential-spendonce"

func (s *Setup) lookForDockerHelper(p *Plan) {
	if len(s.Program) > 1 {
		p.note("docker starts the helper without options: set SPENDONCE_STATE_DIR in docker's environment in place of --state-dir, and keep the configuration where it is looked for")
	}
	path, err := exec.LookPath(dockerHelper)
	if err != nil {
		p.note("docker does not find its helper yet: 'ln -s %s %s' makes it, or do that in another directory of PATH",
			shellWord(s.Program[0]), shellWord(filepath.Join(filepath.Dir(s.Program[0]), dockerHelper)))
		return
	}
	here, err1 := os.Stat(path)
	there, err2 := os.Stat(s.Program[0])
	if err1 != nil || err2 != nil || !os.SameFile(here, there) {
		p.note("%s is not this program: 'ln -sf %s %s' makes it so", path, shellWord(s.Program[0]), shellWord(path))
	}
}

// inHome is a file in a client's directory: the one it was told to use, or dir
// in the home directory.
func inHome(told, dir, file string) (string, error) {
	if told != "" {
		abs, err := filepath.Abs(told)
		return filepath.Join(abs, file), err
	}
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("HOME is not set, so the settings in ~/%s are not found", filepath.Join(dir, file))
	}
	return filepath.Join(home, dir, file), nil
}
