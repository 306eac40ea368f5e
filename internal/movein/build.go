package movein

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// builder builds an object, member by member.
type builder struct {
	rest  map[string]jsontext.Value
	names []string
	vals  []jsontext.Value
	err   error
}

func (o *builder) set(name string, v any) {
	b, err := json.Marshal(v)
	o.err = errors.Join(o.err, err)
	o.names, o.vals = append(o.names, name), append(o.vals, b)
}

// kept is the member as it was, or v.
func (o *builder) kept(name string, v any) {
	if old := o.rest[name]; old != nil {
		v = old
	}
	o.set(name, v)
}

// others adds what was kept and not yet set, by name.
func (o *builder) others() {
	var names []string
	for name := range o.rest {
		if !slices.Contains(o.names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		o.set(name, o.rest[name])
	}
}

func (o *builder) encode() ([]byte, error) {
	if o.err != nil {
		return nil, o.err
	}
	b := jsontext.Value{'{'}
	for i, name := range o.names {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = jsontext.AppendQuote(b, name); err != nil {
			return nil, err
		}
		b = append(append(b, ':'), o.vals[i]...)
	}
	b = append(b, '}')
	if err := b.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return b, nil
}
