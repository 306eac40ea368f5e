package credstore_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/spendoncetest"
)

// Eight programs share a session whose access token has expired. Their server
// is strict: it ends the session of whoever spends a refresh token twice.
func Example() {
	server, stop, err := expiredSession("example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	var programs sync.WaitGroup
	for range 8 {
		programs.Go(func() {
			if err := useSession(context.Background(), server.ResourceURL()); err != nil {
				fmt.Println(err)
			}
		})
	}
	programs.Wait()
	c := server.Counters()
	fmt.Printf("%d requests served, %d exchange, %d double spends\n", c.ResourceServed, c.Exchanges, c.DoubleSpends)
	// Output:
	// 8 requests served, 1 exchange, 0 double spends
}

// useSession is all that a program does. README.md shows the same lines.
func useSession(ctx context.Context, url string) error {
	store, err := credstore.Open(credstore.Config{})
	if err != nil {
		return err
	}
	defer store.Close(ctx) // waits for an exchange that has begun
	source, err := store.Source(credstore.SourceConfig{Target: "example", Exchange: refresh.Exchange(nil)})
	if err != nil {
		return err
	}
	client := oauth2.NewClient(ctx, source) // golang.org/x/oauth2

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the service answered %s", resp.Status)
	}
	return nil
}

// expiredSession starts a server and keeps an expired session of it in a state
// directory of its own, as "spendonce login" would have done an hour ago.
func expiredSession(target string) (server *spendoncetest.TokenServer, stop func(), err error) {
	dir, err := os.MkdirTemp("", "spendonce-example-")
	if err != nil {
		return nil, nil, err
	}
	if err := os.Setenv("SPENDONCE_STATE_DIR", dir); err != nil {
		return nil, nil, err
	}
	server, err = spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = server.Close()
		_ = os.Unsetenv("SPENDONCE_STATE_DIR")
		_ = os.RemoveAll(dir)
	}
	store, err := credstore.Open(credstore.Config{})
	if err != nil {
		return nil, nil, err
	}
	session := server.NewSession("alice")
	server.ExpireAccessTokens()
	_, err = store.Login(context.Background(), target, credstore.SignedIn{
		URL: server.ResourceURL(),
		Pin: credstore.Pin{Issuer: server.Issuer(), TokenEndpoint: server.TokenEndpoint(), ClientID: server.ClientID()},
		Tokens: credstore.Tokens{
			AccessToken: session.AccessToken, RefreshToken: session.RefreshToken, ExpiresAt: time.Now().Add(-time.Minute),
		},
	})
	return server, stop, err
}
