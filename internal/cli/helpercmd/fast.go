package helpercmd

import (
	"context"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
)

// theTarget stands for the name of a target in a call.
const theTarget = "TARGET"

// Fast returns what runs the call that args are, nil if it is none of those
// that run before every request of every tool: these do without the tree of
// all commands. Each does what its command does without any flag.
func Fast(cred *credcmd.App, args []string) func(ctx context.Context) error {
	a := &app{cred}
	for _, call := range [...]struct {
		words []string
		run   func(a *app, ctx context.Context, o output) error
	}{
		{[]string{"token", theTarget}, func(a *app, ctx context.Context, o output) error {
			return a.Token(ctx, o.target, credstore.Request{}, false)
		}},
		{[]string{"credential", "headers", theTarget}, (*app).headers},
		{[]string{"credential", "kubectl", theTarget}, (*app).kubectl},
		{[]string{"credential", "git", "get"}, (*app).gitGet},
		{[]string{"credential", "docker", "get"}, func(a *app, ctx context.Context, o output) error {
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
