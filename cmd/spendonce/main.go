// Command spendonce shares one signed-in session between many processes.
//
// A run takes three milliseconds and one core; asking the kernel for the
// container's share of cores, and asking again every second, would be a
// twentieth of it.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/spendonce/spendonce/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
