//go:build linux

package lease_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/spendonce/spendonce/lease"
	"github.com/spendonce/spendonce/spendoncetest"
)

func Example() {
	// A broker for this example; a program asks the one that runs, with
	// &lease.Client{}.
	broker, err := spendoncetest.StartBroker(spendoncetest.BrokerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	if err := decideAndAct(context.Background(), broker.Client()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// acting on sha256:b2
	// done already
}

func decideAndAct(ctx context.Context, client *lease.Client) error {
	session, err := client.RegisterAnchor(ctx, 0) // this process is the anchor now
	if err != nil {
		return err
	}
	token, err := client.Mint(ctx, session, lease.Binding{HSource: "sha256:a1", HPayload: "sha256:b2", SchemaVersion: 1})
	if err != nil {
		return err
	}
	for range 2 {
		if err := act(ctx, client, session, token); err != nil {
			return err
		}
	}
	return nil
}

func act(ctx context.Context, client *lease.Client, session lease.Session, token lease.Secret) error {
	binding, err := client.Consume(ctx, session, token)
	if errors.Is(err, lease.ErrTokenReplay) {
		return errors.New("done already")
	}
	if err != nil { // also lease.ErrOutcomeUnknown: then the token must be taken as spent
		return err
	}
	fmt.Println("acting on", binding.HPayload)
	return nil
}
