package clientconf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// ErrAltered says that somebody has changed a setting after us: it is left
// alone.
var ErrAltered = errors.New("changed since it was set up")

// Change is one setting that was given another value, with what it takes to
// undo that. Old texts are those of the setting itself, or of an object that
// was empty, never of anything beside it.
type Change struct {
	Path []string `json:"path"`
	New  string   `json:"new"`          // as it stands in the file
	Old  *string  `json:"old,omitzero"` // what it replaced; absent if there was nothing
	// Ours is what we had set before, and may still stand there if setting it
	// anew was interrupted.
	Ours *string `json:"ours,omitzero"`
	Made *Made   `json:"made,omitzero"`
}

// Made is the outermost object that was made, or was empty before.
type Made struct {
	Depth int     `json:"depth"`        // how many names of the path lead to it
	Old   *string `json:"old,omitzero"` // the object as it was; for depth 0 the whole file; absent if there was none
}

// set gives the setting at path a string value.
func set(doc []byte, existed bool, path []string, s, unit string) (out []byte, ch Change, changed bool, err error) {
	return setValue(doc, existed, path, stringValue(s), unit)
}

// setValue gives the setting at path a value. Existed says whether there was a
// file. Changed is false if the setting has that value already. Unit is the
// client's own indentation.
func setValue(doc []byte, existed bool, path []string, v value, unit string) (out []byte, ch Change, changed bool, err error) {
	out, ch, changed, err = splice(doc, existed, path, v, unit)
	if err != nil || !changed {
		return out, ch, changed, err
	}
	ch.New, _, err = rawAt(out, path...) // its lines are set as those around it
	return out, ch, true, err
}

// splice is setValue but for the text that is new.
func splice(doc []byte, existed bool, path []string, v value, unit string) (out []byte, ch Change, changed bool, err error) {
	d, err := parse(doc)
	if err != nil {
		return nil, Change{}, false, err
	}
	way, err := d.find(path)
	if err != nil {
		return nil, Change{}, false, err
	}
	ch = Change{Path: path}
	l := d.layoutOf(unit)
	if d.absent {
		ch.Made = &Made{}
		if existed {
			whole := string(doc)
			ch.Made.Old = &whole
		}
		return slices.Concat(d.bom, []byte(l.nest(path, v, "")), []byte(l.newline)), ch, true, nil
	}
	depth := len(way) - 1
	deepest := way[depth]
	if depth == len(path) {
		old := d.raw(deepest)
		if v.is(old) {
			return doc, Change{}, false, nil
		}
		ch.Old = &old
		return d.with(deepest.StartOffset, deepest.EndOffset, v.write(l, d.indentAt(deepest.StartOffset))), ch, true, nil
	}
	members, err := d.members(deepest, path[:depth])
	switch {
	case err != nil:
		return nil, Change{}, false, err
	case len(members) == 0:
		old := d.raw(deepest)
		if depth == 0 {
			old = string(doc)
		}
		ch.Made = &Made{depth, &old}
		return d.fill(deepest, l, path[depth:], v), ch, true, nil
	case depth < len(path)-1:
		ch.Made = &Made{Depth: depth + 1}
	}
	obj, _ := deepest.Value.(*hujson.Object) // it has members
	return d.insert(deepest, obj, l, path[depth:], v), ch, true, nil
}

// ours reports whether a value is one that we set.
func (ch Change) ours(raw string) bool {
	return sameValue(raw, ch.New) || ch.Ours != nil && sameValue(raw, *ch.Ours)
}

// undone is what taking a change back comes to.
type undone struct {
	doc     []byte
	text    string // of a table, as it stood there
	gone    bool   // there was nothing of ours
	noFile  bool   // the file is to be removed
	inherit bool   // what Made says is still to be undone, by whoever is below it
}

// undo takes a change back. Where others have put things into an object that
// we made, it stays.
func undo(doc []byte, ch Change) (undone, error) {
	d, err := parse(doc)
	if err != nil {
		return undone{}, err
	}
	way, err := d.find(ch.Path)
	if err != nil {
		return undone{}, err
	}
	if len(way) != len(ch.Path)+1 {
		return undone{doc: doc, gone: true}, nil
	}
	leaf := way[len(ch.Path)]
	switch raw := d.raw(leaf); {
	case ch.Old != nil && raw == *ch.Old:
		return undone{doc: doc, gone: true}, nil
	case !ch.ours(raw):
		return undone{}, fmt.Errorf("%s: %w", pathText(ch.Path), ErrAltered)
	}
	if ch.Old != nil {
		return undone{doc: d.with(leaf.StartOffset, leaf.EndOffset, *ch.Old)}, nil
	}
	out := d.remove(way, ch.Path)
	if ch.Made == nil {
		return undone{doc: out}, nil
	}
	return unmake(out, ch)
}

// unmake takes away the objects that were made for a setting that is gone.
func unmake(doc []byte, ch Change) (undone, error) {
	for n := len(ch.Path) - 1; ; n-- {
		d, err := parse(doc)
		if err != nil {
			return undone{}, err
		}
		way, err := d.find(ch.Path[:n])
		if err != nil || len(way) != n+1 {
			return undone{doc: doc}, err
		}
		here := d.raw(way[n])
		bare := squeeze(here) == "{}"
		switch {
		case n > ch.Made.Depth && bare:
			doc = d.remove(way, ch.Path[:n])
		case n > ch.Made.Depth:
			return undone{doc: doc, inherit: true}, nil
		case n == 0 && ch.Made.Old == nil && squeeze(string(doc)) == "{}":
			return undone{noFile: true}, nil
		case n == 0 && ch.Made.Old != nil && sameButBlanks(string(doc), *ch.Made.Old):
			return undone{doc: []byte(*ch.Made.Old)}, nil
		case n > 0 && ch.Made.Old == nil && bare:
			return undone{doc: d.remove(way, ch.Path[:n])}, nil
		case n > 0 && ch.Made.Old != nil && sameButBlanks(here, *ch.Made.Old):
			return undone{doc: d.with(way[n].StartOffset, way[n].EndOffset, *ch.Made.Old)}, nil
		default:
			return undone{doc: doc, inherit: true}, nil
		}
	}
}

// sameButBlanks compares an emptied object with what it was; an empty file
// was none.
func sameButBlanks(now, was string) bool {
	now, was = squeeze(now), squeeze(was)
	return now == was || strings.TrimPrefix(now, string(bom)) == "{}" && strings.TrimPrefix(was, string(bom)) == ""
}

func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(blanks, r) {
			return -1
		}
		return r
	}, s)
}

// inherit hands on what one change made to another one that is below it, so
// that the last of them takes it away.
func inherit(from Change, to []*Change) {
	for _, c := range to {
		below := len(c.Path) > from.Made.Depth && slices.Equal(c.Path[:from.Made.Depth], from.Path[:from.Made.Depth])
		if below && (c.Made == nil || c.Made.Depth > from.Made.Depth) {
			c.Made = from.Made
			return
		}
	}
}
