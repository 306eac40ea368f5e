package credcmd

import (
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/config"
)

// What the commands that only look have in common with these.

// Config reads the configuration, once.
func (a *App) Config() (*config.Config, error) { return a.config() }

// StoreConfig is how the commands open the store.
func (a *App) StoreConfig() credstore.Config { return a.storeConfig() }

// Settings is what the configuration says of a target.
func (a *App) Settings(target string) (credstore.Settings, error) { return a.settings(target) }

// State says in a word or two what a target is good for now.
func State(e credstore.Entry, now time.Time) string { return stateOf(e, now) }

// Printable keeps names from a shared file and words from a server from
// steering the terminal.
func Printable(s string) string { return printable(s) }
