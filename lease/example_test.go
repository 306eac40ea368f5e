//go:build linux

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spendonce/spendonce/lease"
	"github.com/spendonce/spendonce/spendoncetest"
)

func Example() {
	// A broker for this example; a program asks the one that runs.
	broker, err := spendoncetest.StartBroker(spendoncetest.BrokerConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	before, was := os.LookupEnv(lease.SocketVariable)
	_ = os.Setenv(lease.SocketVariable, broker.Socket())
	defer func() {
		_ = os.Unsetenv(lease.SocketVariable)
		if was {
			_ = os.Setenv(lease.SocketVariable, before)
		}
	}()
	if err := decideAndAct(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// acting on sha256:b2
	// done already: true
}

func decideAndAct(ctx context.Context) error {
	client := &lease.Client{}
	session, err := client.RegisterAnchor(ctx, 0) // this process is the anchor now
	if err != nil {
		return err
	}
	token, err := client.Mint(ctx, session, lease.Binding{HSource: "sha256:a1", HPayload: "sha256:b2", SchemaVersion: 1})
	if err != nil {
		return err
	}
	binding, err := client.Consume(ctx, session, token)
	if errors.Is(err, lease.ErrTokenReplay) {
		return errors.New("done already")
	}
	if err != nil { // also lease.ErrOutcomeUnknown: then the token must be taken as spent
		return err
	}
	fmt.Println("acting on", binding.HPayload)

	_, err = client.Consume(ctx, session, token)
	fmt.Println("done already:", errors.Is(err, lease.ErrTokenReplay))
	return nil
}
