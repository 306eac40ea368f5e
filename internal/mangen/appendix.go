package mangen

// entry is one line of a table in spendonce(1).
type entry struct{ tag, text string }

// exitStatus says what a caller may conclude from each code; internal/cli
// decides which error gives which.
var exitStatus = []entry{
	{"0", "Done. What was asked for is on standard output."},
	{"1", "Another failure, described on standard error."},
	{"2", "The command was called wrongly, or the configuration or an overriding variable is not usable, or spendonce-etcd is needed and not there."},
	{"3", "Nothing is stored for the target."},
	{"4", "What is stored cannot give a token any more, or the session lacks a scope: sign in again."},
	{"5", "The authorization server, or the service, gave no usable answer, or etcd cannot be reached, or no token is valid for as long as was asked. Nothing is lost: try again later."},
	{"6", "The store is damaged, unsafe or not writable. A token that was printed is valid all the same. " +
		"Of spendonce lease serve: its state, or a directory, cannot be trusted."},
	{"7", "The lock was not obtained. Of spendonce lease serve: another broker runs."},
	{"8", "The service refuses what its own authorization server issues."},
	{"9", "The lease broker refused. Its code, such as TOKEN_REPLAY, ends the message on standard error."},
	{"10", "The lease broker could not be reached, or gave no answer: a token that was to be consumed must be taken as spent."},
	{"125", "Of spendonce lease run and spendonce exec: they failed themselves, and the command was not run. Every other status of theirs is that of the command, but for the next two."},
	{"126", "Of spendonce lease run and spendonce exec: the command cannot be run."},
	{"127", "Of spendonce lease run and spendonce exec: there is no such command."},
	{"128+N", "Ended by signal N."},
}

// environment names every variable that the program looks at.
var environment = []entry{
	{"SPENDONCE_TOKEN_TARGET", "The access token of TARGET, in capitals and with every character but letters and digits " +
		"replaced by an underscore. It wins over what is stored; empty or malformed, it is an error."},
	{"SPENDONCE_SOCKET", "The lease broker's socket, an absolute path. The option --socket wins over it. " +
		"This and the next two are set by spendonce lease run for the command that it runs."},
	{"SPENDONCE_SESSION_ID", "The session that spendonce lease auth, mint and consume ask for. " +
		"It is of use only to processes that descend from the session's anchor."},
	{"SPENDONCE_GENERATION", "The generation of that session, as it was when the command was run."},
	{"SPENDONCE_GENERATION_FILE", "A file with the generation as it is now, which wins over SPENDONCE_GENERATION. Set by spendonce lease run --stay."},
	{"SPENDONCE_STATE_DIR", "The state directory, in place of the one in XDG_STATE_HOME. The option --state-dir wins over it."},
	{"XDG_STATE_HOME", "Where the state directory stands, if the path is absolute."},
	{"XDG_RUNTIME_DIR", "Where the lease broker's socket stands, if the path is absolute; else /run/user/UID if that is there, else the state directory."},
	{"XDG_CONFIG_HOME", "Where the configuration stands, if the path is absolute, and VS Code's settings."},
	{"HOME", "Stands for both where those are not set."},
	{"GIT_CONFIG_GLOBAL", "The file that spendonce credential setup git has git change, as git(1) says."},
	{"DOCKER_CONFIG", "The directory of the file that spendonce credential setup docker changes; else ~/.docker."},
	{"KUBECONFIG", "The files that spendonce credential setup kubectl has kubectl change, as kubectl says."},
	{"CLAUDE_CONFIG_DIR", "The directory of the files that spendonce credential setup claude and mcp install claude change; else the home directory and ~/.claude in it."},
	{"CODEX_HOME", "The directory of the file that spendonce mcp install codex changes; else ~/.codex."},
	{"DBUS_SESSION_BUS_ADDRESS", "Where the keyring answers that holds the key of an encrypted store; else /run/user/UID/bus."},
	{"BROWSER", "The programs that may show an address at sign-in, separated by colons; the first that works is used. " +
		"In one with %s the address takes that place."},
	{"DISPLAY, WAYLAND_DISPLAY, SSH_CONNECTION, SSH_TTY, container, WSL_DISTRO_NAME", "Tell spendonce login whether a browser on this machine would be before your eyes. " +
		"With BROWSER set, none of them is looked at."},
	{"MCP_REMOTE_CONFIG_DIR", "Where spendonce import looks for the sessions of mcp-remote, as that program does."},
	{"KUBECACHEDIR", "Where spendonce import looks for the sessions of kubelogin, as that program does."},
	{"DBUS_SESSION_BUS_ADDRESS", "The bus on which the keyring is asked for the key of a sealed store; without it, /run/user/UID/bus."},
	{"LISTEN_FDS, LISTEN_PID", "Set by a service manager that hands spendonce lease serve its socket, see sd_listen_fds(3)."},
	{"NOTIFY_SOCKET, WATCHDOG_USEC", "Set by a service manager that is to be told how spendonce lease serve fares, see sd_notify(3)."},
	{"KUBERNETES_EXEC_INFO", "Set by kubectl for spendonce credential kubectl: the version to answer in, and perhaps the cluster that it asks for."},
	{"CLAUDE_CODE_MCP_SERVER_URL", "Set by Claude Code for spendonce credential headers: the server that the headers are for."},
	{"HTTPS_PROXY, NO_PROXY", "The proxy of every request, and the hosts that are reached without it; also in lower case. Nothing that goes to this machine takes a proxy."},
	{"SSL_CERT_FILE, SSL_CERT_DIR", "The certificates that are trusted in place of the system's, on Linux."},
	{"PATH", "Where spendonce exec and lease run find the command. spendonce doctor says which other programs of this name are on it."},
	{"TERM", "If it is dumb, no progress is shown."},
	{"GOMAXPROCS", "How many cores the program runs on at once. spendonce mcp proxy takes one unless this says otherwise."},
	{"GODEBUG", "Settings that would print what is sent to a server are taken out at the start."},
}

var files = []entry{
	{"~/.config/spendonce/config.toml", "The configuration, written by you and only read by the program."},
	{"spendonce-etcd", "This program with a client of etcd in it, beside this program or on PATH. It is run in this one's place, with the same arguments, " +
		"when the configuration keeps a target in etcd; it is never to be called by name."},
	{"~/.local/state/spendonce/remote-credentials.json", "The store: the tokens of all targets. Other programs may share it."},
	{"~/.local/state/spendonce/sessions/", "What each session was made with, and how its last refresh ended: no token, but the client's secret if it has one."},
	{"~/.local/state/spendonce/imports/", "Where sessions came from that spendonce import moved in: no token."},
	{"~/.local/state/spendonce/locks/", "The locks of targets that are being refreshed."},
	{"~/.local/state/spendonce/broker-state.json", "What the lease broker keeps: its sessions, and hashes of the tokens that wait."},
	{"~/.local/state/spendonce/broker-audit.log", "Every decision of the lease broker, with its reason and no id or token."},
	{"$XDG_RUNTIME_DIR/spendonce/", "The lease broker's sockets, and the generation files of spendonce lease run --stay."},
}

func appendix(p *page) {
	p.section("EXIT STATUS")
	for _, e := range exitStatus {
		p.tagged(bold(e.tag), e.text)
	}
	p.section("ENVIRONMENT")
	for _, e := range environment {
		p.tagged(bold(e.tag), e.text)
	}
	p.section("FILES")
	for _, e := range files {
		p.tagged(italic(e.tag), e.text)
	}
}
