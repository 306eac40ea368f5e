package credcmd

import (
	"slices"
	"strings"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// Place is where a target's token may go.
type Place struct {
	Target   string
	URL      string // of the service; may be empty
	Account  string
	Username string          // beside the token, where a client has a place for one
	Origins  []bearer.Origin // of url, then hosts
	LeftOut  bool            // one of them is no origin
}

// Places lists, sorted by name, every usable or configured target with the
// origins of its URL and hosts, from the session file and the configuration.
// What is no origin is left out, with a warning.
func (a *App) Places(s *credstore.Store) ([]Place, error) {
	entries, err := s.List()
	if err != nil {
		return nil, err
	}
	return a.PlacesOf(entries)
}

// PlacesOf is [App.Places] of what is stored.
func (a *App) PlacesOf(entries []credstore.Entry) ([]Place, error) {
	c, err := a.Config()
	if err != nil {
		return nil, &streams.Exit{Code: 2, Err: err}
	}
	all := map[string]*Place{}
	raw := map[string][]string{}
	for _, e := range entries {
		if !e.Usable {
			continue
		}
		p := &Place{Target: e.Target, URL: e.URL, Account: e.Email}
		if p.Account == "" {
			p.Account = e.Subject
		}
		all[e.Target], raw[e.Target] = p, append([]string{e.URL}, e.Hosts...)
	}
	for name, t := range c.Targets {
		p := all[name]
		if p == nil {
			p = &Place{Target: name}
			all[name] = p
		}
		if p.URL == "" {
			p.URL = t.URL
		}
		p.Username = t.Username
		raw[name] = append(append([]string{p.URL}, raw[name]...), t.Hosts...)
	}
	list := make([]Place, 0, len(all))
	for name, p := range all {
		for _, r := range raw[name] {
			if r == "" {
				continue
			}
			o, err := bearer.ParseOrigin(r)
			switch {
			case err != nil:
				p.LeftOut = true
				a.Streams.Warn("one of the hosts of " + name + " is left out: " + err.Error())
			case !slices.Contains(p.Origins, o):
				p.Origins = append(p.Origins, o)
			}
		}
		list = append(list, *p)
	}
	slices.SortFunc(list, func(x, y Place) int { return strings.Compare(x.Target, y.Target) })
	return list, nil
}

// At returns the targets whose token may go to o.
func At(list []Place, o bearer.Origin) []Place {
	var found []Place
	for _, p := range list {
		if slices.Contains(p.Origins, o) {
			found = append(found, p)
		}
	}
	return found
}
