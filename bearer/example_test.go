package bearer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/spendoncetest"
)

// The resource refuses a token before its time. The request is answered all
// the same, and every other program on this machine has the new token.
func Example() {
	server, stop, err := revokedSession("example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	if err := get(context.Background(), server.ResourceURL()); err != nil {
		fmt.Println(err)
	}
	c := server.Counters()
	fmt.Printf("%d refused, %d exchange\n", c.ResourceRejected, c.Exchanges)
	// Output:
	// 200 OK
	// 1 refused, 1 exchange
}

// get is all that a program does.
func get(ctx context.Context, url string) error {
	store, err := credstore.Open(credstore.Config{})
	if err != nil {
		return err
	}
	defer store.Close(ctx) // waits for an exchange that has begun
	source, err := store.Source(credstore.SourceConfig{Target: "example", Exchange: refresh.Exchange(nil)})
	if err != nil {
		return err
	}
	origin, err := bearer.ParseOrigin(url)
	if err != nil {
		return err
	}
	transport, err := bearer.New(bearer.Config{Target: "example", Source: source, Origins: []bearer.Origin{origin}})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// revokedSession starts a strict server and stores a session whose access
// token it refuses.
func revokedSession(target string) (server *spendoncetest.TokenServer, stop func(), err error) {
	if server, err = spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{}); err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "spendonce-example-")
	if err != nil {
		return nil, nil, err
	}
	before, was := os.LookupEnv("SPENDONCE_STATE_DIR")
	if err := os.Setenv("SPENDONCE_STATE_DIR", dir+"/state"); err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = os.Unsetenv("SPENDONCE_STATE_DIR")
		if was {
			_ = os.Setenv("SPENDONCE_STATE_DIR", before)
		}
		_ = os.RemoveAll(dir)
		_ = server.Close()
	}
	store, err := credstore.Open(credstore.Config{})
	if err != nil {
		return nil, nil, err
	}
	defer store.Close(context.Background())
	session := server.NewSession("alice")
	_, err = store.Login(context.Background(), target, credstore.SignedIn{
		URL:    server.ResourceURL(),
		Pin:    credstore.Pin{Issuer: server.Issuer(), TokenEndpoint: server.TokenEndpoint(), ClientID: server.ClientID()},
		Tokens: credstore.Tokens{AccessToken: session.AccessToken, RefreshToken: session.RefreshToken, ExpiresAt: session.ExpiresAt},
	})
	if err != nil {
		return nil, nil, err
	}
	return server, stop, server.RevokeAccessToken(session.AccessToken.Reveal())
}
