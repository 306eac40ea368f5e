//go:build !linux

package main_test

import "github.com/rogpeppe/go-internal/testscript"

// stopBrokers has nothing to stop here.
func stopBrokers(testscript.T, string) {}

// heedSignals changes nothing here.
func heedSignals() {}
