package mangen

// entry is one line of a table in spendonce(1).
type entry struct{ tag, text string }

// exitStatus says what a caller may conclude from each code; internal/cli
// decides which error gives which.
var exitStatus = []entry{
	{"0", "Done. What was asked for is on standard output."},
	{"1", "Another failure, described on standard error."},
	{"2", "The command was called wrongly, or the configuration or an overriding variable is not usable."},
	{"3", "Nothing is stored for the target."},
	{"4", "What is stored cannot give a token any more: sign in again."},
	{"5", "The authorization server gave no usable answer, or no token is valid for as long as was asked. Nothing is lost: try again later."},
	{"6", "The store is damaged, unsafe or not writable. A token that was printed is valid all the same."},
	{"7", "The lock was not obtained."},
	{"8", "The service refuses what its own authorization server issues."},
	{"128+N", "Ended by signal N."},
}

// environment names every variable that the program looks at.
var environment = []entry{
	{"SPENDONCE_TOKEN_TARGET", "The access token of TARGET, in capitals and with every character but letters and digits " +
		"replaced by an underscore. It wins over what is stored; empty or malformed, it is an error."},
	{"SPENDONCE_STATE_DIR", "The state directory, in place of the one in XDG_STATE_HOME. The option --state-dir wins over it."},
	{"XDG_STATE_HOME", "Where the state directory stands, if the path is absolute."},
	{"XDG_CONFIG_HOME", "Where the configuration stands, if the path is absolute."},
	{"HOME", "Stands for both where those are not set."},
	{"BROWSER", "The programs that may show an address at sign-in, separated by colons; the first that works is used. " +
		"In one with %s the address takes that place."},
	{"PATH", "spendonce doctor says which other programs of this name are on it."},
	{"TERM", "If it is dumb, no progress is shown."},
	{"GODEBUG", "Settings that would print what is sent to a server are taken out at the start."},
}

var files = []entry{
	{"~/.config/spendonce/config.toml", "The configuration, written by you and only read by the program."},
	{"~/.local/state/spendonce/remote-credentials.json", "The store: the tokens of all targets. Other programs may share it."},
	{"~/.local/state/spendonce/sessions/", "What each session was made with, and how its last refresh ended: no token, but the client's secret if it has one."},
	{"~/.local/state/spendonce/locks/", "The locks of targets that are being refreshed."},
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
