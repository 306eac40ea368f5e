package helpercmd

import (
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"net/url"
	"slices"
	"strings"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// errNoTarget: no target's token goes there. Whose protocol has a next helper
// to ask, leaves it to that.
var errNoTarget = errors.New("no target")

// want is what a client wants a token for.
type want struct {
	origins []bearer.Origin // one, but where the client does not say the scheme
	path    string          // decoded, without a leading slash; may be unknown
	target  string          // the only one that may be the answer, if not empty
}

// choose returns the one target whose token may go where w says. Of several
// the one with the longest URL that leads to the path is taken, if there is
// one such: nothing is guessed.
func choose(list []credcmd.Place, w want) (credcmd.Place, error) {
	var found []credcmd.Place
	for _, o := range w.origins {
		for _, p := range credcmd.At(list, o) {
			if !known(found, p.Target) {
				found = append(found, p)
			}
		}
	}
	if w.target != "" {
		if !known(list, w.target) {
			return credcmd.Place{}, streams.Usage("there is no target %.80q: 'spendonce list' shows them", w.target)
		}
		found = slices.DeleteFunc(found, func(p credcmd.Place) bool { return p.Target != w.target })
		if len(found) == 0 {
			return credcmd.Place{}, fmt.Errorf("%w: the token of %s does not go to %s, which is neither its URL nor one of its hosts", errNoTarget, w.target, w.origins[0])
		}
	}
	switch len(found) {
	case 0:
		return credcmd.Place{}, fmt.Errorf("%w has the URL %s or names it among its hosts", errNoTarget, w.origins[0])
	case 1:
		return found[0], nil
	}
	if nearest := nearest(found, w); len(nearest) == 1 {
		return nearest[0], nil
	}
	names := make([]string, len(found))
	for i, p := range found {
		names[i] = p.Target
	}
	return credcmd.Place{}, streams.Usage("%s have a token for %s: say which one is meant with --target NAME", strings.Join(names, " and "), w.origins[0])
}

func known(list []credcmd.Place, target string) bool {
	return slices.ContainsFunc(list, func(p credcmd.Place) bool { return p.Target == target })
}

// nearest returns the targets with the longest URL above w's path.
func nearest(found []credcmd.Place, w want) []credcmd.Place {
	asked, ok := segments(w.path)
	if !ok || w.path == "" {
		return nil
	}
	var best []credcmd.Place
	longest := -1
	for _, p := range found {
		u, err := url.Parse(p.URL)
		if err != nil {
			continue
		}
		if o, err := bearer.OriginOf(u); err != nil || !slices.Contains(w.origins, o) {
			continue // it is here by one of its hosts, which have no path
		}
		own, ok := segments(strings.TrimPrefix(u.Path, "/"))
		if !ok || len(own) > len(asked) || !slices.Equal(own, asked[:len(own)]) {
			continue
		}
		if len(own) > longest {
			longest, best = len(own), nil
		}
		if len(own) == longest {
			best = append(best, p)
		}
	}
	return best
}

// segments splits a path. One that leads back or stays in place has none:
// where it ends is for the server to say.
func segments(path string) ([]string, bool) {
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return nil, true
	}
	all := strings.Split(path, "/")
	bad := slices.ContainsFunc(all, func(s string) bool { return s == "" || s == "." || s == ".." || strings.Contains(s, "%") })
	return all, !bad
}

// mayGo refuses to hand the target's token out for a URL of another origin.
// A target without any URL goes where its user sends it; one whose URL is no
// origin, nowhere.
func (a *app) mayGo(s *credstore.Store, target, raw string) error {
	o, err := bearer.ParseOrigin(raw)
	if err != nil {
		return &streams.Exit{Code: 2, Err: fmt.Errorf("the token of %s is asked for a URL: %w", target, err)}
	}
	list, err := a.Places(s)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(p credcmd.Place) bool { return p.Target == target })
	if i < 0 || len(list[i].Origins) == 0 && !list[i].LeftOut || slices.Contains(list[i].Origins, o) {
		return nil
	}
	return streams.Usage("the token of %s does not go to %s, which is neither its URL nor one of its hosts", target, o)
}
