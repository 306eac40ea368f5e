//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEveryExampleOfTheLeaseHelpRuns takes the examples from the help as they
// stand and runs each in a session, with what it names in its place.
func TestEveryExampleOfTheLeaseHelpRuns(t *testing.T) {
	const binding = `{"compaction_epoch":0,"request_epoch":1,"h_source":"sha256:a1","h_payload":"sha256:b2","schema_version":1}`
	prints := map[string]string{ // what an example must print; those that print nothing are not listed
		`echo "$BINDING" | spendonce lease mint | spendonce lease consume`:                                                 binding,
		"spendonce lease run -- spendonce lease auth":                                                                      `{"ok":true`,
		`spendonce lease run --stay --generation 3 -- sh -c 'kill -USR1 $PPID; sleep 1; cat "$SPENDONCE_GENERATION_FILE"'`: "4",
		"spendonce lease consume <token-file":                                                                              binding,
		"spendonce lease why $$":                                                                                           "belongs to session",
		"spendonce lease status":                                                                                           "SESSION ",
		"spendonce lease install --print":                                                                                  "# spendonce-broker.service",
		"spendonce lease install --user":                                                                                   "wrote ",
	}
	found := 0
	for _, name := range []string{"", "serve", "run", "auth", "mint", "consume", "why", "status", "install"} {
		r := newRealm(t)
		r.write("systemctl", "#!/bin/sh\n[ \"$3\" != is-active ] || exit 0\n")
		must(t, os.Rename(filepath.Join(r.dir, "systemctl"), filepath.Join(r.dir, "bin/systemctl")))
		must(t, os.Chmod(filepath.Join(r.dir, "bin/systemctl"), 0o700))
		for _, example := range examples(t, r.ok(r.command(strings.Fields("lease "+name+" --help")...))) {
			found++
			if example == "spendonce lease serve" || example == "spendonce lease serve --detach" {
				r.serves(example)
				continue
			}
			p := r.shell(`exec spendonce lease run -- sh -c 'echo "$BINDING" | spendonce lease mint >token-file; eval "$0"' "$1" </dev/null`, example)
			p.Env = append(p.Env, "BINDING="+binding)
			code, out, talk := r.finish(p)
			if code != 0 || talk != "" || !strings.Contains(out, prints[example]) {
				t.Errorf("%s\nended with %d and said %q: %s", example, code, out, talk)
			}
			delete(prints, example)
		}
	}
	if found < 13 || len(prints) > 0 {
		t.Errorf("found %d examples, and not %q", found, prints)
	}
}

// serves runs an example that starts a broker, and ends that.
func (r *realm) serves(example string) {
	r.t.Helper()
	p := r.begin(r.shell("exec " + example))
	r.awaitTalk(p, "listens at")
	if example == "spendonce lease serve" {
		must(r.t, p.Process.Signal(unix.SIGTERM))
	}
	if code, _ := p.end(); code != 0 {
		r.t.Errorf("%s ended with %d: %s", example, code, p.err.String())
	}
	must(r.t, stopBroker(r.socket))
}

// examples are the commands under a help's heading, each on one line.
func examples(t *testing.T, help string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(help, "\nExamples:\n")
	text, _, closed := strings.Cut(rest, "\n\n")
	if !ok || !closed {
		t.Fatalf("there are no examples in\n%s", help)
	}
	var all []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "|\n", "|"), "\n") {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}
