//go:build linux

package ledger_test

func storm(args []string) error { return nil }
func spend(args []string) error { return nil }
