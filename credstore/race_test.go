//go:build race

package credstore_test

const raced = true
