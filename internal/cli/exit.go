package cli

import (
	"errors"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/leasecmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/clientconf"
	"github.com/spendonce/spendonce/internal/takeover"
	"github.com/spendonce/spendonce/oauthflow"
)

// The exit codes are a contract; docs/locking.md section "Exit codes" says
// what a caller may conclude from each.
const (
	exitOther     = 1
	exitUsage     = 2
	exitNothing   = 3
	exitLogin     = 4
	exitTemporary = 5
	exitStore     = 6
	exitLocked    = 7
	exitRejected  = 8
)

// exitCodes maps kinds of errors to codes; the first that matches counts.
var exitCodes = []struct {
	kind error
	code int
}{
	{credstore.ErrNotSaved, exitStore},
	{credstore.ErrName, exitUsage},
	{credstore.ErrOverride, exitUsage},
	{credstore.ErrConfig, exitUsage},
	{credstore.ErrTaken, exitUsage},
	{credstore.ErrUnknownTarget, exitUsage},
	{credstore.ErrNoCredential, exitNothing},
	{credstore.ErrLoginRequired, exitLogin},
	{credstore.ErrTemporary, exitTemporary},
	{credstore.ErrMinValid, exitTemporary},
	{credstore.ErrDamaged, exitStore},
	{credstore.ErrKey, exitStore},
	{credstore.ErrUnsafe, exitStore},
	{credstore.ErrNotWritable, exitStore},
	{credstore.ErrLocked, exitLocked},
	{credstore.ErrRejected, exitRejected},
	{clientconf.ErrForeign, exitUsage},
	{clientconf.ErrRunning, exitLocked},
	{clientconf.ErrBusy, exitTemporary},
	{bearer.ErrScope, exitLogin},
	{bearer.ErrUnanswered, exitTemporary},
	{bearer.ErrElsewhere, exitUsage},
	{bearer.ErrAuthorization, exitUsage},
	{takeover.ErrNothing, exitNothing},
	{takeover.ErrInUse, exitLocked},
}

func exitCode(err error) int {
	var exit *streams.Exit
	if errors.As(err, &exit) {
		return exit.Code
	}
	for _, e := range exitCodes {
		if errors.Is(err, e.kind) {
			return e.code
		}
	}
	if code, ok := leasecmd.ExitCode(err); ok {
		return code
	}
	var answer *oauthflow.Error
	if errors.As(err, &answer) && answer.Class == oauthflow.ClassTemporary {
		return exitTemporary
	}
	return exitOther
}
