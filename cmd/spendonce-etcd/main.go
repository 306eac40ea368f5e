// Command spendonce-etcd is spendonce for targets that a fleet of machines
// shares in etcd. spendonce runs it in its own place when the configuration
// asks for etcd, so that nobody else's program carries what that takes.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"os"

	"github.com/spendonce/spendonce/internal/cli"
	"github.com/spendonce/spendonce/internal/cli/etcdtargets"
)

func main() { os.Exit(cli.MainWith(os.Args, etcdtargets.Open)) }
