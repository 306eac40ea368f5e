package credcmd

import (
	"errors"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/config"
)

// OpenShared makes, of the configuration, what keeps targets where several
// machines reach them; nil if it names none.
type OpenShared func(*config.Config) (*credstore.SharedTargets, error)

// ErrElsewhere: the configuration keeps targets where this program does not
// reach, and another one is to run in its place.
var ErrElsewhere = errors.New("a target is kept in etcd, which this program does not reach")

// Here is [ErrElsewhere] if another program has to do what this one was asked.
// A configuration that cannot be read is told of where it is needed.
func (a *App) Here() error {
	if a.OpenShared != nil {
		return nil
	}
	if c, err := a.Config(); err == nil && len(c.SharedTargets()) > 0 {
		return ErrElsewhere
	}
	return nil
}
