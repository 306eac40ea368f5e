package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/tests/real/everything"
)

// life is the table of what becomes of a session, by proxies that have signed
// in themselves.
func (b *bench) life(ctx context.Context) (string, error) {
	rows := []struct {
		name string
		see  func(ctx context.Context, c contender) (string, error)
	}{
		{"ten clients start when the token has just expired", b.tenAtOnce},
		{"the token is revoked in mid-use", b.revoked},
		{"the server refuses every token, and a client calls each second for 20 s", b.refused},
		{"the server forgets the MCP session in mid-use (404)", b.forgotten},
		{"the server is started again in mid-use (this one answers 400)", b.restarted},
		{"an answer of 20 MiB", b.longAnswer},
		{"the client closes its side", b.closed},
	}
	var out strings.Builder
	fmt.Fprintf(&out, "| | %s | %s |\n|---|---|---|\n", spendonce, mcpRemote)
	for _, row := range rows {
		fmt.Fprintf(&out, "| %s |", row.name)
		for _, c := range []contender{spendonce, mcpRemote} {
			fmt.Fprintf(b.talk, "%s: %s\n", row.name, c)
			bounded, cancel := context.WithTimeout(ctx, 3*time.Minute)
			seen, err := row.see(bounded, c)
			cancel()
			if err != nil {
				return "", fmt.Errorf("%s: %s: %w", row.name, c, err)
			}
			fmt.Fprintf(b.talk, "  %s\n", seen)
			fmt.Fprintf(&out, " %s |", seen)
		}
		out.WriteString("\n")
	}
	return out.String(), nil
}

// signedIn is a site whose proxies refresh their session themselves.
func (b *bench) signedIn(ctx context.Context, c contender) (*site, error) {
	return b.site(ctx, c, everything.StreamableHTTP, true)
}

// at is one client of a site, and one call that went well.
func (b *bench) at(ctx context.Context, c contender) (*site, *client, error) {
	s, err := b.signedIn(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	one, err := open(ctx, s)
	if err == nil {
		if err = one.echo(ctx); err != nil {
			one.end()
		}
	}
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, one, nil
}

// rounds are of ten clients each: whether they meet is chance.
const rounds = 5

func (b *bench) tenAtOnce(ctx context.Context, c contender) (string, error) {
	const n = 10
	well, exchanges, spentTwice := 0, 0, 0
	for range rounds {
		s, err := b.signedIn(ctx, c)
		if err != nil {
			return "", err
		}
		s.front.Tokens.ExpireAccessTokens()
		before := s.front.Tokens.Counters()
		answered := make(chan bool, n)
		for range n {
			go func() { answered <- serves(ctx, s) }()
		}
		served := 0
		for range n {
			if <-answered {
				served++
			}
		}
		if served == n {
			well++
		}
		after := s.front.Tokens.Counters()
		s.close()
		exchanges += after.Exchanges - before.Exchanges
		spentTwice += after.DoubleSpends - before.DoubleSpends
	}
	seen := fmt.Sprintf("all ten served in %d of %d rounds, %s", well, rounds, count(exchanges, "exchange"))
	if spentTwice > 0 {
		seen += fmt.Sprintf(", %s spent twice", count(spentTwice, "refresh token"))
	}
	return seen, nil
}

// serves reports whether a client that starts now gets an answer.
func serves(ctx context.Context, s *site) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	one, err := open(ctx, s)
	if err != nil {
		return false
	}
	defer one.end()
	return one.echo(ctx) == nil
}

func (b *bench) revoked(ctx context.Context, c contender) (string, error) {
	s, one, err := b.at(ctx, c)
	if err != nil {
		return "", err
	}
	defer s.close()
	defer one.end()
	before := s.front.Tokens.Counters().Exchanges
	s.front.Tokens.ExpireAccessTokens()
	return nextCall(ctx, one) + ", " + count(s.front.Tokens.Counters().Exchanges-before, "exchange"), nil
}

func (b *bench) refused(ctx context.Context, c contender) (string, error) {
	s, one, err := b.at(ctx, c)
	if err != nil {
		return "", err
	}
	defer s.close()
	defer one.end()
	s.front.RejectAll(true)
	refused, posts := s.front.Refused(), s.front.Tokens.Counters().TokenPosts
	const span = 20
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range span {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		go func() { _ = one.echo(ctx) }()
	}
	seen := fmt.Sprintf("%s, %s", count(int(s.front.Refused()-refused), "request"), count(s.front.Tokens.Counters().TokenPosts-posts, "exchange"))
	s.front.RejectAll(false)
	return seen + "; then: " + nextCall(ctx, one), nil
}

func (b *bench) forgotten(ctx context.Context, c contender) (string, error) {
	s, one, err := b.at(ctx, c)
	if err != nil {
		return "", err
	}
	defer s.close()
	defer one.end()
	s.front.ForgetSessions()
	return nextCall(ctx, one), nil
}

func (b *bench) restarted(ctx context.Context, c contender) (string, error) {
	s, one, err := b.at(ctx, c)
	if err != nil {
		return "", err
	}
	defer s.close()
	defer one.end()
	s.server.Close()
	if s.server, err = everything.Start(ctx, everything.StreamableHTTP); err != nil {
		return "", err
	}
	s.front.Lead(s.server)
	return nextCall(ctx, one), nil
}

func (b *bench) longAnswer(ctx context.Context, c contender) (string, error) {
	const raw = 15 << 20 // in Base64: 20 MiB
	noise := make([]byte, raw)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(noise) }))
	defer source.Close()
	s, one, err := b.at(ctx, c)
	if err != nil {
		return "", err
	}
	defer s.close()
	defer one.end()
	n, err := one.fetch(ctx, source.URL)
	if err != nil {
		return "no: " + shortly(err), nil
	}
	if n < raw {
		return fmt.Sprintf("no: %d bytes came", n), nil
	}
	return "passes", nil
}

func (b *bench) closed(ctx context.Context, c contender) (string, error) {
	const n = 5
	var took []time.Duration
	var ends int32
	for range n {
		s, one, err := b.at(ctx, c)
		if err != nil {
			return "", err
		}
		took = append(took, one.end())
		ends += s.ends.Load()
		s.close()
	}
	slices.Sort(took)
	seen := fmt.Sprintf("ends after %d ms", took[n/2].Milliseconds())
	if took[n/2] > 5*time.Second {
		seen = "does not end by itself within 5 s"
	}
	if ends < n {
		return seen + ", and does not end the session", nil
	}
	return seen + ", and ends the session", nil
}

// nextCall is what becomes of it, within half a minute.
func nextCall(ctx context.Context, one *client) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch err := one.echo(ctx); {
	case err == nil:
		return "the next call is answered"
	case ctx.Err() != nil:
		return "the next call has no answer in half a minute"
	default:
		return "the next call fails (" + shortly(err) + ")"
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shortly is the beginning of an error's text, for a cell.
func shortly(err error) string {
	text := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "|", "/")), " ")
	if len(text) > 120 {
		text = strings.ToValidUTF8(text[:120], "") + "..."
	}
	return text
}
