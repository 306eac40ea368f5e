package credcmd

import (
	"slices"
	"strings"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// place is where a target's token may go.
type place struct {
	target   string
	url      string // of the service; may be empty
	account  string
	username string          // beside the token, where a client has a place for one
	origins  []bearer.Origin // of url, then hosts
	leftOut  bool            // one of them is no origin
}

// places lists, sorted by name, every usable or configured target with the
// origins of its URL and hosts, from the session file and the configuration.
// What is no origin is left out, with a warning.
func (a *App) places(s *credstore.Store) ([]place, error) {
	entries, err := s.List()
	if err != nil {
		return nil, err
	}
	return a.placesOf(entries)
}

// placesOf is [App.places] of what is stored.
func (a *App) placesOf(entries []credstore.Entry) ([]place, error) {
	c, err := a.Config()
	if err != nil {
		return nil, &streams.Exit{Code: 2, Err: err}
	}
	all := map[string]*place{}
	raw := map[string][]string{}
	for _, e := range entries {
		if !e.Usable {
			continue
		}
		p := &place{target: e.Target, url: e.URL, account: e.Email}
		if p.account == "" {
			p.account = e.Subject
		}
		all[e.Target], raw[e.Target] = p, append([]string{e.URL}, e.Hosts...)
	}
	for name, t := range c.Targets {
		p := all[name]
		if p == nil {
			p = &place{target: name}
			all[name] = p
		}
		if p.url == "" {
			p.url = t.URL
		}
		p.username = t.Username
		raw[name] = append(append([]string{p.url}, raw[name]...), t.Hosts...)
	}
	list := make([]place, 0, len(all))
	for name, p := range all {
		for _, r := range raw[name] {
			if r == "" {
				continue
			}
			o, err := bearer.ParseOrigin(r)
			switch {
			case err != nil:
				p.leftOut = true
				a.Streams.Warn("one of the hosts of " + name + " is left out: " + err.Error())
			case !slices.Contains(p.origins, o):
				p.origins = append(p.origins, o)
			}
		}
		list = append(list, *p)
	}
	slices.SortFunc(list, func(x, y place) int { return strings.Compare(x.target, y.target) })
	return list, nil
}

// at returns the targets whose token may go to o.
func at(list []place, o bearer.Origin) []place {
	var found []place
	for _, p := range list {
		if slices.Contains(p.origins, o) {
			found = append(found, p)
		}
	}
	return found
}
