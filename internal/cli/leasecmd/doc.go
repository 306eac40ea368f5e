// Package leasecmd holds the commands of the lease broker. They run on Linux
// only; elsewhere the one command there is says so.
package leasecmd
