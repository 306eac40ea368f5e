package credcmd

import (
	"context"

	"github.com/spendonce/spendonce/credstore"
)

// theTarget stands for the name of a target in a call.
const theTarget = "TARGET"

// Fast returns what runs the call that args are, nil if it is none of those
// that run before every request of every tool: these do without the tree of
// all commands. Each does what its command does without any flag.
func (a *App) Fast(args []string) func(ctx context.Context) error {
	for _, call := range [...]struct {
		words []string
		run   func(a *App, ctx context.Context, o output) error
	}{
		{[]string{"token", theTarget}, func(a *App, ctx context.Context, o output) error {
			return a.Token(ctx, o.target, credstore.Request{}, false)
		}},
		{[]string{"credential", "headers", theTarget}, (*App).headers},
		{[]string{"credential", "kubectl", theTarget}, (*App).kubectl},
		{[]string{"credential", "git", "get"}, (*App).gitGet},
		{[]string{"credential", "docker", "get"}, func(a *App, ctx context.Context, o output) error {
			return a.docker(a.dockerGet(ctx, o))
		}},
	} {
		if o, ok := match(call.words, args); ok {
			return func(ctx context.Context) error { return call.run(a, ctx, o) }
		}
	}
	return nil
}

func match(words, args []string) (o output, ok bool) {
	if len(words) != len(args) {
		return o, false
	}
	for i, w := range words {
		switch {
		case w == theTarget && credstore.ValidName(args[i]):
			o.target = args[i]
		case w != args[i]:
			return o, false
		}
	}
	return o, true
}
