package credcmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
)

// Connection sends requests with the token of one target, for as long as a
// command runs that carries other programs' requests.
type Connection struct {
	Target    string
	URL       string          // of the target's service
	Origins   []bearer.Origin // where its token goes
	Transport *bearer.Transport

	store *credstore.Store
}

// Connect prepares requests to a target, whose place must be known; whether
// there is a session is seen at each request. headers bounds the wait for the
// header of an answer, as [bearer.Config.HeaderTimeout] does. warn is told of
// a session that could not be saved.
func (a *App) Connect(target string, headers time.Duration, warn func(error)) (*Connection, error) {
	s, err := a.store()
	if err != nil {
		return nil, err
	}
	source, err := a.source(s, target)
	if err != nil {
		return nil, err
	}
	p, err := a.placeOf(s, target)
	if err != nil {
		return nil, err
	}
	c := &Connection{Target: target, URL: p.url, Origins: p.origins, store: s}
	c.Transport, err = bearer.New(bearer.Config{
		Target: target, Source: source, Origins: p.origins, HeaderTimeout: headers, Warn: warn,
	})
	return c, err
}

// Close returns when every exchange that was begun has been committed. None
// begins after it; tokens that are fresh are still had.
func (c *Connection) Close() { closeStore(c.store) }

// CompleteTargets offers the names of targets, for commands beside these.
func (a *App) CompleteTargets(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.completeTargets(cmd, args, word)
}
