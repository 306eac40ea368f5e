//go:build linux && crash

package main_test

import (
	"os"
	"strings"
	"testing"
)

// aManager runs a script ($1) as the user daemon, beside a systemd of that user,
// in namespaces of its own: of pids, so that all ends with it; of mounts, for a
// /run in which the system seems to have been booted with systemd; of cgroups,
// below one that is made here. The program ($2) is on the PATH there.
const aManager = `set -e
group=spendonce-$$
hierarchies() { for d in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do [ ! -e $d/cgroup.procs ] || echo $d; done; }
outside() {
	for d in $(hierarchies); do
		echo $$ >$d/cgroup.procs || true
		find $d/$group -depth -type d -exec rmdir {} \;
	done
}
for d in $(hierarchies); do
	mkdir $d/$group
	chown -R daemon $d/$group
	echo $$ >$d/$group/cgroup.procs
done
trap outside EXIT
export group
unshare -mCpf --kill-child --mount-proc sh -c '
	set -e
	for d in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
		[ ! -e $d/$group ] || mount --bind $d/$group $d
	done
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p /run/systemd/system /run/user/1 /run/home /run/bin
	cp "$1" /run/script
	cp "$2" /run/bin/spendonce
	chmod 755 /run/script /run/bin/spendonce
	chown daemon:daemon /run/user/1 /run/home
	chmod 700 /run/user/1
	exec setpriv --reuid daemon --regid daemon --clear-groups env -i PATH=/run/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/home XDG_RUNTIME_DIR=/run/user/1 sh -c "
		/lib/systemd/systemd --user --log-target=console >/run/home/log 2>&1 &
		until systemctl --user is-system-running 2>/dev/null | grep -qE \"running|degraded\"; do
			kill -0 \$! || exit 99
			sleep 0.1
		done
		cd && sh /run/script
	"' sh "$@"
`

// inAManager returns what the script printed, line by line.
func (r *realm) inAManager(script string) []string {
	r.t.Helper()
	if os.Geteuid() != 0 {
		r.t.Skip("only root can give a user a systemd of its own here")
	}
	r.write("script", script)
	p := r.shell(aManager, "script", r.bin)
	p.Stderr = p.Stdout
	code, out, _ := r.finish(p)
	r.t.Logf("the script said\n%s", out)
	if code != 0 {
		r.t.Fatalf("the script ended with %d", code)
	}
	return strings.Split(out, "\n")
}

func expect(t *testing.T, got []string, want string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.TrimSpace(want) {
		t.Errorf("it is not what was expected:\n%s", want)
	}
}

const mintAndSpend = `
binding='{"compaction_epoch":0,"request_epoch":1,"h_source":"a","h_payload":"b","schema_version":1}'
play() {
	spendonce lease run --no-start "$@" -- sh -c '
		token=$(echo "$0" | spendonce lease mint)
		echo "$token" | spendonce lease consume
		echo "$token" | spendonce lease consume 2>/dev/null
		echo "exit $?"' "$binding"
}
`

func TestUnderARealSystemdTheSandboxedBrokerServes(t *testing.T) {
	r := newRealm(t)
	expect(t, r.inAManager(mintAndSpend+`
spendonce lease install --user
play
spendonce lease run --no-start -- sh -c 'spendonce lease why $$ | grep -o "belongs to session"'
pid=$(systemctl --user show -P MainPID spendonce-broker.service)
spendonce lease status | grep -o "process $pid" | sed 's/[0-9].*//'
grep -E '^(NoNewPrivs|Seccomp):' /proc/$pid/status | tr '\t' ' '
echo "a second one"
spendonce lease serve 2>/dev/null; echo "exit $?"
echo "after a kill"
spendonce lease run --no-start -- sh -c '
	token=$(echo "$0" | spendonce lease mint)
	kill -KILL $1
	while kill -0 $1 2>/dev/null; do sleep 0.01; done
	echo "$token" | spendonce lease consume' "$binding" $pid
test $pid != "$(systemctl --user show -P MainPID spendonce-broker.service)" && echo "by another"
echo "after a stop"
systemctl --user stop spendonce-broker.service 2>/dev/null
play
echo "away"
spendonce lease install --user --remove
spendonce lease status 2>/dev/null; echo "exit $?"
ls /run/user/1/spendonce
`), `
wrote /run/home/.config/systemd/user/spendonce-broker.socket
wrote /run/home/.config/systemd/user/spendonce-broker.service
{"compaction_epoch":0,"request_epoch":1,"h_source":"a","h_payload":"b","schema_version":1}
exit 9
belongs to session
process 
NoNewPrivs: 1
Seccomp: 2
a second one
exit 7
after a kill
{"compaction_epoch":0,"request_epoch":1,"h_source":"a","h_payload":"b","schema_version":1}
by another
after a stop
{"compaction_epoch":0,"request_epoch":1,"h_source":"a","h_payload":"b","schema_version":1}
exit 9
away
removed /run/home/.config/systemd/user/spendonce-broker.socket
removed /run/home/.config/systemd/user/spendonce-broker.service
exit 10
broker.sock.lock
`)
}

func TestUnderARealSystemdAnyPathMeansItself(t *testing.T) {
	r := newRealm(t)
	expect(t, r.inAManager(mintAndSpend+`
state="$HOME/it's \"so\" 100%h \$HOME \${PATH} \\x41;b ; c größe"
socket="$XDG_RUNTIME_DIR/d e%t \$f \${PATH}\"/b%n'.sock"
spendonce lease install --user --state-dir "$state" --socket "$socket" >/dev/null
play --socket "$socket"
spendonce lease status --socket "$socket" | grep -cxF -e "socket     $socket" -e "state      $state"
spendonce lease install --user --remove --state-dir "$state" --socket "$socket" >/dev/null
`), `
{"compaction_epoch":0,"request_epoch":1,"h_source":"a","h_payload":"b","schema_version":1}
exit 9
2
`)
}

// The watchdog ends a broker that is stopped, and another takes over its
// sessions.
func TestUnderARealSystemdAStoppedBrokerIsReplaced(t *testing.T) {
	r := newRealm(t)
	expect(t, r.inAManager(mintAndSpend+`
mkdir -p .config/systemd/user/spendonce-broker.service.d
printf '[Service]\nWatchdogSec=1\nTimeoutAbortSec=1\n' >.config/systemd/user/spendonce-broker.service.d/soon.conf
spendonce lease install --user >/dev/null
spendonce lease run --no-start -- sh -c '
	token=$(echo "$0" | spendonce lease mint)
	pid=$(systemctl --user show -P MainPID spendonce-broker.service)
	kill -STOP $pid
	while kill -0 $pid 2>/dev/null; do sleep 0.1; done
	echo "$token" | spendonce lease consume
	test $pid != "$(systemctl --user show -P MainPID spendonce-broker.service)" && echo "by another"' "$binding"
`), `
{"compaction_epoch":0,"request_epoch":1,"h_source":"a","h_payload":"b","schema_version":1}
by another
`)
}
