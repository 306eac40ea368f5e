// Command spendonce shares one signed-in session between many processes.
package main

import (
	"os"

	"github.com/spendonce/spendonce/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
