#!/bin/sh
# Usage: with-session.sh COMMAND [ARG]...
#
# Runs COMMAND with a token of the session that all runners share, in the
# variable ACCESS_TOKEN. Exactly one runner refreshes the session, however many
# run at once. What it needs comes from the environment, as the secrets of a
# repository do:
#
#	SESSION_URL       the service
#	SESSION_IDENTITY  an age identity that opens the session (AGE-SECRET-KEY-...)
#	ETCD_ENDPOINTS    client URLs of etcd's members, separated by spaces
#	ETCD_CA           PEM of the authority that signed their certificates
#	ETCD_USER, ETCD_PASSWORD
#	ETCD_CERT, ETCD_KEY  PEM, where etcd asks for client certificates
#
# All of it is gone from the disk when COMMAND has ended, and COMMAND gets
# nothing of it but the token.
set -eu
umask 077

dir=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/session.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

put() { printf '%s\n' "$2" >"$dir/$1"; }
put identity "$SESSION_IDENTITY"
put ca.pem "$ETCD_CA"
put password "$ETCD_PASSWORD"

{
	printf '[targets.shared]\nurl = "%s"\nstore = "etcd"\n\n[etcd]\nendpoints = [' "$SESSION_URL"
	for endpoint in $ETCD_ENDPOINTS; do printf '"%s", ' "$endpoint"; done
	printf ']\nidentity = "%s"\nca = "%s"\n' "$dir/identity" "$dir/ca.pem"
	printf 'username = "%s"\npassword_file = "%s"\n' "$ETCD_USER" "$dir/password"
	if [ -n "${ETCD_CERT:-}" ]; then
		put cert.pem "$ETCD_CERT"
		put key.pem "$ETCD_KEY"
		printf 'cert = "%s"\nkey = "%s"\n' "$dir/cert.pem" "$dir/key.pem"
	fi
} >"$dir/config.toml"
unset SESSION_IDENTITY ETCD_CA ETCD_USER ETCD_PASSWORD ETCD_CERT ETCD_KEY ETCD_ENDPOINTS

# GitHub hides in its logs what it was told of.
mask=:
if [ "${GITHUB_ACTIONS:-}" = true ]; then
	mask='echo "::add-mask::$ACCESS_TOKEN"'
fi

# --min-valid: the token is not renewed while COMMAND runs.
spendonce --config "$dir/config.toml" --state-dir "$dir/state" \
	exec shared --min-valid "${SESSION_MIN_VALID:-5m}" -- sh -c "$mask"'; exec "$@"' sh "$@"
