// Command flocktoken prints a fresh access token of the session in a file. It
// is the smallest whole command around the package baseline.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/spendonce/spendonce/tests/bench/baseline"
)

func main() {
	var c baseline.Client
	flag.StringVar(&c.Endpoint, "endpoint", "", "the token endpoint")
	flag.StringVar(&c.ClientID, "client-id", "", "the client id")
	flag.BoolVar(&c.Unlocked, "unlocked", false, "take no lock")
	flag.Parse()
	c.Path = flag.Arg(0)
	token, err := c.Token(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "flocktoken:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
	fmt.Fprintln(os.Stdout, token)
}
